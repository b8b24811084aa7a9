//! Normalisation in the registry: who may race on which device, other names, and what is tuned when nobody asks for
//! more.

use warplap_core::catalog::{Catalog, Raced};
#[cfg(feature = "cpu")]
use warplap_cpu::Cpu;
#[cfg(feature = "cuda")]
use warplap_cuda::Cuda;

use super::Norm;
use crate::registry::Known;

#[cfg(feature = "cpu")]
impl Raced<Cpu> for Norm {
    fn catalog() -> Catalog<Norm, Cpu> {
        super::cpu::catalog()
    }
}

#[cfg(feature = "cuda")]
impl Raced<Cuda> for Norm {
    fn catalog() -> Catalog<Norm, Cuda> {
        super::cuda::catalog()
    }
}

impl Known for Norm {
    const ALIASES: &'static [&'static str] = &["rmsnorm", "layernorm"];
    // A seed points nowhere.
    const GUARDED: bool = true;
    const EXAMPLE: &'static str = "norm:rows=4096,n=4096,dtype=bf16,kind=rms,residual=true";
    const SUITES: &'static [(&'static str, &'static str)] = &[("cpu", CPU), ("cuda", CUDA)];
}

const CPU: &str = "
norm:rows=1,n=4096,dtype=f32,kind=rms,residual=true
norm:rows=512,n=4096,dtype=bf16,kind=rms,residual=true
norm:rows=512,n=1024,dtype=f32,kind=layer,bias=true
norm:rows=512,n=4096,dtype=bf16,kind=rms,residual=true,quant=i8
";

const CUDA: &str = "
norm:rows=1,n=4096,dtype=bf16,kind=rms,residual=true
norm:rows=16,n=4096,dtype=bf16,kind=rms,residual=true
norm:rows=256,n=4096,dtype=bf16,kind=rms,residual=true
norm:rows=8192,n=4096,dtype=bf16,kind=rms,residual=true
norm:rows=8192,n=4096,dtype=bf16,kind=layer,bias=true
norm:rows=8192,n=4096,dtype=bf16,kind=layer,residual=true,bias=true,before=true,dropout=0.1
norm:rows=32768,n=768,dtype=f16,kind=layer,bias=true
norm:rows=4096,n=4096,dtype=f32,kind=rms
norm:rows=16,n=4096,dtype=bf16,kind=rms,residual=true,quant=f8e4m3
norm:rows=8192,n=4096,dtype=bf16,kind=rms,residual=true,quant=f8e4m3
";
