//! Rotary position embedding in the registry: who may race on which device, other names, and what is tuned when nobody
//! asks for more.

use warplap_core::catalog::{Catalog, Raced};
#[cfg(feature = "cpu")]
use warplap_cpu::Cpu;
#[cfg(feature = "cuda")]
use warplap_cuda::Cuda;

use super::Rope;
use crate::registry::Known;

#[cfg(feature = "cpu")]
impl Raced<Cpu> for Rope {
    fn catalog() -> Catalog<Rope, Cpu> {
        super::cpu::catalog()
    }
}

#[cfg(feature = "cuda")]
impl Raced<Cuda> for Rope {
    fn catalog() -> Catalog<Rope, Cuda> {
        super::cuda::catalog()
    }
}

impl Known for Rope {
    const ALIASES: &'static [&'static str] = &["rotary"];
    // A position that the table does not have is seen by every kernel.
    const GUARDED: bool = true;
    const EXAMPLE: &'static str = "rope:rows=4096,h=32,hk=8,d=128,dtype=bf16,pairs=halves";
    const SUITES: &'static [(&'static str, &'static str)] = &[("cpu", CPU), ("cuda", CUDA)];
}

const CPU: &str = "
rope:rows=1,h=32,hk=8,d=128,dtype=bf16,pairs=halves
rope:rows=512,h=32,hk=8,d=128,dtype=bf16,pairs=halves
rope:rows=512,h=12,hk=12,d=64,dtype=f32,pairs=interleaved
";

const CUDA: &str = "
rope:rows=16,h=32,hk=8,d=128,n=8192,dtype=bf16,pairs=halves,positions=i64
rope:rows=4096,h=32,hk=8,d=128,dtype=bf16,pairs=halves
rope:rows=4096,h=32,hk=8,d=128,dtype=bf16,wide=true,pairs=halves
rope:rows=4096,h=48,d=128,dtype=bf16,pairs=halves,plain=8,bias=true,inplace=true
rope:rows=4096,h=16,hk=16,d=64,dtype=f16,pairs=interleaved
";
