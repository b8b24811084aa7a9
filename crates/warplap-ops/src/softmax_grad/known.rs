//! Softmax's gradients in the registry: who may race on which device, other names, and what is tuned when nobody asks for more.

use warplap_core::catalog::{Catalog, Raced};
#[cfg(feature = "cpu")]
use warplap_cpu::Cpu;
#[cfg(feature = "cuda")]
use warplap_cuda::Cuda;

use super::SoftmaxGrad;
use crate::registry::Known;

#[cfg(feature = "cpu")]
impl Raced<Cpu> for SoftmaxGrad {
    fn catalog() -> Catalog<SoftmaxGrad, Cpu> {
        super::cpu::catalog()
    }
}

#[cfg(feature = "cuda")]
impl Raced<Cuda> for SoftmaxGrad {
    fn catalog() -> Catalog<SoftmaxGrad, Cuda> {
        super::cuda::catalog()
    }
}

impl Known for SoftmaxGrad {
    const ALIASES: &'static [&'static str] = &["softmax_backward"];
    const EXAMPLE: &'static str = "softmax_grad:rows=4096,n=4096,dtype=bf16";
    const SUITES: &'static [(&'static str, &'static str)] = &[("cpu", CPU), ("cuda", CUDA)];
}

const CPU: &str = "
softmax_grad:rows=512,n=4096,dtype=f32
";

const CUDA: &str = "
softmax_grad:rows=4096,n=4096,dtype=bf16
softmax_grad:rows=65536,n=512,dtype=bf16,scale=0.125
";
