//! Dense products in the registry: who may race on which device, other names, and what is tuned when nobody asks for
//! more.

use warplap_core::catalog::{Catalog, Raced};
#[cfg(feature = "cpu")]
use warplap_cpu::Cpu;
#[cfg(feature = "cuda")]
use warplap_cuda::Cuda;

use super::Gemm;
use crate::registry::Known;

#[cfg(feature = "cpu")]
impl Raced<Cpu> for Gemm {
    fn catalog() -> Catalog<Gemm, Cpu> {
        super::cpu::catalog()
    }
}

#[cfg(feature = "cuda")]
impl Raced<Cuda> for Gemm {
    fn catalog() -> Catalog<Gemm, Cuda> {
        super::cuda::catalog()
    }
}

impl Known for Gemm {
    const ALIASES: &'static [&'static str] = &["matmul"];
    const EXAMPLE: &'static str = "gemm:m=1024,n=1024,k=1024,dtype=f32";
    const SUITES: &'static [(&'static str, &'static str)] = &[("cpu", CPU), ("cuda", CUDA)];
}

const CPU: &str = "
# Square products: in the nearest cache, in the next one, and beyond.
gemm:m=64,n=64,k=64,dtype=f32
gemm:m=256,n=256,k=256,dtype=f32
gemm:m=512,n=512,k=512,dtype=f32
gemm:m=1024,n=1024,k=1024,dtype=f32
# A skinny product and a matrix times a vector: memory decides.
gemm:m=2048,n=16,k=2048,dtype=f32
gemm:m=4096,n=1,k=4096,dtype=f32
# Half storage, sums in f32.
gemm:m=512,n=512,k=512,dtype=bf16
# A layer with its bias and activation.
gemm:m=256,n=1024,k=512,dtype=f32,b=col,bias=true,act=gelu
# A layer that a residual is added to, and the half of a gated one.
gemm:m=256,n=512,k=1024,dtype=f32,b=col,bias=true,join=add
gemm:m=256,n=1024,k=512,dtype=f32,b=col,act=silu,join=mul
# Both products of a gated layer at once.
gemm:m=256,n=1024,k=512,dtype=f32,b=col,act=silu,pair=true
";

const CUDA: &str = "
# Square products: one wave and many.
gemm:m=1024,n=1024,k=1024,dtype=bf16
gemm:m=4096,n=4096,k=4096,dtype=bf16
# A layer of a language model: prompt, batch of tokens, one token.
gemm:m=4096,n=11008,k=4096,dtype=bf16
gemm:m=128,n=4096,k=4096,dtype=bf16
gemm:m=16,n=4096,k=4096,dtype=bf16
gemm:m=1,n=4096,k=4096,dtype=bf16
# The same layer with its bias and activation in the kernel.
gemm:m=4096,n=11008,k=4096,dtype=bf16,b=col,bias=true,act=gelu_tanh
# With a residual, and the half of a gated layer.
gemm:m=4096,n=4096,k=11008,dtype=bf16,b=col,join=add
gemm:m=4096,n=11008,k=4096,dtype=bf16,b=col,act=silu,join=mul
# Both products of a gated layer at once: prompt, batch of tokens, few tokens.
gemm:m=4096,n=11008,k=4096,dtype=bf16,b=col,act=silu,pair=true
gemm:m=256,n=11008,k=4096,dtype=bf16,b=col,act=silu,pair=true
gemm:m=16,n=11008,k=4096,dtype=bf16,b=col,act=silu,pair=true
# Sizes that no tile divides.
gemm:m=1000,n=1000,k=1000,dtype=f16
# Plain f32.
gemm:m=2048,n=2048,k=2048,dtype=f32
";
