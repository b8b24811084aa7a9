//! The Catalog: who may race. A Problem and a Device come in; the variants that fit go out, best priority first.

use std::sync::Arc;

use crate::contained::Contained;
use crate::device::Device;
use crate::op::Op;
use crate::oracle::Oracle;
use crate::record::Skipped;
use crate::variant::{Fit, Priority, Variant};

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

/// A variant that may race, and how eagerly.
pub struct Listed<O: Op, D: Device> {
    /// The variant.
    pub variant: Arc<dyn Variant<O, D>>,
    /// How eagerly it should be raced.
    pub priority: Priority,
}

impl<O: Op, D: Device> Catalog<O, D> {
    /// A catalog; the first variant is the reference.
    pub fn new(reference: Arc<dyn Variant<O, D>>) -> Self {
        Catalog { variants: vec![Arc::new(Contained(reference))], oracle: None }
    }

    /// This catalog with one more variant; one with an id that is there already takes its place.
    pub fn with(mut self, variant: Arc<dyn Variant<O, D>>) -> Self {
        let variant: Arc<dyn Variant<O, D>> = Arc::new(Contained(variant));
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

    /// Whether a variant is what reports compare winners with: the reference, or an official library.
    pub fn is_yardstick(&self, id: &str) -> bool {
        self.reference().id() == id || self.find(id).is_some_and(|v| v.is_library())
    }

    /// All variants, in the order of the list.
    pub fn variants(&self) -> &[Arc<dyn Variant<O, D>>] {
        &self.variants
    }

    /// Who may race for a problem, best priority first and in list order within one, and who stands aside and why.
    pub fn list(&self, problem: &O::Problem, device: &D) -> (Vec<Listed<O, D>>, Vec<Skipped>) {
        let mut listed = Vec::new();
        let mut aside = Vec::new();
        for variant in &self.variants {
            match variant.fit(problem, device) {
                Fit::Fits(priority) => listed.push(Listed { variant: variant.clone(), priority }),
                Fit::Aside(reason) => {
                    let (variant, source) = (variant.id().to_string(), variant.source());
                    aside.push(Skipped { variant, source, configs: 0, reason });
                }
            }
        }
        listed.sort_by_key(|l| std::cmp::Reverse(l.priority));
        (listed, aside)
    }
}
