//! Dense products on CUDA. The order of the list is the order of ties; the first is the reference.

mod cublaslt;
mod gemv;
mod mma_sync;
mod normed;
mod paired;
mod plan;
mod reference;
mod right;
mod simt;
mod wgmma;

use std::sync::Arc;

use warplap_core::catalog::Catalog;
use warplap_cuda::Cuda;

use super::{Gemm, GemmProblem, SLOTS};

use crate::cuda::own::Own;
use crate::cuda::plan::CudaKernelSpec;
use normed::Normed;
use paired::Paired;

/// The own kernels, in the order of ties.
const TWINS: [&dyn CudaKernelSpec<GemmProblem>; 10] = [
    &Normed(reference::Reference),
    &Normed(wgmma::Coop),
    &Normed(wgmma::Pingpong),
    &Normed(wgmma::Splitk),
    &wgmma::Swapab,
    &Normed(Paired(gemv::Gemv)),
    &Normed(mma_sync::MmaSync),
    &Normed(Paired(simt::Simt)),
    &Normed(wgmma::Streamk),
    &Normed(Paired(wgmma::WgmmaTf32)),
];

/// Who may race: the reference, the library, then the other kernels.
pub fn catalog() -> Catalog<Gemm, Cuda> {
    let own = |twin| Arc::new(Own::<Gemm, &dyn CudaKernelSpec<GemmProblem>, SLOTS>::new(twin));
    let [reference, others @ ..] = TWINS;
    let first = Catalog::new(own(reference)).with(Arc::new(cublaslt::Cublaslt));
    others.into_iter().fold(first.with_oracle(Arc::new(right::Right)), |catalog, twin| catalog.with(own(twin)))
}

#[cfg(test)]
mod compile_tests;

#[cfg(test)]
mod tests {
    use warplap_core::dtype::DType;
    use warplap_core::op::Op;
    use warplap_core::variant::Fit;
    use warplap_cuda::Chip;

    use super::TWINS;
    use crate::cuda::plan::{self, Argument, CudaKernelSpec, Grid, Plan};
    use crate::gemm::{Activation, Gemm, GemmProblem, Join, slot};

    fn problem(text: &str) -> GemmProblem {
        Gemm::parse(text).unwrap()
    }

