//! Block-sparse products on CUDA. The order of the list is the order of ties; the first is the reference.

mod blocked_ell;
mod checked;
mod cusparse_bsr;
mod densify;
mod launch;
mod mma;
mod order;
mod plan;
mod queue;
mod reference;
mod right;
mod simt_f32;
mod turned;
mod wgmma;
mod widened;

use std::sync::Arc;

use warplap_core::catalog::Catalog;
use warplap_cuda::Cuda;

pub use checked::IndexCheck;

use super::Bsr;
use launch::OverBlocks;

/// Who may race.
pub fn catalog() -> Catalog<Bsr, Cuda> {
    Catalog::new(Arc::new(OverBlocks(reference::Reference)))
        .with_oracle(Arc::new(right::Right))
        .with(Arc::new(OverBlocks(wgmma::Union)))
        .with(Arc::new(OverBlocks(wgmma::SwapAb)))
        .with(Arc::new(OverBlocks(wgmma::Fill)))
        .with(Arc::new(OverBlocks(wgmma::Pack)))
        .with(Arc::new(OverBlocks(wgmma::Thin)))
        .with(Arc::new(OverBlocks(mma::ThinMma)))
        .with(Arc::new(OverBlocks(mma::ThinRows)))
        .with(Arc::new(OverBlocks(mma::MmaRows)))
        .with(Arc::new(OverBlocks(simt_f32::SimtF32)))
        .with(Arc::new(OverBlocks(mma::MmaTf32)))
        .with(Arc::new(blocked_ell::BlockedEll))
        .with(Arc::new(densify::Densify))
        .with(Arc::new(cusparse_bsr::CusparseBsr))
}

#[cfg(test)]
mod tests {
    use warplap_core::op::Op;
    use warplap_core::variant::{Fit, Priority};
    use warplap_cuda::Chip;

    use super::plan::BsrKernelSpec;
    use crate::bsr::{Bsr, BsrProblem};
    use crate::cuda::compiling;

    const TWINS: [&dyn BsrKernelSpec; 10] = [
        &super::wgmma::Union,
        &super::wgmma::Pack,
        &super::wgmma::Fill,
        &super::simt_f32::SimtF32,
        &super::wgmma::SwapAb,
        &super::mma::MmaTf32,
        &super::mma::MmaRows,
        &super::mma::ThinRows,
        &super::mma::ThinMma,
        &super::wgmma::Thin,
    ];

    const PROBLEMS: [&str; 39] = [
        "bsr:m=4096,k=4096,n=4096,bs=64,density=0.125,dtype=f16",
        "bsr:m=4096,k=4096,n=4096,bs=128,density=0.5,dtype=bf16,b=col",
        "bsr:m=4096,k=4096,n=256,bs=64,density=0.125,dtype=f16",
        "bsr:m=320,k=448,n=264,bs=64,density=0.3,dtype=bf16",
        "bsr:m=4096,k=4096,n=4096,bs=16,density=0.125,dtype=f16",
        "bsr:m=4096,k=4096,n=4096,bs=32,density=0.05,dtype=bf16",
        "bsr:m=16384,k=16384,n=4096,bs=16,density=0.05,dtype=f16,b=col",
        "bsr:m=96,k=64,n=8,bs=32,density=0,dtype=f16",
        "bsr:m=4096,k=4096,n=4096,bs=64,density=0.125,dtype=f32",
        "bsr:m=4096,k=4096,n=4100,bs=16,density=0.125,dtype=f32",
        "bsr:m=4096,k=4096,n=4096,bs=64,density=0.125,dtype=bf16,alpha=2,beta=1,turned=true",
        "bsr:m=4096,k=4096,n=4096,bs=16,density=0.125,dtype=f16,beta=0.5",
        "bsr:m=4096,k=4096,n=4096,bs=32,density=0.125,dtype=f32,alpha=3",
        "bsr:m=4096,k=4096,n=4096,bs=64,density=0.125,dtype=f16,imbalance=8",
        "bsr:m=4096,k=4096,n=4096,bs=16,density=0.125,dtype=f32,tf32=true",
        "bsr:m=4096,k=4096,n=4096,bs=64,density=0.125,dtype=f16,c=col,beta=1",
        "bsr:m=4096,k=4096,n=4096,bs=16,density=0.5,dtype=bf16,b=col,c=col,beta=2",
        "bsr:m=4096,k=4096,n=4096,bs=32,bc=64,density=0.125,dtype=f16",
        "bsr:m=4096,k=4096,n=4096,bs=64,bc=16,density=0.125,dtype=f16,c=col,turned=true",
        "bsr:m=4096,k=4096,n=4096,bs=16,bc=32,density=0.125,dtype=f32",
        "bsr:m=4096,k=4096,n=4096,bs=64,density=0.125,dtype=f16,beta=1,inplace=true",
        "bsr:m=4096,k=4096,n=4096,bs=64,density=0.125,dtype=bf16,b=col,c=col,bias=true",
        "bsr:m=4096,k=4096,n=4096,bs=32,density=0.125,dtype=bf16,b=col,c=col,bias=true",
        "bsr:m=4096,k=4096,n=4096,bs=32,density=0.125,dtype=f32,bias=true",
        "bsr:m=4096,k=4096,n=1,bs=64,density=0.25,dtype=bf16,bias=true",
        "bsr:m=4096,k=4096,n=16,bs=32,density=0.125,dtype=f16,b=col,c=col",
        "bsr:m=4096,k=4096,n=7,bs=16,density=0.125,dtype=f32,beta=2",
        "bsr:m=4096,k=4096,n=64,bs=64,density=0.25,dtype=bf16,b=col,c=col,bias=true",
        "bsr:m=4096,k=4096,n=64,bs=64,density=0.05,dtype=bf16",
        "bsr:m=512,k=1024,n=24,bs=128,density=0.25,dtype=f16,beta=1",
        "bsr:m=8192,k=8192,n=64,bs=32,density=0.05,dtype=bf16",
        "bsr:m=4096,k=4096,n=16,bs=16,density=0.25,dtype=bf16",
        "bsr:m=4096,k=4096,n=11,bs=32,density=0.25,dtype=f16,beta=1",
        "bsr:m=4096,k=4096,n=4096,bs=128,density=0.125,dtype=f8e4m3",
        "bsr:m=4096,k=4096,n=4096,bs=64,density=0.125,dtype=f8e4m3,alpha=0.25",
        "bsr:m=4096,k=4096,n=256,bs=64,density=0.125,dtype=f8e4m3,c=col,beta=1,turned=true",
        "bsr:m=320,k=448,n=264,bs=64,density=0.3,dtype=f8e4m3,alpha=2,beta=1,inplace=true",
        "bsr:m=4096,k=4096,n=4096,bs=128,density=0.125,dtype=f8e4m3,imbalance=6,bias=true",
        "bsr:m=512,k=1024,n=24,bs=128,density=0.25,dtype=f8e4m3",
    ];

