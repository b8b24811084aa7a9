//! What the twins of attention's gradients say without a GPU: who fits, spaces, the arithmetic of launches; and that
//! every kernel of every chain compiles for every chip it claims.

use warplap_core::op::Op;
use warplap_core::variant::Fit;
use warplap_cuda::Chip;

use super::TWINS;
use crate::attention_grad::{AttentionGrad, AttentionGradProblem, SLOTS};
use crate::cuda::compiling::{check_with_spills, chip, compiler};
use crate::cuda::plan::{Argument, Plan};

/// Bytes that kernels may spill: with a few words of a thread in memory tiles are still the fastest, and nobody waits for
/// the reference.
const SPILLS: u32 = 48;

fn problem(text: &str) -> AttentionGradProblem {
    AttentionGrad::parse(text).unwrap()
}

fn fitting(text: &str, chip: &Chip) -> Vec<&'static str> {
    let p = problem(text);
    TWINS.iter().filter(|t| matches!(t.fit(&p, chip), Fit::Fits(_))).map(|t| t.id()).collect()
}

/// Problems of every kind: long and short, wide and odd heads, masks, grouped heads.
const PROBLEMS: [&str; 24] = [
    "b=2,h=16,sq=4096,d=128,dtype=bf16",
    "b=2,h=16,sq=4096,d=128,dtype=f16,causal=true",
    "b=4,h=16,sq=2048,d=64,dtype=bf16",
    "b=4,h=16,sq=2048,d=64,dtype=f16,causal=true",
    "b=2,h=16,sq=2048,d=128,dtype=bf16,mask=add",
    "b=2,h=16,sq=2047,sk=1999,d=64,dtype=f16,mask=add",
    "b=2,h=8,hkv=2,sq=1000,d=80,dtype=bf16,layout=bshd",
    "h=8,sq=300,sk=500,d=96,dv=64,dtype=f16,causal=true",
    "h=2,sq=100,d=233,dtype=f16",
    "h=2,sq=100,d=101,dv=7,dtype=bf16,mask=add",
    "h=2,sq=64,d=192,dv=128,dtype=bf16,causal=true,scale=-0.2",
    "h=1,sq=1,d=1,dtype=bf16",
    "b=2,h=16,sq=2048,d=128,dtype=bf16,window=512,causal=true",
    "b=2,h=16,sq=2048,d=128,dtype=bf16,alibi=true,causal=true",
    "b=2,h=16,sq=2048,d=64,dtype=f16,softcap=30,window=77",
    "b=2,h=16,sq=2048,d=128,dtype=bf16,softcap=30,mask=add,over=heads",
    "h=2,sq=100,d=101,dtype=bf16,mask=add,over=each,alibi=true,softcap=2,window=9,causal=true",
    "b=2,h=16,sq=2048,d=128,dtype=bf16,dropout=0.1,causal=true",
    "b=2,h=16,sq=2048,d=64,dtype=f16,dropout=0.1,mask=bool,over=heads",
    "b=2,h=16,sq=2048,d=128,dtype=bf16,mask=tiles,tile=128,live=20,over=heads,hkv=4,alibi=true,causal=true",
    "b=2,h=16,sq=2000,d=64,dtype=f16,mask=tiles,tile=64,dropout=0.1",
    "b=16,h=16,sq=4096,d=128,dtype=bf16,tq=16384,causal=true,layout=bshd",
    "b=5,h=8,hkv=2,sq=197,sk=1000,d=64,dtype=f16,tq=300,tk=2000,causal=true,corner=bottom,window=99",
    "b=3,h=2,sq=65,d=233,dtype=bf16,tq=100,mask=add,dropout=0.1,alibi=true,softcap=9,corner=bottom",
];

#[test]
fn who_fits_says_so_by_chip_type_and_width() {
    let hopper = Chip::h200();
    assert_eq!(fitting("h=2,sq=99,d=128,dtype=f16", &hopper), ["reference", "grad_wgmma", "grad_mma"]);
    assert_eq!(fitting("h=2,sq=99,d=136,dtype=f16", &hopper), ["reference", "grad_mma"]);
    assert_eq!(fitting("h=2,sq=99,d=40,dtype=bf16", &hopper), ["reference", "grad_mma"]);
    assert_eq!(fitting("h=2,sq=99,d=128,dtype=f32", &hopper), ["reference"]);
    assert_eq!(fitting("h=2,sq=99,d=300,dtype=f16", &hopper), ["reference"]);
    assert_eq!(fitting("b=2,h=2,sq=99,d=128,dtype=f16,tq=150", &hopper), ["reference", "grad_mma"]);
    assert_eq!(fitting("h=2,sq=99,d=128,dtype=f16", &chip((8, 0))), ["reference", "grad_mma"]);
}

/// Every launch of a setting.
fn launches(text: &str, chip: &Chip, mut body: impl FnMut(&str, &Plan)) {
    let p = problem(text);
    for twin in TWINS.iter().filter(|t| matches!(t.fit(&p, chip), Fit::Fits(_))) {
        let configs = twin.space(&p, chip).configs();
        assert!(!configs.is_empty(), "{text}: {} has no setting", twin.id());
        for config in configs {
            let what = format!("{text}: {} {config}", twin.id());
            let plan = twin.plan(&p, &config, chip).unwrap_or_else(|why| panic!("{what}: {why}"));
            let beside = twin.beside(&p, &config, chip).unwrap_or_else(|why| panic!("{what}: {why}"));
            let need = plan.scratch();
            for one in beside.first.iter().chain([&plan]).chain(&beside.last) {
                for argument in &one.arguments {
                    match argument {
                        Argument::Pointer(slot) | Argument::Map(slot, _) => assert!(*slot < SLOTS, "{what}"),
                        Argument::Room(word) => assert!(*word < need.words, "{what}: a room beyond the scratch"),
                        _ => {}
                    }
                }
                assert!(one == &plan || one.scratch().words == 0, "{what}: scratch of its own");
                body(&what, one);
            }
        }
    }
}

#[test]
fn every_setting_has_launches_that_fit_the_chip() {
    for chip in [Chip::h200(), chip((8, 0)), chip((8, 9))] {
        for text in PROBLEMS {
            launches(text, &chip, |what, plan| {
                assert!(plan.arguments.len() <= 48 && plan.threads <= 1024, "{what}");
                assert!(plan.shared <= chip.shared_memory, "{what}");
            });
        }
    }
}

/// Compiles the kernels of all chains.
fn compile(capability: (u32, u32), texts: &[&str]) {
    let Some(compiler) = compiler() else { return };
    let chip = chip(capability);
    for text in texts {
        launches(text, &chip, |what, plan| check_with_spills(plan, &chip, &compiler, what, SPILLS));
    }
}

#[test]
fn long_problems_compile_for_hopper() {
    compile((9, 0), &PROBLEMS[..4]);
}

#[test]
fn masks_and_odd_heads_compile_for_hopper() {
    compile((9, 0), &PROBLEMS[4..]);
}

#[test]
fn everything_compiles_for_chips_before_hopper() {
    compile((8, 0), &[PROBLEMS[1], PROBLEMS[4], PROBLEMS[8], PROBLEMS[9], PROBLEMS[11], PROBLEMS[20]]);
}
