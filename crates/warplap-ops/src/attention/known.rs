//! Attention in the registry: who may race on which device, other names, and what is tuned when nobody asks for more.

use warplap_core::catalog::{Catalog, Raced};
#[cfg(feature = "cpu")]
use warplap_cpu::Cpu;
#[cfg(feature = "cuda")]
use warplap_cuda::Cuda;

use super::Attention;
use crate::registry::Known;

#[cfg(feature = "cpu")]
impl Raced<Cpu> for Attention {
    fn catalog() -> Catalog<Attention, Cpu> {
        super::cpu::catalog()
    }
}

#[cfg(feature = "cuda")]
impl Raced<Cuda> for Attention {
    fn catalog() -> Catalog<Attention, Cuda> {
        super::cuda::catalog()
    }
}

impl Known for Attention {
    const ALIASES: &'static [&'static str] = &["sdpa"];
    // A seed points nowhere; page numbers and lengths are held against what there is before they are followed.
    const GUARDED: bool = true;
    const EXAMPLE: &'static str = "attention:b=1,h=8,sq=512,sk=512,d=64,dtype=f32,causal=false";
    const SUITES: &'static [(&'static str, &'static str)] = &[("cpu", CPU), ("cuda", CUDA)];
}

const CPU: &str = "
# A prompt, a causal short one, one token against a long past.
attention:b=1,h=8,sq=512,sk=512,d=64,dtype=f32,causal=false
attention:b=1,h=8,sq=128,sk=128,d=64,dtype=f32,causal=true
attention:b=1,h=8,sq=1,sk=2048,d=64,dtype=f32,causal=false
";

const CUDA: &str = "
# A prompt, short and long, causal and with a mask; one token against a long past, with heads of its own and shared.
attention:b=1,h=8,sq=512,sk=512,d=64,dtype=f16,causal=false
attention:b=2,h=16,sq=2048,sk=2048,d=64,dtype=bf16,causal=false
attention:b=2,h=16,sq=2048,sk=2048,d=128,dtype=bf16,causal=true
attention:b=2,h=16,sq=1024,sk=1024,d=128,dtype=f16,causal=false,mask=add
attention:b=1,h=32,sq=1,sk=4096,d=128,dtype=bf16,causal=false
attention:b=1,h=32,sq=1,sk=16384,d=128,dtype=bf16,causal=false,hkv=8
";
