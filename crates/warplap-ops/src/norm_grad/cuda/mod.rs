//! A norm's gradients on CUDA. The order of the list is the order of ties; the first is the reference.

mod plan;
mod reference;
mod right;
mod rows;

use std::sync::Arc;

use warplap_core::catalog::Catalog;
use warplap_cuda::Cuda;

use super::{NormGrad, SLOTS};
use crate::cuda::own::Own;

/// Who may race.
pub fn catalog() -> Catalog<NormGrad, Cuda> {
    Catalog::new(Arc::new(Own::<_, _, SLOTS>::new(reference::Reference)))
        .with_oracle(Arc::new(right::Right))
        .with(Arc::new(Own::<_, _, SLOTS>::new(rows::Rows)))
}

#[cfg(test)]
mod tests {
    use warplap_core::op::Op;

    use crate::cuda::compiling;
    use crate::norm_grad::NormGrad;

    #[test]
    fn every_kernel_compiles_for_sm_80_and_sm_90a() {
        for capability in [(8, 0), (9, 0)] {
            for text in [
                "rows=8192,n=4096,dtype=bf16,total=true",
                "rows=8192,n=1024,dtype=f16,kind=layer,bias=true,dropout=0.1,total=true",
                "rows=64,n=768,dtype=f32,kind=layer,weight=false",
                "rows=5,n=77,dtype=bf16,bias=true",
            ] {
                let p = NormGrad::parse(text).unwrap();
                compiling::check_ends(&super::reference::Reference, &p, capability, text);
                compiling::check_ends(&super::rows::Rows, &p, capability, text);
                for entry in ["right", "right_columns"] {
                    compiling::check_right(&super::right::source(&p, entry), capability, text);
                }
            }
        }
    }

    #[test]
    fn rows_of_other_lengths_compile() {
        for text in ["rows=3,n=1", "rows=900,n=8192,dtype=f32,kind=layer,bias=true", "rows=900,n=8192,dtype=f16"] {
            compiling::check_ends(&super::rows::Rows, &NormGrad::parse(text).unwrap(), (9, 0), text);
        }
    }
}
