//! Cross entropy in the registry: who may race on which device, other names, and what is tuned when nobody asks for
//! more.

use warplap_core::catalog::{Catalog, Raced};
#[cfg(feature = "cpu")]
use warplap_cpu::Cpu;
#[cfg(feature = "cuda")]
use warplap_cuda::Cuda;

use super::CrossEntropy;
use crate::registry::Known;

#[cfg(feature = "cpu")]
impl Raced<Cpu> for CrossEntropy {
    fn catalog() -> Catalog<CrossEntropy, Cpu> {
        super::cpu::catalog()
    }
}

#[cfg(feature = "cuda")]
impl Raced<Cuda> for CrossEntropy {
    fn catalog() -> Catalog<CrossEntropy, Cuda> {
        super::cuda::catalog()
    }
}

impl Known for CrossEntropy {
    const ALIASES: &'static [&'static str] = &["crossentropy"];
    const GUARDED: bool = true;
    const EXAMPLE: &'static str = "cross_entropy:rows=4096,n=128256,dtype=bf16,grad=true";
    const SUITES: &'static [(&'static str, &'static str)] = &[("cpu", CPU), ("cuda", CUDA)];
}

const CPU: &str = "
cross_entropy:rows=64,n=32000,dtype=f32
cross_entropy:rows=64,n=32000,dtype=bf16,grad=true
";

const CUDA: &str = "
cross_entropy:rows=4096,n=128256,dtype=bf16
cross_entropy:rows=4096,n=128256,dtype=bf16,grad=true
cross_entropy:rows=8192,n=32000,dtype=bf16,grad=true
";
