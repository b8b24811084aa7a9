//! What the twins say without a GPU: who fits, the arithmetic of launches; and that every kernel compiles for every chip
//! it claims.

use warplap_core::op::Op;
use warplap_core::variant::Fit;
use warplap_cuda::Chip;

use super::TWINS;
use crate::attention_mask_grad::{AttentionMaskGrad, AttentionMaskGradProblem, SLOTS};
use crate::cuda::compiling::{check_with_spills, chip, compiler};
use crate::cuda::plan::{Argument, Grid, Plan};

fn problem(text: &str) -> AttentionMaskGradProblem {
    AttentionMaskGrad::parse(&format!("{text},mask=add")).unwrap()
}

/// Problems of every kind: long and short, wide and odd heads, masks of all and of each, grouped heads.
const PROBLEMS: [&str; 10] = [
    "b=2,h=16,sq=2048,d=128,dtype=bf16,over=heads",
    "b=2,h=16,sq=2048,d=64,dtype=f16",
    "b=2,h=8,hkv=2,sq=1000,sk=999,d=80,dtype=bf16,layout=bshd,over=batches",
    "h=8,sq=300,sk=500,d=96,dv=64,dtype=f16,causal=true,over=each",
    "h=2,sq=100,d=233,dtype=f16,dropout=0.1",
    "h=2,sq=64,d=192,dv=256,dtype=bf16,causal=true,corner=bottom,scale=-0.2",
    "h=1,sq=1,d=1,dtype=bf16",
    "b=2,h=16,sq=2048,d=128,dtype=bf16,window=512,causal=true,alibi=true",
    "b=2,h=16,sq=2048,d=128,dtype=bf16,softcap=30,window=77",
    "b=3,h=2,sq=100,sk=77,d=101,dtype=bf16,over=each,alibi=true,softcap=2,window=9,causal=true,dropout=0.3",
];

fn launches(text: &str, chip: &Chip, mut body: impl FnMut(&str, &Plan)) {
    let p = problem(text);
    for twin in TWINS.iter().filter(|t| matches!(t.fit(&p, chip), Fit::Fits(_))) {
        let configs = twin.space(&p, chip).configs();
        assert!(!configs.is_empty(), "{text}: {} has no setting", twin.id());
        for config in configs {
            let what = format!("{text}: {} {config}", twin.id());
            let plan = twin.plan(&p, &config, chip).unwrap_or_else(|why| panic!("{what}: {why}"));
            let beside = twin.beside(&p, &config, chip).unwrap_or_else(|why| panic!("{what}: {why}"));
            beside.first.iter().chain([&plan]).chain(&beside.last).for_each(|one| body(&what, one));
        }
    }
}

#[test]
fn who_fits_says_so_by_chip_type_and_width() {
    let fitting = |text: &str, chip: &Chip| {
        let p = problem(text);
        let fits = TWINS.iter().filter(|t| matches!(t.fit(&p, chip), Fit::Fits(_)));
        fits.map(|t| t.id()).collect::<Vec<_>>()
    };
    assert_eq!(fitting("h=2,sq=99,d=256,dtype=f16", &Chip::h200()), ["reference", "mask_mma"]);
    assert_eq!(fitting("h=2,sq=99,d=40,dtype=bf16", &chip((8, 0))), ["reference", "mask_mma"]);
    assert_eq!(fitting("h=2,sq=99,d=40,dtype=bf16", &chip((7, 5))), ["reference"]);
    assert_eq!(fitting("h=2,sq=99,d=128,dtype=f32", &Chip::h200()), ["reference"]);
    assert_eq!(fitting("h=2,sq=99,d=257,dtype=f16", &Chip::h200()), ["reference"]);
}

#[test]
fn every_setting_has_launches_that_fit_the_chip() {
    for chip in [Chip::h200(), chip((8, 0)), chip((8, 9))] {
        for text in PROBLEMS {
            launches(text, &chip, |what, plan| {
                assert!(plan.arguments.len() <= 48 && plan.threads <= 1024, "{what}");
                assert!(plan.shared <= chip.shared_memory, "{what}");
                let beyond = |a: &Argument| matches!(a, Argument::Pointer(slot) if *slot >= SLOTS);
                assert!(!plan.arguments.iter().any(beyond), "{what}: a slot that nobody has");
            });
        }
    }
}

#[test]
fn every_tile_of_every_mask_has_a_block() {
    let blocks = |text: &str, warps: usize| {
        let mut grids = Vec::new();
        launches(text, &Chip::h200(), |_, plan| {
            let is = |name: &str, value: i64| plan.source.defines.contains(&(name, value));
            if is("WARPS", warps as i64) && is("TALL", 1) && is("OTHER", 64) && is("STAGES", 2) {
                grids.push(plan.grid);
            }
        });
        grids
    };
    assert_eq!(blocks("b=2,h=3,sq=65,sk=129,d=64,dtype=f16", 4), [Grid::Blocks(2 * 3)]);
    assert_eq!(blocks("b=2,h=3,sq=65,sk=129,d=64,dtype=f16,over=heads", 8), [Grid::Blocks(3 * 3)]);
    assert_eq!(blocks("b=2,h=3,sq=65,sk=129,d=64,dtype=f16,over=batches", 4), [Grid::Blocks(2 * 2 * 3)]);
    assert_eq!(blocks("b=2,h=3,sq=65,sk=129,d=64,dtype=f16,over=each", 8), [Grid::Blocks(6 * 3)]);
}

/// Bytes that heads of 192 beside 256 may spill.
const SPILLS: u32 = 16;

fn compile(capability: (u32, u32), texts: &[&str]) {
    let Some(compiler) = compiler() else { return };
    let chip = chip(capability);
    for text in texts {
        launches(text, &chip, |what, plan| check_with_spills(plan, &chip, &compiler, what, SPILLS));
    }
}

#[test]
fn everything_compiles_for_hopper() {
    compile((9, 0), &PROBLEMS);
}

#[test]
fn everything_compiles_for_chips_before_hopper() {
    compile((8, 0), &PROBLEMS);
}
