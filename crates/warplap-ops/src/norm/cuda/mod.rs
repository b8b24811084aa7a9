//! Normalisation on CUDA. The order of the list is the order of ties; the first is the reference.

mod plan;
mod reference;
mod right;
mod rows;

use std::sync::Arc;

use warplap_core::catalog::Catalog;
use warplap_cuda::Cuda;

use super::{Norm, SLOTS};
use crate::cuda::own::Own;

/// Who may race.
pub fn catalog() -> Catalog<Norm, Cuda> {
    Catalog::new(Arc::new(Own::<_, _, SLOTS>::new(reference::Reference)))
        .with_oracle(Arc::new(right::Right))
        .with(Arc::new(Own::<_, _, SLOTS>::new(rows::Rows)))
}

#[cfg(test)]
mod tests {
    use warplap_core::op::Op;
    use warplap_core::variant::Fit;

    use crate::cuda::compiling;
    use crate::cuda::plan::CudaKernelSpec;
    use crate::norm::{Norm, NormProblem};

    const TWINS: [&dyn CudaKernelSpec<NormProblem>; 2] = [&super::reference::Reference, &super::rows::Rows];

    /// Compiles the first and the last config of every kernel that fits.
    fn compile(capability: (u32, u32), text: &str) {
        let Some(compiler) = compiling::compiler() else { return };
        let (chip, p) = (compiling::chip(capability), Norm::parse(text).unwrap());
        for twin in TWINS {
            assert!(matches!(twin.fit(&p, &chip), Fit::Fits(_)), "{text}: {}", twin.id());
            let configs = twin.space(&p, &chip).configs();
            let ends = [configs.first(), configs.last().filter(|_| configs.len() > 1)];
            for config in ends.into_iter().flatten() {
                let plan = twin.plan(&p, config, &chip).unwrap();
                compiling::check(&plan, &chip, &compiler, &format!("{text}: {} {config}", twin.id()));
            }
        }
    }

    #[test]
    fn every_kernel_compiles_for_sm_80_and_sm_90a() {
        for capability in [(8, 0), (9, 0)] {
            for text in [
                "rows=8192,n=4096,dtype=bf16,residual=true",
                "rows=8192,n=4096,dtype=f16,kind=layer,residual=true,bias=true",
                "rows=64,n=768,dtype=f32,kind=layer,bias=true",
                "rows=5,n=77,dtype=bf16,weight=false",
                "rows=8192,n=4096,dtype=bf16,kind=layer,residual=true,bias=true,before=true,dropout=0.1",
                "rows=5,n=77,dtype=f16,dropout=0.5",
                "rows=8192,n=2046,dtype=f32,kind=layer,before=true,dropout=0.1,sum=false",
            ] {
                compile(capability, text);
                let p = Norm::parse(text).unwrap();
                compiling::check_widths(&|width| super::right::source(&p, width), capability, text);
            }
        }
    }

    #[test]
    fn codes_compile_for_sm_80_and_sm_90a() {
        for capability in [(8, 0), (9, 0)] {
            for text in [
                "rows=8192,n=4096,dtype=bf16,residual=true,quant=f8e4m3",
                "rows=8192,n=4096,dtype=bf16,kind=layer,bias=true,quant=i8",
                "rows=5,n=77,dtype=f16,quant=i8",
                "rows=64,n=40002,dtype=f32,kind=layer,quant=f8e4m3",
                "rows=64,n=131072,dtype=bf16,before=true,dropout=0.1,quant=i8",
            ] {
                compile(capability, text);
                let p = Norm::parse(text).unwrap();
                compiling::check_widths(&|width| super::right::source(&p, width), capability, text);
            }
        }
    }

    #[test]
    fn rows_of_every_length_compile() {
        for text in [
            "rows=3,n=1,dtype=f32,kind=layer",
            "rows=100000,n=20,dtype=f16",
            "rows=64,n=8192,dtype=f32,residual=true",
            "rows=64,n=16384,dtype=bf16,kind=layer,residual=true,bias=true",
            "rows=64,n=32768,dtype=f32,kind=layer,bias=true",
            "rows=64,n=40001,dtype=f16,residual=true",
            "rows=64,n=131072,dtype=bf16,kind=layer,residual=true",
        ] {
            compile((9, 0), text);
        }
    }
}
