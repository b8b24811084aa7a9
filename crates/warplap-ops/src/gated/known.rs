//! Activations in the registry: who may race on which device, other names, and what is tuned when nobody
//! asks for more.

use warplap_core::catalog::{Catalog, Raced};
#[cfg(feature = "cpu")]
use warplap_cpu::Cpu;
#[cfg(feature = "cuda")]
use warplap_cuda::Cuda;

use super::Gated;
use crate::registry::Known;

#[cfg(feature = "cpu")]
impl Raced<Cpu> for Gated {
    fn catalog() -> Catalog<Gated, Cpu> {
        super::cpu::catalog()
    }
}

#[cfg(feature = "cuda")]
impl Raced<Cuda> for Gated {
    fn catalog() -> Catalog<Gated, Cuda> {
        super::cuda::catalog()
    }
}

impl Known for Gated {
    const ALIASES: &'static [&'static str] = &["swiglu"];
    const EXAMPLE: &'static str = "gated:rows=4096,n=14336,dtype=bf16,act=silu";
    const SUITES: &'static [(&'static str, &'static str)] = &[("cpu", CPU), ("cuda", CUDA)];
}

const CPU: &str = "
gated:rows=1,n=14336,dtype=bf16,act=silu
gated:rows=256,n=11008,dtype=f32,act=silu,lda=22016,ldb=22016
gated:rows=512,n=3072,dtype=f32,act=gelu,join=none
";

const CUDA: &str = "
gated:rows=16,n=14336,dtype=bf16,act=silu,lda=28672,ldb=28672
gated:rows=4096,n=14336,dtype=bf16,act=silu,lda=28672,ldb=28672
gated:rows=4096,n=14336,dtype=bf16,act=silu
gated:rows=4096,n=10240,dtype=f16,act=gelu
gated:rows=4096,n=4096,dtype=bf16,act=none,join=add
gated:rows=4096,n=16384,dtype=bf16,act=gelu_tanh,join=none
";