    fn problem(text: &str) -> BsrProblem {
        Bsr::parse(text).unwrap()
    }

    /// A winner answers for every size of its bucket that its kernel can do: at its settings, or at the nearest.
    #[test]
    fn settings_are_carried_over_to_every_size_of_a_bucket() {
        let chip = Chip::h200();
        let sizes = [33, 40, 56, 64, 72, 100, 128];
        for more in ["b=col,c=col", "b=col", "c=col", "bias=true"] {
            let of = |n: u64| problem(&format!("bsr:m=4096,k=4096,n={n},bs=64,density=0.125,dtype=bf16,{more}"));
            for twin in TWINS {
                let fitting = sizes.map(of).into_iter().filter(|p| matches!(twin.fit(p, &chip), Fit::Fits(_)));
                let fitting: Vec<BsrProblem> = fitting.collect();
                for (raced, asked) in fitting.iter().flat_map(|a| fitting.iter().map(move |b| (a, b))) {
                    let space = twin.space(asked, &chip);
                    for config in twin.space(raced, &chip).configs() {
                        let carried = space.nearest(&config).unwrap();
                        assert!(!space.contains(&config) || carried == config, "{}: {config}", twin.id());
                        twin.plan(asked, &carried, &chip).unwrap_or_else(|e| panic!("{}: {carried}: {e}", twin.id()));
                    }
                }
            }
        }
    }

