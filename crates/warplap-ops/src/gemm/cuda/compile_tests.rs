//! Every kernel compiles for every chip it claims, without a GPU: sampled configs, with and without batches and
//! epilogues.

use warplap_core::op::Op;
use warplap_core::variant::{Fit, Priority};

use super::TWINS;
use crate::cuda::compiling::{check, check_widths, chip, chips, compiler};
use crate::gemm::{Gemm, GemmProblem};

fn problem(text: &str) -> GemmProblem {
    Gemm::parse(&format!("gemm:{text}")).unwrap()
}

/// Compiles the first and the last config (the first alone where `few`) of every kernel that would be raced for a
/// problem; gives how many there were.
fn compile(capability: (u32, u32), text: &str, few: bool) -> Vec<&'static str> {
    let Some(compiler) = compiler() else { return Vec::new() };
    let (chip, p) = (chip(capability), problem(text));
    let raced = |fit| matches!(fit, Fit::Fits(priority) if priority > Priority::Low);
    let mut compiled = Vec::new();
    for twin in TWINS.iter().filter(|t| raced(t.fit(&p, &chip)) || t.id() == "reference") {
        let mut configs = twin.space(&p, &chip).configs();
        if configs.len() > 1 {
            configs = if few {
                vec![configs.swap_remove(0)]
            } else {
                vec![configs[0].clone(), configs.swap_remove(configs.len() - 1)]
            };
        }
        for config in configs {
            let what = format!("{text}: {} {config}", twin.id());
            let plan = twin.plan(&p, &config, &chip).unwrap_or_else(|why| panic!("{what}: {why}"));
            check(&plan, &chip, &compiler, &what);
            if p.rms.is_some() {
                let beside = twin.beside(&p, &config, &chip).unwrap_or_else(|why| panic!("{what}: {why}"));
                beside.first.iter().for_each(|plan| check(plan, &chip, &compiler, &format!("{what}, in front")));
            }
            compiled.push(twin.id());
        }
    }
    compiled
}

#[test]
fn hopper_large_and_middling_products_compile() {
    let compiled = [
        compile((9, 0), "m=4096,n=4096,k=4096,dtype=bf16", false),
        compile((9, 0), "m=1024,n=1024,k=1024,dtype=f16,a=col,b=col", false),
    ]
    .concat();
    let kernels = ["wgmma_coop", "wgmma_pingpong", "wgmma_splitk"];
    assert!(compiled.is_empty() || kernels.iter().all(|k| compiled.contains(k)), "{compiled:?}");
}

#[test]
fn hopper_skinny_unaligned_and_f32_products_compile() {
    let compiled = [
        compile((9, 0), "m=16,n=4096,k=4096,dtype=bf16,b=col", false),
        compile((9, 0), "m=2,n=4096,k=4096,dtype=f16", false),
        compile((9, 0), "m=777,n=333,k=555,dtype=f16", true),
        compile((9, 0), "m=4096,n=4096,k=4096,dtype=f32", true),
    ]
    .concat();
    let kernels = ["wgmma_swapab", "gemv", "mma_sync", "simt"];
    assert!(compiled.is_empty() || kernels.iter().all(|k| compiled.contains(k)), "{compiled:?}");
}

/// Compiles the first and the last config of one kernel for a problem.
fn compile_one(id: &str, text: &str) {
    let Some(compiler) = compiler() else { return };
    let (chip, p) = (chip((9, 0)), problem(text));
    let twin = TWINS.iter().find(|t| t.id() == id).unwrap_or_else(|| panic!("no {id}"));
    assert!(matches!(twin.fit(&p, &chip), Fit::Fits(_)), "{id} stands aside for {text}");
    let configs = twin.space(&p, &chip).configs();
    for config in [&configs[0], &configs[configs.len() - 1]] {
        let plan = twin.plan(&p, config, &chip).unwrap_or_else(|why| panic!("{text}: {config}: {why}"));
        check(&plan, &chip, &compiler, &format!("{text}: {id} {config}"));
    }
}

