//! Block-sparse products in the registry: who may race on which device, other names, and what is tuned when nobody asks
//! for more.

use warplap_core::arg::Arg;
use warplap_core::catalog::{Catalog, Raced};
use warplap_core::device::Device;
use warplap_core::error::Error;
#[cfg(feature = "cpu")]
use warplap_cpu::Cpu;
#[cfg(feature = "cuda")]
use warplap_cuda::Cuda;

use super::{Bsr, BsrProblem};
use crate::registry::Known;

#[cfg(feature = "cpu")]
impl Raced<Cpu> for Bsr {
    fn catalog() -> Catalog<Bsr, Cpu> {
        super::cpu::catalog()
    }

    fn check(p: &BsrProblem, args: &[Arg<'_, Cpu>], _: &Cpu) -> Result<(), Error> {
        super::check_indices(p, args)
    }
}

#[cfg(feature = "cuda")]
impl Raced<Cuda> for Bsr {
    fn catalog() -> Catalog<Bsr, Cuda> {
        super::cuda::catalog()
    }

    fn check(p: &BsrProblem, args: &[Arg<'_, Cuda>], cuda: &Cuda) -> Result<(), Error> {
        super::cuda::IndexCheck::of(cuda)?.check(p, args, cuda.queue())
    }
}

impl Known for Bsr {
    const ALIASES: &'static [&'static str] = &["bsr_matmul"];
    const EXAMPLE: &'static str = "bsr:m=4096,k=4096,n=512,bs=64,density=0.125,dtype=f32";
    const SUITES: &'static [(&'static str, &'static str)] = &[("cpu", CPU), ("cuda", CUDA)];
}

const CPU: &str = "
# An eighth of the blocks, and a twentieth of small ones.
bsr:m=2048,k=2048,n=512,bs=32,density=0.125,dtype=f32
bsr:m=2048,k=2048,n=512,bs=64,density=0.125,dtype=f32
bsr:m=2048,k=2048,n=512,bs=16,density=0.05,dtype=f32
";

const CUDA: &str = "
# An eighth of the blocks, and a twentieth of small ones.
bsr:m=4096,k=4096,n=4096,bs=64,density=0.125,dtype=f16
bsr:m=4096,k=4096,n=4096,bs=16,density=0.05,dtype=f16
# Bytes along k.
bsr:m=4096,k=4096,n=4096,bs=128,density=0.125,dtype=f8e4m3,b=col
";
