//! Rotary position embedding on CUDA. The order of the list is the order of ties; the first is the reference.

mod pairs;
mod plan;
mod reference;
mod right;

use std::sync::Arc;

use warplap_core::catalog::Catalog;
use warplap_cuda::Cuda;

use super::{Rope, SLOTS};
use crate::cuda::own::Own;

/// Who may race.
pub fn catalog() -> Catalog<Rope, Cuda> {
    Catalog::new(Arc::new(Own::<_, _, SLOTS>::new(reference::Reference)))
        .with_oracle(Arc::new(right::Right))
        .with(Arc::new(Own::<_, _, SLOTS>::new(pairs::InRegisters)))
}

#[cfg(test)]
mod tests {
    use warplap_core::op::Op;

    use crate::cuda::compiling;
    use crate::cuda::plan::CudaKernelSpec;
    use crate::rope::{Rope, RopeProblem};

    #[test]
    fn every_kernel_compiles_for_sm_80_and_sm_90a() {
        for capability in [(8, 0), (9, 0)] {
            for text in [
                "rows=4096,h=32,hk=8,d=128,dtype=bf16",
                "rows=4096,h=48,d=128,dtype=bf16,plain=8,bias=true,inplace=true,table=f32,positions=i64",
                "rows=5,h=3,hk=1,d=80,rot=32,dtype=f16,wide=true,positions=i32,back=true",
                "rows=64,h=12,d=64,dtype=f32,pairs=interleaved,bias=true,plain=3",
                "rows=64,h=12,d=64,rot=48,dtype=f16,pairs=interleaved,inplace=true,ld=1000,wide=true,back=true",
                "rows=64,h=1,d=7,rot=6,dtype=f16",
                "rows=64,h=3,d=6,rot=2,dtype=f32,pairs=interleaved,table=f32,ldt=3",
            ] {
                let p = Rope::parse(text).unwrap();
                let twins: [&dyn CudaKernelSpec<RopeProblem>; 2] =
                    [&super::reference::Reference, &super::pairs::InRegisters];
                twins.into_iter().for_each(|twin| compiling::check_ends(twin, &p, capability, text));
                compiling::check_widths(&|width| super::right::source(&p, width), capability, text);
            }
        }
    }
}
