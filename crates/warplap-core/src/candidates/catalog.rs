//! The Catalog: the ordered list of an operation's variants on a device. A card asks it who may race.

use std::sync::Arc;

use crate::candidates::variant::Variant;
use crate::device::Device;
use crate::error::Error;
use crate::model::arg::Arg;
use crate::model::op::Op;
use crate::prove::contain::PanicGuard;
use crate::prove::oracle::Oracle;

/// An operation that has variants on a device: what a session needs to know of it.
pub trait Raced<D: Device>: Op {
    /// Who may race.
    fn catalog() -> Catalog<Self, D>;

    /// Checks what a signature cannot say of a caller's arguments (indices that point outside) before anything is read
    /// through them. They are not held to the signature yet: whoever looks into them checks that first.
    fn check(_problem: &Self::Problem, _args: &[Arg<'_, D>], _device: &D) -> Result<(), Error> {
        Ok(())
    }
}

/// The ordered list of an operation's variants on a device. The first is the reference: it fits everything and is
/// the fallback. A variant that panics stands aside, does not build or crashes; whoever asks the catalog never panics.
pub struct Catalog<O: Op, D: Device> {
    variants: Vec<Arc<dyn Variant<O, D>>>,
    oracle: Option<Arc<dyn Oracle<O, D>>>,
}

impl<O: Op, D: Device> Clone for Catalog<O, D> {
    fn clone(&self) -> Self {
        Catalog { variants: self.variants.clone(), oracle: self.oracle.clone() }
    }
}

impl<O: Op, D: Device> Catalog<O, D> {
    /// A catalog; the first variant is the reference.
    pub fn new(reference: Arc<dyn Variant<O, D>>) -> Self {
        Catalog { variants: vec![Arc::new(PanicGuard(reference))], oracle: None }
    }

    /// This catalog with one more variant; one with an id that is there already takes its place.
    pub fn with(mut self, variant: Arc<dyn Variant<O, D>>) -> Self {
        let variant: Arc<dyn Variant<O, D>> = Arc::new(PanicGuard(variant));
        match self.variants.iter().position(|v| v.id() == variant.id()) {
            Some(at) => self.variants[at] = variant,
            None => self.variants.push(variant),
        }
        self
    }

    /// This catalog with somebody who computes right answers on the device; without, the host does.
    pub fn with_oracle(mut self, oracle: Arc<dyn Oracle<O, D>>) -> Self {
        self.oracle = Some(oracle);
        self
    }

    /// Who computes right answers on the device.
    pub fn oracle(&self) -> Option<&dyn Oracle<O, D>> {
        self.oracle.as_deref()
    }

    /// The reference: fits everything, judged by its own tests, the fallback.
    pub fn reference(&self) -> &Arc<dyn Variant<O, D>> {
        &self.variants[0]
    }

    /// A variant by id.
    pub fn find(&self, id: &str) -> Option<&Arc<dyn Variant<O, D>>> {
        self.variants.iter().find(|v| v.id() == id)
    }

    /// All variants, in the order of the list.
    pub fn variants(&self) -> &[Arc<dyn Variant<O, D>>] {
        &self.variants
    }
}
