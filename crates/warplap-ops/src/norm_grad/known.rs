//! A norm's gradients in the registry: who may race on which device, other names, and what is tuned when nobody asks
//! for more.

use warplap_core::catalog::{Catalog, Raced};
#[cfg(feature = "cpu")]
use warplap_cpu::Cpu;
#[cfg(feature = "cuda")]
use warplap_cuda::Cuda;

use super::NormGrad;
use crate::registry::Known;

#[cfg(feature = "cpu")]
impl Raced<Cpu> for NormGrad {
    fn catalog() -> Catalog<NormGrad, Cpu> {
        super::cpu::catalog()
    }
}

#[cfg(feature = "cuda")]
impl Raced<Cuda> for NormGrad {
    fn catalog() -> Catalog<NormGrad, Cuda> {
        super::cuda::catalog()
    }
}

impl Known for NormGrad {
    const ALIASES: &'static [&'static str] = &["norm_backward"];
    // A seed points nowhere.
    const GUARDED: bool = true;
    const EXAMPLE: &'static str = "norm_grad:rows=4096,n=4096,dtype=bf16,kind=rms,total=true";
    const SUITES: &'static [(&'static str, &'static str)] = &[("cpu", CPU), ("cuda", CUDA)];
}

const CPU: &str = "
norm_grad:rows=512,n=4096,dtype=bf16,kind=rms,total=true
norm_grad:rows=512,n=1024,dtype=f32,kind=layer,bias=true
";

const CUDA: &str = "
norm_grad:rows=8192,n=4096,dtype=bf16,kind=rms,total=true
norm_grad:rows=8192,n=1024,dtype=bf16,kind=layer,bias=true,dropout=0.1
";