    #[test]
    fn every_kernel_file_has_its_twin_in_the_list() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/bsr/cuda");
        let listed = super::catalog();
        let mut kernels = 0;
        let rooms = ["", "mma", "wgmma"].map(|room| std::fs::read_dir(folder.join(room)).unwrap());
        for file in rooms.into_iter().flatten().map(|e| e.unwrap().path()) {
            let Some(stem) = file.file_name().and_then(|n| n.to_str()).and_then(|n| n.strip_suffix(".cu")) else {
                continue;
            };
            assert!(listed.variants().iter().any(|v| v.id() == stem), "{stem}.cu has no variant");
            let text = std::fs::read_to_string(&file).unwrap();
            assert!(text.contains(&format!("{stem}(")), "{stem}.cu has no entry of its name");
            kernels += 1;
        }
        // All but the library that is called as it is.
        assert_eq!(kernels + 1, listed.variants().len());
    }

    #[test]
    fn every_space_is_small_and_every_config_of_it_fits_an_h200() {
        let chip = Chip::h200();
        for text in PROBLEMS {
            let p = problem(text);
            let mut planned = 0;
            for twin in TWINS.iter().filter(|t| matches!(t.fit(&p, &chip), Fit::Fits(_))) {
                let configs = twin.space(&p, &chip).configs();
                assert!((1..=24).contains(&configs.len()), "{text}: {} has {}", twin.id(), configs.len());
                for config in &configs {
                    let plan = twin.plan(&p, config, &chip);
                    let plan = plan.unwrap_or_else(|why| panic!("{text}: {} {config}: {why}", twin.id()));
                    assert!(plan.shared <= chip.shared_memory - 1024, "{text}: {} {config}", twin.id());
                    assert!(twin.together(&p, config).unwrap() <= 32, "{text}: {} {config}", twin.id());
                    planned += 1;
                }
            }
            assert!(planned > 0, "{text}");
        }
    }

    /// The pipelines with which the figures in `docs/results/bsr.md` were measured.
    #[test]
    fn the_deepest_pipeline_is_the_one_that_was_measured() {
        let chip = Chip::h200();
        let deep = |twin: &dyn BsrKernelSpec, text: &str, config: &str| {
            let config = warplap_core::space::Config::parse(config).unwrap();
            let plan = twin.plan(&problem(text), &config, &chip).unwrap();
            plan.source.defines.iter().find(|(name, _)| *name == "STAGES").unwrap().1
        };
        let union = |tile: &str| deep(TWINS[0], PROBLEMS[0], &format!("{tile},CN=1,ORDER=0,GROUPED=1,DYNAMIC=0"));
        let tiles = ["CONS=2,BN=256,CTAS=1", "CONS=4,BN=128,CTAS=1", "CONS=1,BN=128,CTAS=2", "CONS=2,BN=128,CTAS=1"];
        assert_eq!(tiles.map(union), [4, 4, 4, 6]);
        assert_eq!(["CONS=1,BN=128,CTAS=1", "CONS=1,BN=64,CTAS=2"].map(union), [8, 6]);
        assert_eq!(deep(TWINS[1], PROBLEMS[5], "BN=256,CM=1,ORDER=0,GROUPED=1"), 4);
        assert_eq!(deep(TWINS[2], PROBLEMS[4], "BM=128,BN=256,SC=4,GROUPED=1,DEAL=0"), 4);
        assert_eq!(deep(TWINS[2], PROBLEMS[4], "BM=64,BN=128,SC=4,GROUPED=1,DEAL=0"), 4);
        assert_eq!(deep(TWINS[4], PROBLEMS[4], "BN=256,SC=4,GROUPED=1,DEAL=0"), 3);
        assert_eq!(deep(TWINS[4], PROBLEMS[5], "BN=256,SC=2,GROUPED=1,DEAL=0"), 3);
    }

    #[test]
    fn kernels_stand_aside_where_the_copy_engine_cannot_go() {
        let chip = Chip::h200();
        for text in [
            "bsr:m=64,k=64,n=67,bs=64,density=0.5,dtype=f16",
            "bsr:m=64,k=64,n=62,bs=16,density=0.5,dtype=f32",
            "bsr:m=64,k=64,n=64,bs=8,density=0.5,dtype=bf16",
        ] {
            assert!(TWINS.iter().all(|t| matches!(t.fit(&problem(text), &chip), Fit::Aside(_))), "{text}");
        }
        let bytes = |text: &str, chip: &Chip| {
            let fits = TWINS.iter().filter(|t| matches!(t.fit(&problem(text), chip), Fit::Fits(_)));
            fits.map(|t| t.id()).collect::<Vec<_>>()
        };
        let older = Chip { capability: (8, 0), ..chip.clone() };
        let text = "bsr:m=512,k=512,n=16,bs=64,density=0.5,dtype=f8e4m3";
        assert_eq!((bytes(text, &chip), bytes(text, &older)), (vec!["wgmma_union"], vec![]));
        assert!(bytes("bsr:m=512,k=512,n=16,bs=32,density=0.5,dtype=f8e4m3", &chip).is_empty());
        let fits = |t: &&&dyn BsrKernelSpec| matches!(t.fit(&problem(PROBLEMS[0]), &older), Fit::Fits(_));
        assert_eq!(TWINS.iter().filter(fits).map(|t| t.id()).collect::<Vec<_>>(), ["mma_rows"]);
    }

    #[test]
    fn first_and_last_configs_of_every_kernel_compile_without_spills() {
        let Some(compiler) = compiling::compiler() else { return };
        for (text, capability) in PROBLEMS.iter().flat_map(|text| [(8, 0), (9, 0)].map(|c| (*text, c))) {
            let (p, chip) = (problem(text), compiling::chip(capability));
            let others =
                [super::densify::text, super::turned::source, super::widened::source, super::blocked_ell::source];
            let mut sources = others.map(|source| source(&p)).to_vec();
            sources.extend([super::checked::source(), super::right::source(&p), super::reference::source(&p)]);
            sources.iter().for_each(|source| compiling::check_builds(source, &chip, &compiler, text));
            for twin in TWINS.iter().filter(|t| matches!(t.fit(&p, &chip), Fit::Fits(f) if f > Priority::Low)) {
                let space = twin.space(&p, &chip);
                let first = [space.default_config().unwrap()];
                let last = space.configs().last().cloned();
                for config in first.iter().chain(&last) {
                    let plan = twin.plan(&p, config, &chip).unwrap();
                    compiling::check(&plan, &chip, &compiler, &format!("{text}: {} {config}", twin.id()));
                }
            }
        }
    }
}
