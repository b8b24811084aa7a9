//! Cross entropy on CUDA. The order of the list is the order of ties; the first is the reference.

mod plan;
mod reference;
mod right;
mod ring;
mod rows;

use std::sync::Arc;

use warplap_core::catalog::Catalog;
use warplap_cuda::Cuda;

use super::{CrossEntropy, SLOTS};
use crate::cuda::own::Own;

/// Who may race.
pub fn catalog() -> Catalog<CrossEntropy, Cuda> {
    Catalog::new(Arc::new(Own::<_, _, SLOTS>::new(reference::Reference)))
        .with_oracle(Arc::new(right::Right))
        .with(Arc::new(Own::<_, _, SLOTS>::new(rows::Rows)))
        .with(Arc::new(Own::<_, _, SLOTS>::new(ring::Ring)))
}

#[cfg(test)]
mod tests {
    use warplap_core::op::Op;

    use crate::cross_entropy::{CrossEntropy, CrossEntropyProblem};
    use crate::cuda::compiling;
    use crate::cuda::plan::CudaKernelSpec;

    #[test]
    fn every_kernel_compiles_for_sm_80_and_sm_90a() {
        for capability in [(8, 0), (9, 0)] {
            for text in [
                "rows=4096,n=128256,dtype=bf16",
                "rows=4096,n=32000,dtype=f16,grad=true,smoothing=0.1,zloss=0.001,labels=i32",
                "rows=64,n=768,dtype=f32,grad=true,reduction=sum",
                "rows=64,n=768,dtype=bf16,grad=true,kept=true",
                "rows=5,n=77,dtype=bf16,smoothing=0.1",
            ] {
                let p = CrossEntropy::parse(text).unwrap();
                let twins: [&dyn CudaKernelSpec<CrossEntropyProblem>; 2] =
                    [&super::reference::Reference, &super::rows::Rows];
                twins.into_iter().for_each(|twin| compiling::check_ends(twin, &p, capability, text));
                super::right::sources(&p).iter().for_each(|source| compiling::check_right(source, capability, text));
            }
        }
    }

    #[test]
    fn rows_of_every_length_compile() {
        for text in [
            "rows=3,n=1,dtype=f32,grad=true",
            "rows=100000,n=20,dtype=f16,grad=true",
            "rows=64,n=32768,dtype=f32,grad=true",
            "rows=64,n=128257,dtype=bf16,grad=true,smoothing=0.1",
            "rows=64,n=131072,dtype=f32,zloss=0.1",
        ] {
            compiling::check_ends(&super::rows::Rows, &CrossEntropy::parse(text).unwrap(), (9, 0), text);
        }
        for text in [
            "rows=4096,n=128256,dtype=bf16,grad=true",
            "rows=4096,n=128256,dtype=bf16,grad=true,kept=true",
            "rows=4096,n=50264,dtype=f16,grad=true,smoothing=0.1,zloss=0.001,labels=i32",
            "rows=64,n=32000,dtype=f32,grad=true,reduction=sum",
        ] {
            compiling::check_ends(&super::ring::Ring, &CrossEntropy::parse(text).unwrap(), (9, 0), text);
        }
    }
}