#[test]
fn shares_of_k_compile() {
    compile_one("wgmma_streamk", "m=2560,n=2560,k=2560,dtype=f16");
    compile_one("wgmma_streamk", "m=320,n=512,k=2560,dtype=bf16,a=col,b=col,batch=3,bias=true,act=gelu_tanh");
}

#[test]
fn tf32_from_registers_compiles_in_every_layout_it_takes() {
    for rest in ["", ",b=col,bias=true,act=silu", ",a=col,b=col,batch=2"] {
        compile_one("wgmma_tf32", &format!("m=4096,n=4096,k=4096,dtype=f32,tf32=true{rest}"));
    }
}

#[test]
fn hopper_batches_and_epilogues_compile() {
    compile((9, 0), "m=512,n=512,k=512,dtype=bf16,batch=32", true);
    compile((9, 0), "m=8,n=512,k=512,dtype=f16,batch=32", true);
    compile((9, 0), "m=2048,n=2048,k=2048,dtype=bf16,bias=true,act=gelu_tanh", true);
    compile((9, 0), "m=64,n=1024,k=1024,dtype=f16,b=col,act=silu", true);
}

#[test]
fn every_kernel_compiles_with_every_epilogue() {
    let shapes = [
        ((9, 0), "m=2048,n=2048,k=1024,dtype=bf16,b=col"),
        ((9, 0), "m=2,n=1024,k=1024,dtype=f16,b=col"),
        ((8, 0), "m=777,n=333,k=555,dtype=f16"),
        ((8, 0), "m=512,n=512,k=512,dtype=f32"),
    ];
    let epilogues = [
        "bias=true",
        "bias=true,act=relu",
        "act=gelu",
        "bias=true,act=gelu",
        "bias=true,act=silu",
        "bias=true,act=tanh",
        "act=sigmoid,join=mul",
        "join=add",
        "bias=true,act=silu,join=mul",
    ];
    for ((capability, shape), epilogue) in shapes.into_iter().flat_map(|s| epilogues.map(|e| (s, e))) {
        compile(capability, &format!("{shape},{epilogue}"), true);
    }
}

#[test]
fn pairs_compile() {
    let compiled = [
        compile((9, 0), "m=4096,n=11008,k=4096,dtype=bf16,b=col,act=silu,pair=true", false),
        compile((9, 0), "m=256,n=11008,k=4096,dtype=bf16,b=col,act=gelu,pair=true", false),
        compile((9, 0), "m=16,n=11008,k=4096,dtype=bf16,b=col,act=silu,pair=true", false),
        compile((9, 0), "m=64,n=1024,k=512,dtype=f16,act=gelu,batch=3,pair=true", false),
        compile((9, 0), "m=2048,n=4096,k=512,dtype=f16,a=col,act=gelu_tanh,pair=true", false),
        compile((9, 0), "m=2048,n=4096,k=512,dtype=f16,b=col,act=sigmoid,pair=true", false),
        compile((9, 0), "m=16,n=4096,k=512,dtype=bf16,b=col,act=tanh,pair=true", false),
        compile((8, 0), "m=2048,n=4096,k=512,dtype=bf16,b=col,act=silu,pair=true", false),
        compile((8, 0), "m=77,n=131,k=35,dtype=f16,act=silu,pair=true", false),
        compile((8, 0), "m=200,n=328,k=72,dtype=f32,tf32=true,act=silu,pair=true", true),
    ]
    .concat();
    let kernels = ["wgmma_coop", "wgmma_pingpong", "wgmma_swapab", "mma_sync", "reference"];
    assert!(compiled.is_empty() || kernels.iter().all(|k| compiled.contains(k)), "{compiled:?}");
}

