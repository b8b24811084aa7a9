//! The router's softmax on CUDA. The order of the list is the order of ties; the first is the reference.

mod lanes;
mod parts;
mod plan;
mod reference;
mod right;

use std::sync::Arc;

use warplap_core::catalog::Catalog;
use warplap_cuda::Cuda;

use super::{SLOTS, TopkSoftmax};
use crate::cuda::own::Own;

/// Who may race.
pub fn catalog() -> Catalog<TopkSoftmax, Cuda> {
    Catalog::new(Arc::new(Own::<_, _, SLOTS>::new(reference::Reference)))
        .with_oracle(Arc::new(right::Right))
        .with(Arc::new(Own::<_, _, SLOTS>::new(lanes::Lanes)))
        .with(Arc::new(Own::<_, _, SLOTS>::new(parts::Parts)))
}

#[cfg(test)]
mod tests {
    use warplap_core::op::Op;

    use crate::cuda::compiling;
    use crate::cuda::plan::CudaKernelSpec;
    use crate::topk_softmax::{TopkSoftmax, TopkSoftmaxProblem};

    fn check(twins: &[&dyn CudaKernelSpec<TopkSoftmaxProblem>], text: &str) {
        for capability in [(8, 0), (9, 0)] {
            let p = TopkSoftmax::parse(text).unwrap();
            twins.iter().for_each(|twin| compiling::check_ends(*twin, &p, capability, text));
            compiling::check_right(&super::right::source(&p), capability, text);
        }
    }

    #[test]
    fn every_kernel_compiles_for_sm_80_and_sm_90a() {
        for text in [
            "rows=4096,n=512,k=8,dtype=bf16,renormalize=true",
            "rows=64,n=1024,k=32,dtype=f32",
            "rows=5,n=777,k=64,dtype=f16",
        ] {
            check(&[&super::reference::Reference, &super::lanes::Lanes, &super::parts::Parts], text);
        }
    }

    #[test]
    fn short_rows_compile() {
        for text in [
            "rows=3,n=1,k=1,dtype=f32",
            "rows=100000,n=8,k=2,dtype=bf16,renormalize=true",
            "rows=64,n=60,k=60,dtype=f16",
            "rows=16384,n=256,k=8,dtype=f32,renormalize=true",
            "rows=64,n=128,k=8,dtype=bf16,renormalize=true",
        ] {
            check(&[&super::reference::Reference, &super::lanes::Lanes], text);
        }
    }

    #[test]
    fn long_rows_compile() {
        for text in ["rows=64,n=4096,k=64,dtype=bf16", "rows=64,n=4095,k=10,dtype=f32,renormalize=true"] {
            check(&[&super::reference::Reference, &super::parts::Parts], text);
        }
    }
}
