//! Softmax in the registry: who may race on which device, other names, and what is tuned when nobody asks for more.

use warplap_core::catalog::{Catalog, Raced};
#[cfg(feature = "cpu")]
use warplap_cpu::Cpu;
#[cfg(feature = "cuda")]
use warplap_cuda::Cuda;

use super::Softmax;
use crate::registry::Known;

#[cfg(feature = "cpu")]
impl Raced<Cpu> for Softmax {
    fn catalog() -> Catalog<Softmax, Cpu> {
        super::cpu::catalog()
    }
}

#[cfg(feature = "cuda")]
impl Raced<Cuda> for Softmax {
    fn catalog() -> Catalog<Softmax, Cuda> {
        super::cuda::catalog()
    }
}

impl Known for Softmax {
    const ALIASES: &'static [&'static str] = &[];
    const EXAMPLE: &'static str = "softmax:rows=4096,n=4096,dtype=bf16";
    const SUITES: &'static [(&'static str, &'static str)] = &[("cpu", CPU), ("cuda", CUDA)];
}

const CPU: &str = "
softmax:rows=512,n=4096,dtype=f32
softmax:rows=4096,n=512,dtype=bf16,scale=0.125,mask=512
";

const CUDA: &str = "
softmax:rows=4096,n=4096,dtype=bf16
softmax:rows=65536,n=512,dtype=bf16,scale=0.125,mask=512
softmax:rows=64,n=128256,dtype=f32
";
