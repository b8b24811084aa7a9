//! Products by groups on CUDA. The order of the list is the order of ties; the first is the reference.

mod mma_groups;
mod plan;
mod reference;
mod right;
mod wgmma_thin;
mod wgmma_tiles;
mod wgmma_turns;

use std::sync::Arc;

use warplap_core::catalog::Catalog;
use warplap_cuda::Cuda;

use super::{Grouped, SLOTS};
use crate::cuda::own::Own;

/// Who may race.
pub fn catalog() -> Catalog<Grouped, Cuda> {
    Catalog::new(Arc::new(Own::<_, _, SLOTS>::new(reference::Reference)))
        .with_oracle(Arc::new(right::Right))
        .with(Arc::new(Own::<_, _, SLOTS>::new(wgmma_tiles::Tiles)))
        .with(Arc::new(Own::<_, _, SLOTS>::new(wgmma_turns::Turns)))
        .with(Arc::new(Own::<_, _, SLOTS>::new(wgmma_thin::Thin)))
        .with(Arc::new(Own::<_, _, SLOTS>::new(mma_groups::MmaGroups)))
}

#[cfg(test)]
mod tests {
    use warplap_core::op::Op;
    use warplap_core::variant::Fit;
    use warplap_cuda::Chip;

    use super::plan::most_tiles;
    use crate::cuda::compiling;
    use crate::cuda::plan::CudaKernelSpec;
    use crate::grouped::{Grouped, GroupedProblem, Spread};

    const TWINS: [&dyn CudaKernelSpec<GroupedProblem>; 5] = [
        &super::reference::Reference,
        &super::wgmma_tiles::Tiles,
        &super::wgmma_turns::Turns,
        &super::wgmma_thin::Thin,
        &super::mma_groups::MmaGroups,
    ];

    const PROBLEMS: [&str; 7] = [
        "rows=32768,n=1536,k=2048,experts=128,dtype=bf16,w=col",
        "rows=4096,n=28672,k=4096,experts=8,dtype=f16,w=row",
        "rows=128,n=1536,k=2048,experts=128,dtype=bf16,w=row",
        "rows=1,n=4096,k=7168,experts=32,dtype=bf16,w=col",
        "rows=4096,n=256,k=256,experts=1024,dtype=f16,w=row",
        "rows=64,n=77,k=65,experts=3,dtype=f16,w=col",
        "rows=640,n=76,k=66,experts=3,dtype=bf16,w=row",
    ];

    #[test]
    fn every_kernel_compiles_for_sm_80_and_sm_90a() {
        for capability in [(8, 0), (9, 0)] {
            let chip = compiling::chip(capability);
            for text in PROBLEMS.into_iter().chain(["rows=64,n=77,k=65,experts=3,dtype=f32,w=row"]) {
                let p = Grouped::parse(text).unwrap();
                for twin in TWINS.into_iter().filter(|twin| matches!(twin.fit(&p, &chip), Fit::Fits(_))) {
                    compiling::check_ends(twin, &p, capability, text);
                }
                compiling::check_right(&super::right::source(&p), capability, text);
            }
        }
    }

    #[test]
    fn every_tile_and_way_of_sharing_compiles() {
        let chip = compiling::chip((9, 0));
        let Some(compiler) = compiling::compiler() else { return };
        for (text, twin) in
            [(0, 1), (1, 1), (0, 2), (1, 2), (2, 3), (3, 3)].map(|(p, t): (usize, usize)| (PROBLEMS[p], TWINS[t]))
        {
            let p = Grouped::parse(text).unwrap();
            let configs = twin.space(&p, &chip).configs();
            for config in configs.iter().step_by(if compiling::is_long() { 1 } else { 4 }) {
                let plan = twin.plan(&p, config, &chip).unwrap_or_else(|why| panic!("{text}: {config}: {why}"));
                compiling::check(&plan, &chip, &compiler, &format!("{text}: {config}"));
            }
        }
    }

    #[test]
    fn every_space_is_small_and_every_config_of_it_fits_an_h200() {
        let chip = Chip::h200();
        for text in PROBLEMS {
            let (p, mut planned) = (Grouped::parse(text).unwrap(), 0);
            for twin in TWINS.into_iter().filter(|twin| matches!(twin.fit(&p, &chip), Fit::Fits(_))) {
                let configs = twin.space(&p, &chip).configs();
                assert!((1..=48).contains(&configs.len()), "{text}: {} has {}", twin.id(), configs.len());
                for config in &configs {
                    let plan = twin.plan(&p, config, &chip).unwrap_or_else(|why| panic!("{text}: {config}: {why}"));
                    assert!(plan.shared <= chip.shared_memory - 512, "{text}: {} {config}", twin.id());
                    planned += 1;
                }
            }
            assert!(planned > 1, "{text}");
        }
    }

    #[test]
    fn no_deal_has_more_tiles_than_there_are_blocks_for() {
        for (rows, experts) in [(1, 1), (1, 8), (16, 32), (333, 7), (4096, 128), (1000, 1024)] {
            for spread in Spread::ALL {
                let p = GroupedProblem {
                    spread,
                    ..Grouped::parse(&format!("rows={rows},n=8,k=8,experts={experts}")).unwrap()
                };
                for tall in [8, 64, 128] {
                    let tiles: u64 = p.counts().iter().map(|count| count.div_ceil(tall)).sum();
                    assert!(tiles <= most_tiles(&p, tall), "{rows} {experts} {spread} {tall}");
                }
            }
        }
    }
}
