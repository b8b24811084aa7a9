//! Activations on CUDA. The order of the list is the order of ties; the first is the reference.

mod plan;
mod reference;
mod right;
mod vectors;

use std::sync::Arc;

use warplap_core::catalog::Catalog;
use warplap_cuda::Cuda;

use super::{Gated, SLOTS};
use crate::cuda::own::Own;

/// Who may race.
pub fn catalog() -> Catalog<Gated, Cuda> {
    Catalog::new(Arc::new(Own::<_, _, SLOTS>::new(reference::Reference)))
        .with_oracle(Arc::new(right::Right))
        .with(Arc::new(Own::<_, _, SLOTS>::new(vectors::Vectors)))
}

#[cfg(test)]
mod tests {
    use warplap_core::op::Op;

    use crate::cuda::compiling;
    use crate::cuda::plan::CudaKernelSpec;
    use crate::gated::{Gated, GatedProblem};
    use crate::gemm::Activation;

    #[test]
    fn every_kernel_compiles_for_sm_80_and_sm_90a() {
        for capability in [(8, 0), (9, 0)] {
            let acts = Activation::ALL.map(|act| format!("rows=64,n=768,dtype=f32,act={act},join=add"));
            for text in acts.iter().map(String::as_str).chain([
                "rows=4096,n=14336,dtype=bf16,act=silu,lda=28672,ldb=28672",
                "rows=4096,n=10240,dtype=f16,act=gelu",
                "rows=5,n=77,dtype=bf16,act=gelu_tanh,join=none,lda=80",
                "rows=5,n=36,dtype=f16,act=sigmoid,ldb=100",
            ]) {
                let p = Gated::parse(text).unwrap();
                let twins: [&dyn CudaKernelSpec<GatedProblem>; 2] =
                    [&super::reference::Reference, &super::vectors::Vectors];
                twins.into_iter().for_each(|twin| compiling::check_ends(twin, &p, capability, text));
                compiling::check_widths(&|width| super::right::source(&p, width), capability, text);
            }
        }
    }
}
