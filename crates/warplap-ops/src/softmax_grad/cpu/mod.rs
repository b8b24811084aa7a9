//! Softmax's gradients on the CPU. The order of the list is the order of ties; the first is the reference.

mod reference;
mod two_pass;

use std::sync::Arc;

use warplap_core::catalog::Catalog;
use warplap_cpu::Cpu;

use super::SoftmaxGrad;

/// Who may race.
pub fn catalog() -> Catalog<SoftmaxGrad, Cpu> {
    Catalog::new(Arc::new(reference::Reference)).with(Arc::new(two_pass::TwoPass))
}
