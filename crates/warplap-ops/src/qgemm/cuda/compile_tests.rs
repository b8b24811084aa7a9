//! Plans are arithmetic on the host: every config fits an H200, and every kernel compiles without a GPU.

use warplap_core::op::Op;
use warplap_core::variant::Fit;
use warplap_cuda::Chip;

use super::TWINS;
use crate::cuda::compiling::{check, check_right, chip, compiler};
use crate::qgemm::{Qgemm, QgemmProblem};

fn problem(text: &str) -> QgemmProblem {
    Qgemm::parse(text).unwrap()
}

const PROBLEMS: [&str; 9] = [
    "m=4096,n=4096,k=4096,scale=tensor",
    "m=4096,n=4096,k=4096,scale=tensor,fast=true,out=f16",
    "m=4096,n=4096,k=4096,scale=block,out=f32",
    "m=4096,n=4096,k=4096,dtype=i8",
    "m=256,n=28672,k=8192,scale=row",
    "m=100,n=8192,k=8192,scale=block",
    "m=64,n=8192,k=8192,scale=row,fast=true",
    "m=16,n=4096,k=4096,scale=none,out=f32",
    "m=1,n=4096,k=4096,dtype=i8",
];

#[test]
fn every_space_is_small_and_every_config_of_it_fits_an_h200() {
    let chip = Chip::h200();
    for text in PROBLEMS {
        let p = problem(text);
        for twin in TWINS.iter().filter(|t| matches!(t.fit(&p, &chip), Fit::Fits(_))) {
            let configs = twin.space(&p, &chip).configs();
            assert!((1..=40).contains(&configs.len()), "{text}: {} has {}", twin.id(), configs.len());
            for config in &configs {
                let plan = twin.plan(&p, config, &chip).unwrap_or_else(|why| panic!("{text} {config}: {why}"));
                assert!(plan.shared <= chip.shared_memory - 512, "{text}: {} {config}", twin.id());
            }
        }
    }
}

#[test]
fn kernels_stand_aside_where_the_copy_engine_cannot_go_and_before_hopper() {
    let fits = |text: &str, chip: &Chip| TWINS.map(|t| matches!(t.fit(&problem(text), chip), Fit::Fits(_)));
    let (hopper, older) = (Chip::h200(), chip((8, 9)));
    assert_eq!(fits("m=64,n=64,k=64", &hopper), [true, true, true]);
    assert_eq!(fits("m=64,n=64,k=65", &hopper), [true, false, false]);
    assert_eq!(fits("m=64,n=63,k=64", &hopper), [true, false, true]);
    assert_eq!(fits("m=300,n=64,k=64,dtype=i8", &hopper), [true, true, false]);
    assert_eq!(fits("m=64,n=64,k=64", &older), [true, false, false]);
}

#[test]
fn every_kernel_compiles_for_hopper_and_spills_nothing() {
    let (Some(compiler), chip) = (compiler(), Chip::h200()) else { return };
    for text in PROBLEMS {
        let p = problem(text);
        for twin in TWINS.iter().filter(|t| matches!(t.fit(&p, &chip), Fit::Fits(_))) {
            let configs = twin.space(&p, &chip).configs();
            // The first of each tile; of few rows the first and the last.
            let mut seen = Vec::new();
            let tile = |c: &warplap_core::space::Config| ["BM", "BN", "BW", "SLOTS", "PING"].map(|name| c.int(name));
            for config in configs.iter().filter(|c| {
                !seen.contains(&tile(c)) && {
                    seen.push(tile(c));
                    true
                }
            }) {
                let plan = twin.plan(&p, config, &chip).unwrap();
                check(&plan, &chip, &compiler, &format!("{text}: {} {config}", twin.id()));
            }
        }
    }
}

#[test]
fn the_reference_and_right_answers_compile_for_sm_80_and_sm_90a() {
    for capability in [(8, 0), (9, 0)] {
        for text in ["m=64,n=64,k=64,scale=block,out=f16", "m=64,n=64,k=64,scale=row", "m=64,n=64,k=64,dtype=i8"] {
            let (p, chip) = (problem(text), chip(capability));
            check_right(&super::right::source(&p), capability, text);
            if let Some(compiler) = compiler() {
                let config = TWINS[0].space(&p, &chip).default_config().unwrap();
                check(&TWINS[0].plan(&p, &config, &chip).unwrap(), &chip, &compiler, text);
            }
        }
    }
}
