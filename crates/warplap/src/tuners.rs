//! The tuners of a session: an operation's type comes in; its one tuner goes out, made when it is first asked for.

use std::any::{Any, TypeId};
use std::sync::OnceLock;

use warplap_core::device::Device;
use warplap_core::op::Op;
use warplap_core::tuner::Tuner;

/// Tuners by operation. Finding one takes no lock: a list that only grows, and a session uses few.
#[derive(Default)]
pub(crate) struct Tuners {
    first: OnceLock<Box<Node>>,
}

struct Node {
    op: TypeId,
    tuner: Box<dyn Any + Send + Sync>,
    next: OnceLock<Box<Node>>,
}

impl Tuners {
    /// The tuner of an operation.
    #[inline]
    pub(crate) fn get<O: Op, D: Device>(&self, make: impl Fn() -> Tuner<O, D>) -> &Tuner<O, D> {
        let op = TypeId::of::<O>();
        let mut at = &self.first;
        loop {
            let node = at.get_or_init(|| Box::new(Node { op, tuner: Box::new(make()), next: OnceLock::new() }));
            match node.tuner.downcast_ref::<Tuner<O, D>>() {
                Some(tuner) if node.op == op => return tuner,
                _ => at = &node.next,
            }
        }
    }
}