    #[test]
    fn every_kernel_file_has_its_twin_in_the_list() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/gemm/cuda");
        let mut kernels = 0;
        let rooms = ["", "wgmma"].map(|room| std::fs::read_dir(folder.join(room)).unwrap());
        for file in rooms.into_iter().flatten().map(|e| e.unwrap().path()) {
            let Some(stem) = file.file_name().and_then(|n| n.to_str()).and_then(|n| n.strip_suffix(".cu")) else {
                continue;
            };
            assert!(TWINS.iter().any(|t| t.id() == stem), "{stem}.cu has no twin");
            let text = |ending: &str| std::fs::read_to_string(file.with_extension(ending)).unwrap();
            assert!(text("cu").contains(&format!("{stem}(")), "{stem}.cu has no entry of its name");
            assert!(text("rs").starts_with("//!"), "{stem}.rs does not open with its header");
            kernels += 1;
        }
        assert_eq!(kernels, TWINS.len());
        // And the library.
        assert_eq!(super::catalog().variants().len(), TWINS.len() + 1);
    }

    #[test]
    fn every_space_is_small_and_every_config_of_it_fits_an_h200() {
        let chip = Chip::h200();
        for text in [
            "gemm:m=4096,n=4096,k=4096,dtype=bf16",
            "gemm:m=4096,n=4096,k=4096,dtype=f16,a=col,b=col",
            "gemm:m=1024,n=1024,k=1024,dtype=f16",
            "gemm:m=128,n=4096,k=4096,dtype=bf16,b=col",
            "gemm:m=16,n=4096,k=4096,dtype=bf16",
            "gemm:m=1,n=11008,k=4096,dtype=f16,b=col",
            "gemm:m=33,n=17,k=5,dtype=f32,lda=9",
            "gemm:m=777,n=333,k=555,dtype=f16",
            "gemm:m=64,n=11008,k=4096,dtype=f16",
            "gemm:m=8,n=14336,k=4096,dtype=f16",
            "gemm:m=4096,n=4096,k=4096,dtype=f32,tf32=true,a=col",
            "gemm:m=4096,n=4096,k=4096,dtype=f32,tf32=true",
            "gemm:m=2560,n=2560,k=2560,dtype=f16",
            "gemm:m=128,n=128,k=64,dtype=bf16,batch=64",
            "gemm:m=1024,n=1024,k=1024,dtype=f16,bias=true,act=gelu",
            "gemm:m=4096,n=11008,k=4096,dtype=bf16,b=col,act=silu,pair=true",
            "gemm:m=256,n=11008,k=4096,dtype=bf16,b=col,act=silu,pair=true",
            "gemm:m=16,n=11008,k=4096,dtype=bf16,b=col,act=silu,pair=true",
            "gemm:m=2048,n=4096,k=512,dtype=f16,a=col,pair=true",
            "gemm:m=200,n=1024,k=512,dtype=f16,pair=true",
            "gemm:m=777,n=333,k=555,dtype=bf16,pair=true",
            "gemm:m=64,n=64,k=64,dtype=f32,pair=true",
        ] {
            let p = problem(text);
            let mut planned = 0;
            for twin in TWINS.iter().filter(|t| matches!(t.fit(&p, &chip), Fit::Fits(_))) {
                let space = twin.space(&p, &chip);
                let configs = space.configs();
                assert!((1..=40).contains(&configs.len()), "{text}: {} has {}", twin.id(), configs.len());
                for config in &configs {
                    let plan = twin.plan(&p, config, &chip);
                    let plan = plan.unwrap_or_else(|why| panic!("{text}: {} {config}: {why}", twin.id()));
                    assert!(plan.shared <= chip.shared_memory - 512, "{text}: {} {config}", twin.id());
                    planned += 1;
                }
                assert!(twin.plan(&p, &space.default_config().unwrap(), &chip).is_ok(), "{text}: {}", twin.id());
            }
            assert!(planned > 0, "{text}");
        }
    }

    /// A plain product is compiled as it always was; with an epilogue the bias is the entry's last parameter.
    #[test]
    fn every_kernel_takes_the_epilogue_of_its_problem() {
        let chip = Chip::h200();
        for text in ["gemm:m=2,n=512,k=512,dtype=f16", "gemm:m=512,n=512,k=512,dtype=f32,tf32=true,b=col"] {
            let plain = problem(text);
            for twin in TWINS.iter().filter(|t| matches!(t.fit(&plain, &chip), Fit::Fits(_))) {
                let config = twin.space(&plain, &chip).default_config().unwrap();
                let planned = |p: &GemmProblem| twin.plan(p, &config, &chip).unwrap();
                let of = |plan: &Plan, name| plan.source.defines.iter().find(|d| d.0 == name).map(|d| d.1);
                let bare = planned(&plain);
                assert_eq!((of(&bare, "BIAS"), of(&bare, "ACT")), (None, None), "{text}: {}", twin.id());
                let full = planned(&plain.with_epilogue(true, Activation::Silu));
                assert_eq!((of(&full, "BIAS"), of(&full, "ACT")), (Some(1), Some(4)), "{text}: {}", twin.id());
                assert_eq!(full.arguments[..bare.arguments.len()], bare.arguments, "{text}: {}", twin.id());
                assert_eq!(full.arguments[bare.arguments.len()..], [Argument::Pointer(slot::BIAS)], "{}", twin.id());
                let joined = planned(&plain.with_epilogue(true, Activation::None).with_join(Join::Mul));
                let last = &joined.arguments[bare.arguments.len()..];
                let pointers = [slot::BIAS, slot::JOINED].map(Argument::Pointer);
                assert_eq!(*last, [pointers[0], pointers[1], Argument::Long(plain.ldc)], "{text}: {}", twin.id());
                assert_eq!((of(&joined, "JOIN"), of(&full, "JOIN")), (Some(2), None), "{text}: {}", twin.id());
                let relu_plan = planned(&plain.with_epilogue(false, Activation::Relu));
                assert_eq!(
                    (relu_plan.arguments, of(&full, "BIAS")),
                    (bare.arguments, Some(1)),
                    "{text}: {}",
                    twin.id()
                );
            }
        }
    }

    /// A pair's kernels are compiled for one and get the second B last, as the first is given; all others say why not.
    #[test]
    fn a_pair_is_given_both_b_or_stood_aside_for() {
        let chip = Chip::h200();
        for text in [
            "gemm:m=16,n=512,k=512,dtype=f16,b=col,pair=true,act=silu",
            "gemm:m=512,n=4096,k=512,dtype=bf16,pair=true",
            "gemm:m=4096,n=4096,k=512,dtype=bf16,b=col,pair=true",
            "gemm:m=2,n=4096,k=512,dtype=bf16,b=col,pair=true",
            "gemm:m=512,n=512,k=512,dtype=f32,pair=true",
            "gemm:m=512,n=512,k=512,dtype=f32,tf32=true,b=col,pair=true,act=silu",
        ] {
            let (p, mut taken) = (problem(text), Vec::new());
            for twin in TWINS {
                if let Fit::Aside(why) = twin.fit(&p, &chip) {
                    let fits_one = matches!(twin.fit(&p.with_pair(false), &chip), Fit::Fits(_));
                    assert!(why.contains("pair") || !fits_one, "{text}: {}: {why}", twin.id());
                    continue;
                }
                taken.push(twin.id());
                for config in twin.space(&p, &chip).configs() {
                    let plan = twin.plan(&p, &config, &chip).unwrap();
                    if !plan.source.defines.contains(&("PAIR", 1)) {
                        // Two launches: A·B2 to C, then A·B times C.
                        let [one] = &twin.beside(&p, &config, &chip).unwrap().first[..] else { panic!("{text}") };
                        let has = |plan: &Plan, slot| plan.arguments.iter().any(|a| is_of(a, slot));
                        assert!(has(one, slot::B2) && has(one, slot::C) && !has(one, slot::B), "{text}: {config}");
                        assert!(has(&plan, slot::B) && !has(&plan, slot::JOINED), "{text}: {config}");
                        let of_c = plan.arguments.iter().filter(|a| is_of(a, slot::C)).count();
                        assert!(plan.source.defines.contains(&("JOIN", 2)) && of_c == 2, "{text}: {config}");
                        continue;
                    }
                    let like = |slot: usize| match plan.arguments.iter().find(|a| is_of(a, slot)) {
                        Some(Argument::Map(_, spec)) => Some(Argument::Map(0, *spec)),
                        Some(Argument::Pointer(_)) => Some(Argument::Pointer(0)),
                        _ => None,
                    };
                    assert!(is_of(plan.arguments.last().unwrap(), slot::B2), "{text}: {} {config}", twin.id());
                    assert_eq!(like(slot::B), like(slot::B2), "{text}: {} {config}", twin.id());
                }
            }
            let expected: &[&str] = match (p.dtype, p.m, p.tf32) {
                (DType::F32, _, true) => &["reference", "mma_sync", "simt", "wgmma_tf32"],
                (DType::F32, ..) => &["reference", "simt"],
                (_, 2, _) => &["reference", "wgmma_coop", "wgmma_pingpong", "wgmma_swapab", "gemv", "mma_sync"],
                (_, 16, _) => &["reference", "wgmma_coop", "wgmma_pingpong", "wgmma_swapab", "mma_sync"],
                _ => &["reference", "wgmma_coop", "wgmma_pingpong", "mma_sync"],
            };
            assert_eq!(taken, expected, "{text}");
        }
    }

    fn is_of(argument: &Argument, slot: usize) -> bool {
        matches!(argument, Argument::Map(of, _) | Argument::Pointer(of) if *of == slot)
    }

    /// What a block of a pair has: half as many columns of C, or a whole tile of 88 of them that is staged over the stages.
    #[test]
    fn blocks_of_a_pair_cover_c() {
        let (chip, p) = (Chip::h200(), problem("gemm:m=256,n=11008,k=4096,dtype=bf16,b=col,act=silu,pair=true"));
        let planned = |p: &GemmProblem, i: usize, config: &str| {
            let config = warplap_core::space::Config::parse(config).unwrap();
            TWINS[i].plan(p, &config, &chip).unwrap()
        };
        let one = planned(&p, 1, "BM=256,BN=176,CONS=2,SLOTS=2,CM=1,CN=1,GROUP=8");
        assert_eq!((one.grid, one.shared), (Grid::Blocks(126), 4 * (256 + 176) * 128 + 1024));
        let many = planned(&p, 1, "BM=128,BN=256,CONS=2,SLOTS=2,CM=2,CN=1,GROUP=8");
        assert_eq!(many.grid, Grid::Persistent { tiles: 86, cluster: 2 });
        let turns = planned(&p, 2, "BM=128,BN=128,CM=1,CN=1,GROUP=8");
        assert_eq!(turns.grid, Grid::Persistent { tiles: 2 * 172, cluster: 1 });
        let few = GemmProblem { m: 16, ..p };
        let few = planned(&few, 4, "BW=128,BK=64,SPLIT=1,CTAS=3");
        assert_eq!((few.grid, few.threads, few.shared), (Grid::Blocks(172), 160, 4 * (128 + 16) * 128 + 1024));
    }

    #[test]
    fn kernels_stand_aside_where_the_copy_engine_cannot_go() {
        let chip = Chip::h200();
        for text in [
            "gemm:m=64,n=64,k=64,dtype=f32",
            "gemm:m=64,n=64,k=65,dtype=f16",
            "gemm:m=64,n=63,k=64,dtype=bf16,ldb=64,ldc=64",
            "gemm:m=64,n=64,k=64,dtype=bf16,align=8",
        ] {
            let p = problem(text);
            for twin in &TWINS[1..4] {
                assert!(matches!(twin.fit(&p, &chip), Fit::Aside(_)), "{text}: {}", twin.id());
            }
            assert!(matches!(TWINS[0].fit(&p, &chip), Fit::Fits(_)));
            assert!(TWINS[6..].iter().any(|t| t.fit(&p, &chip) == Fit::HIGH), "{text}");
        }
        let older = Chip { capability: (8, 0), ..chip };
        let p = problem("gemm:m=64,n=64,k=64,dtype=f16");
        assert!(TWINS[1..6].iter().all(|t| matches!(t.fit(&p, &older), Fit::Aside(_))));
        assert_eq!(TWINS[6].fit(&p, &older), Fit::HIGH);
    }

    #[test]
    fn whether_a_launch_begins_early_is_an_axis_of_kernels_that_can() {
        let (chip, p) = (Chip::h200(), problem("gemm:m=1024,n=1024,k=1024,dtype=f16"));
        let early = |twin: &'static dyn CudaKernelSpec<GemmProblem>, chip: &Chip| {
            let configs = plan::space(twin, &p, chip).configs();
            let plans = configs.iter().map(|c| (c.int("EARLY"), plan::plan(twin, &p, c, chip).unwrap().0.overlap));
            let mut seen: Vec<_> = plans.collect();
            seen.sort();
            seen.dedup();
            seen
        };
        let both = [(Some(0), false), (Some(1), true)];
        assert!(early(TWINS[1], &chip) == both && early(TWINS[6], &chip) == both);
        // A reference never does, and a chip before Hopper cannot.
        let older = Chip { capability: (8, 0), ..chip.clone() };
        assert!(early(TWINS[0], &chip) == [(None, false)] && early(TWINS[6], &older) == [(None, false)]);
        let first = plan::space(TWINS[1], &p, &chip).default_config().unwrap();
        assert_eq!(first.int("EARLY"), Some(0), "a search begins with what programs need most often");
    }

    /// The shared memory of the record's winners, as the kernels were launched on an H200 when it was made.
    #[test]
    fn the_deepest_pipeline_is_the_one_the_record_found() {
        let (chip, p) = (Chip::h200(), problem("gemm:m=4096,n=4096,k=4096,dtype=bf16"));
        let deep = |twin: &dyn CudaKernelSpec<GemmProblem>, p: &GemmProblem, config: &str| {
            let config = warplap_core::space::Config::parse(config).unwrap();
            let plan = twin.plan(p, &config, &chip).unwrap();
            plan.source.defines.iter().find(|(name, _)| *name == "STAGES").unwrap().1
        };
        let coop = |tile: &str| deep(TWINS[1], &p, &format!("{tile},CM=2,CN=1,GROUP=8"));
        assert_eq!(coop("BM=128,BN=256,CONS=2,SLOTS=4"), 3);
        assert_eq!(coop("BM=128,BN=256,CONS=2,SLOTS=2"), 4);
        assert_eq!(coop("BM=128,BN=192,CONS=2,SLOTS=1"), 5);
        assert_eq!(deep(TWINS[2], &p, "BM=128,BN=128,CM=2,CN=1,GROUP=8"), 6);
        assert_eq!(deep(TWINS[3], &p, "BM=128,BN=128,BK=64,SPLIT=2,CM=1,CN=1"), 6);
        let p = problem("gemm:m=16,n=4096,k=4096,dtype=bf16");
        assert_eq!(deep(TWINS[4], &p, "BW=64,BK=128,SPLIT=2,CTAS=2"), 5);
        assert_eq!(deep(TWINS[4], &p, "BW=64,BK=64,SPLIT=2,CTAS=2"), 10);
    }
}
