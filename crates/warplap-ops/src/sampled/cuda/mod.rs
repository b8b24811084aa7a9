//! Sampled products on CUDA. The order of the list is the order of ties; the first is the reference.

mod mma_blocks;
mod plan;
mod reference;
mod right;
mod simt_tiles;
mod wgmma_strips;

use std::sync::Arc;

use warplap_core::catalog::Catalog;
use warplap_cuda::Cuda;

use super::{SLOTS, Sampled};
use crate::cuda::own::Own;

/// Who may race.
pub fn catalog() -> Catalog<Sampled, Cuda> {
    Catalog::new(Arc::new(Own::<_, _, SLOTS>::new(reference::Reference)))
        .with_oracle(Arc::new(right::Right))
        .with(Arc::new(Own::<_, _, SLOTS>::new(wgmma_strips::WgmmaStrips)))
        .with(Arc::new(Own::<_, _, SLOTS>::new(mma_blocks::MmaBlocks)))
        .with(Arc::new(Own::<_, _, SLOTS>::new(simt_tiles::SimtTiles)))
}

#[cfg(test)]
mod tests {
    use warplap_core::op::Op;
    use warplap_core::variant::Fit;
    use warplap_cuda::Chip;

    use crate::cuda::compiling;
    use crate::cuda::plan::CudaKernelSpec;
    use crate::sampled::{Sampled, SampledProblem};

    const TWINS: [&dyn CudaKernelSpec<SampledProblem>; 4] = [
        &super::reference::Reference,
        &super::mma_blocks::MmaBlocks,
        &super::simt_tiles::SimtTiles,
        &super::wgmma_strips::WgmmaStrips,
    ];

    #[test]
    fn every_kernel_compiles_for_what_it_fits_and_tensor_cores_take_what_they_can_read() {
        let chip = Chip::h200();
        let compiler = compiling::compiler();
        for (text, expected) in [
            ("m=4096,k=4096,n=4096,bs=64,density=0.125,dtype=f16", [true, true, true, true]),
            ("m=4096,k=4096,n=4096,bs=16,density=0.125,dtype=bf16,b=col,g=col", [true, true, true, true]),
            ("m=4096,k=4096,n=4097,bs=128,density=0.125,dtype=f16,b=col,g=col", [true, true, true, false]),
            ("m=4096,k=4096,n=4097,bs=32,density=0.125,dtype=f16", [true, false, true, false]),
            ("m=4800,k=4800,n=512,bs=24,density=0.125,dtype=f16", [true, false, true, false]),
            ("m=4096,k=4096,n=512,bs=64,density=0.125,dtype=f32", [true, false, true, false]),
        ] {
            let p = Sampled::parse(text).unwrap();
            let fits = TWINS.map(|t| matches!(t.fit(&p, &chip), Fit::Fits(_)));
            assert_eq!(fits, expected, "{text}");
            for twin in TWINS.iter().filter(|t| matches!(t.fit(&p, &chip), Fit::Fits(_))) {
                let config = twin.space(&p, &chip).default_config().unwrap();
                let plan = twin.plan(&p, &config, &chip).unwrap();
                if let Some(compiler) = &compiler {
                    compiling::check(&plan, &chip, compiler, &format!("{text}: {}", twin.id()));
                }
            }
        }
    }

    #[test]
    fn the_product_in_double_precision_compiles_for_sm_80_and_sm_90a() {
        for capability in [(8, 0), (9, 0)] {
            for text in
                ["m=64,k=64,n=64,bs=16,density=0.5,dtype=f32", "m=64,k=64,n=9,bs=8,density=1,dtype=f16,b=col,g=col"]
            {
                let p = Sampled::parse(text).unwrap();
                compiling::check_right(&super::right::source(&p), capability, text);
            }
        }
    }
}