#[test]
fn norms_in_front_compile() {
    let compiled = [
        compile((9, 0), "m=4096,n=4096,k=4096,dtype=bf16,b=col,rms=1e-6", false),
        compile((9, 0), "m=256,n=4096,k=4096,dtype=f16,b=col,rms=1e-6", false),
        compile((9, 0), "m=16,n=4096,k=4096,dtype=bf16,b=col,rms=1e-6", false),
        compile((9, 0), "m=5,n=1024,k=512,dtype=bf16,b=col,rms=1e-6,join=add", true),
        compile((9, 0), "m=100,n=1024,k=512,dtype=f16,batch=2,rms=1e-6", true),
        compile((9, 0), "m=16,n=11008,k=4096,dtype=bf16,b=col,act=silu,pair=true,rms=1e-6", false),
        compile((9, 0), "m=4096,n=11008,k=4096,dtype=bf16,b=col,act=silu,pair=true,rms=1e-6", true),
        compile((8, 0), "m=77,n=131,k=35,dtype=f16,act=silu,pair=true,rms=1e-6", true),
        compile((8, 0), "m=200,n=328,k=72,dtype=f32,rms=1e-6,bias=true", true),
    ]
    .concat();
    let kernels = ["wgmma_coop", "wgmma_pingpong", "wgmma_splitk", "wgmma_swapab", "wgmma_streamk", "mma_sync", "simt"];
    assert!(compiled.is_empty() || kernels.iter().all(|k| compiled.contains(k)), "{compiled:?}");
}

#[test]
fn ampere_products_compile() {
    let compiled = [
        compile((8, 0), "m=4096,n=4096,k=4096,dtype=f16", false),
        compile((8, 0), "m=777,n=333,k=555,dtype=bf16,a=col", true),
        compile((8, 0), "m=4096,n=4096,k=4096,dtype=f32,tf32=true,b=col", true),
        compile((8, 0), "m=100,n=100,k=100,dtype=f32,batch=2", false),
    ]
    .concat();
    assert!(compiled.is_empty() || ["mma_sync", "simt"].iter().all(|k| compiled.contains(k)), "{compiled:?}");
}

#[test]
fn the_product_in_double_precision_compiles_everywhere() {
    for &capability in chips() {
        for text in [
            "m=64,n=64,k=64,dtype=bf16",
            "m=64,n=64,k=64,dtype=f16,a=col,b=col",
            "m=8,n=8,k=8,dtype=f32,b=col",
            "m=8,n=8,k=8,dtype=bf16,bias=true",
            "m=8,n=8,k=8,dtype=f32,bias=true,act=gelu",
            "m=8,n=8,k=8,dtype=f16,act=gelu_tanh",
            "m=8,n=8,k=8,dtype=f16,bias=true,act=silu",
            "m=8,n=8,k=8,dtype=f16,act=silu,join=mul",
            "m=8,n=8,k=8,dtype=f32,act=tanh",
            "m=8,n=8,k=8,dtype=bf16,bias=true,act=sigmoid",
            "m=8,n=8,k=8,dtype=f32,join=add",
            "m=8,n=8,k=8,dtype=bf16,b=col,act=silu,pair=true",
            "m=8,n=8,k=8,dtype=f32,pair=true",
            "m=8,n=8,k=8,dtype=bf16,scale=one,bias=true",
            "m=8,n=8,k=8,dtype=f16,rms=1e-5,act=silu,pair=true",
        ] {
            check_widths(&|width| super::right::source(&problem(text), width), capability, text);
        }
    }
}

#[test]
fn comparisons_and_ceilings_compile_everywhere() {
    let Some(compiler) = compiler() else { return };
    for &capability in chips() {
        for source in warplap_cuda::own_kernels(&chip(capability)) {
            let cubin = source.compile(&compiler, &chip(capability).arch());
            let fine = cubin.as_ref().is_ok_and(|c| c.report.refusal().is_none() && c.report.spill_bytes == 0);
            assert!(fine, "{:?} on {capability:?}: {:?}", source.defines, cubin.map(|c| c.report));
        }
    }
}

#[test]
fn ada_and_blackwell_products_compile() {
    for capability in [(8, 9), (10, 0), (12, 0)] {
        compile(capability, "m=4096,n=4096,k=4096,dtype=bf16", true);
        compile(capability, "m=512,n=512,k=512,dtype=f32", true);
    }
}
