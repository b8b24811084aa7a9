//! Attention's gradients in the registry: who may race on which device, other names, and what is tuned when nobody asks
//! for more.

use warplap_core::catalog::{Catalog, Raced};
#[cfg(feature = "cpu")]
use warplap_cpu::Cpu;
#[cfg(feature = "cuda")]
use warplap_cuda::Cuda;

use super::AttentionGrad;
use crate::registry::Known;

#[cfg(feature = "cpu")]
impl Raced<Cpu> for AttentionGrad {
    fn catalog() -> Catalog<AttentionGrad, Cpu> {
        super::cpu::catalog()
    }
}

#[cfg(feature = "cuda")]
impl Raced<Cuda> for AttentionGrad {
    fn catalog() -> Catalog<AttentionGrad, Cuda> {
        super::cuda::catalog()
    }
}

impl Known for AttentionGrad {
    const ALIASES: &'static [&'static str] = &["sdpa_backward"];
    // A seed points nowhere.
    const GUARDED: bool = true;
    const EXAMPLE: &'static str = "attention_grad:b=1,h=8,sq=256,sk=256,d=64,dtype=f32,causal=false";
    const SUITES: &'static [(&'static str, &'static str)] = &[("cpu", CPU), ("cuda", CUDA)];
}

const CPU: &str = "
attention_grad:b=1,h=4,sq=256,sk=256,d=64,dtype=f32,causal=false
";

const CUDA: &str = "
# A training step's layers: long, causal, with narrow heads.
attention_grad:b=2,h=16,sq=4096,sk=4096,d=128,dtype=bf16,causal=true
attention_grad:b=2,h=16,sq=4096,sk=4096,d=128,dtype=bf16,causal=false
attention_grad:b=4,h=16,sq=2048,sk=2048,d=64,dtype=bf16,causal=true
";
