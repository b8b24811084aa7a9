//! Softmax on CUDA. The order of the list is the order of ties; the first is the reference.

mod plan;
mod reference;
mod right;
mod rows;

use std::sync::Arc;

use warplap_core::catalog::Catalog;
use warplap_cuda::Cuda;

use super::{SLOTS, Softmax};
use crate::cuda::own::Own;

/// Who may race.
pub fn catalog() -> Catalog<Softmax, Cuda> {
    Catalog::new(Arc::new(Own::<_, _, SLOTS>::new(reference::Reference)))
        .with_oracle(Arc::new(right::Right))
        .with(Arc::new(Own::<_, _, SLOTS>::new(rows::Rows)))
}

#[cfg(test)]
mod tests {
    use warplap_core::op::Op;

    use crate::cuda::compiling;
    use crate::softmax::{Softmax, SoftmaxProblem};

    #[test]
    fn every_kernel_compiles_for_sm_80_and_sm_90a() {
        for capability in [(8, 0), (9, 0)] {
            for text in [
                "rows=4096,n=4096,dtype=bf16",
                "rows=4096,n=512,dtype=f16,scale=0.125,mask=512",
                "rows=64,n=768,dtype=f32,mask=2,each=32",
                "rows=5,n=77,dtype=bf16",
            ] {
                let p = Softmax::parse(text).unwrap();
                let twins: [&dyn crate::cuda::plan::CudaKernelSpec<SoftmaxProblem>; 2] =
                    [&super::reference::Reference, &super::rows::Rows];
                twins.into_iter().for_each(|twin| compiling::check_ends(twin, &p, capability, text));
                compiling::check_widths(&|width| super::right::source(&p, width), capability, text);
            }
        }
    }

    #[test]
    fn rows_of_every_length_compile() {
        for text in [
            "rows=3,n=1,dtype=f32",
            "rows=100000,n=20,dtype=f16,mask=1",
            "rows=64,n=8192,dtype=f32",
            "rows=64,n=32768,dtype=bf16,mask=64",
            "rows=64,n=40001,dtype=f16",
            "rows=64,n=131072,dtype=bf16,mask=1",
        ] {
            compiling::check_ends(&super::rows::Rows, &Softmax::parse(text).unwrap(), (9, 0), text);
        }
    }
}
