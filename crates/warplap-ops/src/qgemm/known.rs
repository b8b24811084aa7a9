//! Products of 8-bit numbers in the registry: who may race on which device, other names, and what is tuned when nobody
//! asks for more.

use warplap_core::catalog::{Catalog, Raced};
#[cfg(feature = "cpu")]
use warplap_cpu::Cpu;
#[cfg(feature = "cuda")]
use warplap_cuda::Cuda;

use super::Qgemm;
use crate::registry::Known;

#[cfg(feature = "cpu")]
impl Raced<Cpu> for Qgemm {
    fn catalog() -> Catalog<Qgemm, Cpu> {
        super::cpu::catalog()
    }
}

#[cfg(feature = "cuda")]
impl Raced<Cuda> for Qgemm {
    fn catalog() -> Catalog<Qgemm, Cuda> {
        super::cuda::catalog()
    }
}

impl Known for Qgemm {
    const ALIASES: &'static [&'static str] = &["scaled_mm", "int_mm"];
    const EXAMPLE: &'static str = "qgemm:m=1024,n=1024,k=1024,dtype=i8,out=i32,scale=none";
    const SUITES: &'static [(&'static str, &'static str)] = &[("cpu", CPU), ("cuda", CUDA)];
}

const CPU: &str = "
qgemm:m=512,n=512,k=512,dtype=i8,out=i32,scale=none
qgemm:m=64,n=1024,k=1024,dtype=f8e4m3,out=bf16,scale=tensor
";

const CUDA: &str = "
# Square products.
qgemm:m=4096,n=4096,k=4096,dtype=f8e4m3,out=bf16,scale=tensor
qgemm:m=4096,n=4096,k=4096,dtype=f8e4m3,out=bf16,scale=block
qgemm:m=4096,n=4096,k=4096,dtype=i8,out=i32,scale=none
# A layer of a language model, for a batch of tokens.
qgemm:m=64,n=8192,k=8192,dtype=f8e4m3,out=bf16,scale=row
";
