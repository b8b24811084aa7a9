//! The gradient of attention's mask in the registry: who may race on which device, other names, and what is tuned when
//! nobody asks for more.

use warplap_core::catalog::{Catalog, Raced};
#[cfg(feature = "cpu")]
use warplap_cpu::Cpu;
#[cfg(feature = "cuda")]
use warplap_cuda::Cuda;

use super::AttentionMaskGrad;
use crate::registry::Known;

#[cfg(feature = "cpu")]
impl Raced<Cpu> for AttentionMaskGrad {
    fn catalog() -> Catalog<AttentionMaskGrad, Cpu> {
        super::cpu::catalog()
    }
}

#[cfg(feature = "cuda")]
impl Raced<Cuda> for AttentionMaskGrad {
    fn catalog() -> Catalog<AttentionMaskGrad, Cuda> {
        super::cuda::catalog()
    }
}

impl Known for AttentionMaskGrad {
    const ALIASES: &'static [&'static str] = &[];
    // A seed points nowhere.
    const GUARDED: bool = true;
    const EXAMPLE: &'static str = "attention_mask_grad:b=1,h=8,sq=256,sk=256,d=64,dtype=f32,causal=false,mask=add";
    const SUITES: &'static [(&'static str, &'static str)] = &[("cpu", CPU), ("cuda", CUDA)];
}

const CPU: &str = "
attention_mask_grad:b=1,h=4,sq=256,sk=256,d=64,dtype=f32,causal=false,mask=add
";

const CUDA: &str = "
# A bias that is learnt: one a head, and one for all.
attention_mask_grad:b=2,h=16,sq=2048,sk=2048,d=128,dtype=bf16,causal=false,mask=add,over=heads
attention_mask_grad:b=2,h=16,sq=2048,sk=2048,d=128,dtype=bf16,causal=false,mask=add
";
