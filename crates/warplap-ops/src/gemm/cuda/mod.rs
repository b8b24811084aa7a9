//! Dense products on CUDA. The order of the list is the order of ties; the first is the reference.

mod cublaslt;
mod gemv;
mod mma_sync;
mod plan;
mod reference;
mod right;
mod simt;
mod wgmma_coop;
mod wgmma_pingpong;
mod wgmma_splitk;
mod wgmma_streamk;
mod wgmma_swapab;
mod wgmma_tf32;

use std::sync::Arc;

use warplap_core::catalog::Catalog;
use warplap_cuda::Cuda;

use super::{Gemm, GemmProblem, SLOTS};

use crate::cuda::own::Own;
use crate::cuda::plan::Twin;

/// The own kernels, in the order of ties.
const TWINS: [&dyn Twin<GemmProblem>; 10] = [
    &reference::Reference,
    &wgmma_coop::Coop,
    &wgmma_pingpong::Pingpong,
    &wgmma_splitk::Splitk,
    &wgmma_swapab::Swapab,
    &gemv::Gemv,
    &mma_sync::MmaSync,
    &simt::Simt,
    &wgmma_streamk::Streamk,
    &wgmma_tf32::WgmmaTf32,
];

/// Who may race: the reference, the library, then the other kernels.
pub fn catalog() -> Catalog<Gemm, Cuda> {
    let own = |twin| Arc::new(Own::<Gemm, &dyn Twin<GemmProblem>, SLOTS>::new(twin));
    let [reference, others @ ..] = TWINS;
    let first = Catalog::new(own(reference)).with(Arc::new(cublaslt::Cublaslt));
    others.into_iter().fold(first.with_oracle(Arc::new(right::Right)), |catalog, twin| catalog.with(own(twin)))
}

#[cfg(test)]
mod compile_tests;

#[cfg(test)]
mod tests {
    use warplap_core::op::Op;
    use warplap_core::variant::Fit;
    use warplap_cuda::Chip;

    use super::TWINS;
    use crate::cuda::plan::{self, Argument, Plan, Twin};
    use crate::gemm::{Activation, Gemm, GemmProblem, Join, slot};

    fn problem(text: &str) -> GemmProblem {
        Gemm::parse(text).unwrap()
    }

    #[test]
    fn every_kernel_file_has_its_twin_in_the_list() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/gemm/cuda");
        let mut kernels = 0;
        for file in std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()) {
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
                let bent = planned(&plain.with_epilogue(false, Activation::Relu));
                assert_eq!((bent.arguments, of(&full, "BIAS")), (bare.arguments, Some(1)), "{text}: {}", twin.id());
            }
        }
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
        let early = |twin: &'static dyn Twin<GemmProblem>, chip: &Chip| {
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
        let deep = |twin: &dyn Twin<GemmProblem>, p: &GemmProblem, config: &str| {
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
