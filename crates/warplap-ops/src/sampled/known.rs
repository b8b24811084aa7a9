//! Sampled products in the registry: who may race on which device, other names, and what is tuned when nobody asks for
//! more.

use warplap_core::arg::Arg;
use warplap_core::catalog::{Catalog, Raced};
use warplap_core::error::Error;
#[cfg(feature = "cpu")]
use warplap_cpu::Cpu;
#[cfg(feature = "cuda")]
use warplap_cuda::Cuda;

use super::{Sampled, SampledProblem};
use crate::registry::Known;

#[cfg(feature = "cpu")]
impl Raced<Cpu> for Sampled {
    fn catalog() -> Catalog<Sampled, Cpu> {
        super::cpu::catalog()
    }

    fn check(p: &SampledProblem, args: &[Arg<'_, Cpu>], _: &Cpu) -> Result<(), Error> {
        super::check_indices(p, args)
    }
}

#[cfg(feature = "cuda")]
impl Raced<Cuda> for Sampled {
    fn catalog() -> Catalog<Sampled, Cuda> {
        super::cuda::catalog()
    }

    fn check(p: &SampledProblem, args: &[Arg<'_, Cuda>], _: &Cuda) -> Result<(), Error> {
        super::check(p, args)
    }
}

impl Known for Sampled {
    const ALIASES: &'static [&'static str] = &["sddmm"];
    const EXAMPLE: &'static str = "sampled:m=4096,k=4096,n=512,bs=64,density=0.125,dtype=f32";
    const SUITES: &'static [(&'static str, &'static str)] = &[("cpu", CPU), ("cuda", CUDA)];
}

const CPU: &str = "
sampled:m=1024,k=1024,n=512,bs=32,density=0.125,dtype=f32
";

const CUDA: &str = "
sampled:m=4096,k=4096,n=4096,bs=64,density=0.125,dtype=f16
";
