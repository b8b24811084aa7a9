//! Whole chains race: a partition that is wrong is sent away, whatever it takes.

use warplap_core::candidate::Outcome;
use warplap_core::engine::Tuned;
use warplap_core::progress::Silent;
use warplap_core::rejection::Rejection;
use warplap_ops::gemm::{self, Activation, Join};
use warplap_ops::norm;

use super::{Cpu, DType, Mode};
use super::{run, session, share, with};
use crate::sized::{Match, Nodes, Template, fused};
use crate::task::Task;
use crate::{Builder, Fused};

/// All usual covers, one of them bent.
fn mutated(look: &Nodes<'_>, at: usize, mutate: fn(&mut Match)) -> Vec<Match> {
    let mut all: Vec<Match> = fused(look, at);
    all.iter_mut().for_each(mutate);
    all
}

fn another_activation(look: &Nodes<'_>, at: usize) -> Vec<Match> {
    mutated(look, at, |result| {
        if let Task::Gemm(p) = &mut result.calls[0].task {
            p.act = Activation::Relu;
        }
    })
}

fn no_residual(look: &Nodes<'_>, at: usize) -> Vec<Match> {
    mutated(look, at, |result| {
        if let Task::Norm(p) = &mut result.calls[0].task {
            p.residual = false;
            result.calls[0].slots[norm::slot::RESIDUAL] = None;
        }
    })
}

fn no_gain(look: &Nodes<'_>, at: usize) -> Vec<Match> {
    mutated(look, at, |result| {
        if let Task::Norm(p) = &mut result.calls[0].task {
            p.weight = false;
            result.calls[0].slots[norm::slot::WEIGHT] = None;
        }
    })
}

fn nothing_joined(look: &Nodes<'_>, at: usize) -> Vec<Match> {
    mutated(look, at, |result| {
        if let Task::Gemm(p) = &mut result.calls[0].task {
            p.join = Join::None;
            result.calls[0].slots[gemm::slot::JOINED] = None;
        }
    })
}

type MadeGraph = fn(&mut Builder<Cpu>, DType) -> Fused<Cpu>;

fn activated(g: &mut Builder<Cpu>, t: DType) -> Fused<Cpu> {
    let (x, w) = (g.input("x", t, &[6, 40]), g.input("w", t, &[24, 40]));
    let y = g.linear(x, w).unwrap();
    let y = g.silu(y).unwrap();
    g.output("y", y).build().unwrap()
}

fn joined(g: &mut Builder<Cpu>, t: DType) -> Fused<Cpu> {
    let (x, w, r) = (g.input("x", t, &[6, 40]), g.input("w", t, &[24, 40]), g.input("r", t, &[6, 24]));
    let y = g.linear(x, w).unwrap();
    let y = g.add(y, r).unwrap();
    g.output("y", y).build().unwrap()
}

fn normed(g: &mut Builder<Cpu>, t: DType) -> Fused<Cpu> {
    let (x, r, w) = (g.input("x", t, &[6, 40]), g.input("r", t, &[6, 40]), g.input("w", t, &[40]));
    let sum = g.add(x, r).unwrap();
    let y = g.rms_norm(sum, w, 1e-5).unwrap();
    g.output("y", y).build().unwrap()
}

fn outcome<'t>(tuned: &'t Tuned, id: &str) -> &'t Outcome {
    let result = tuned.edition.trials.iter().find(|trial| trial.candidate.variant == id);
    &result.unwrap_or_else(|| panic!("{id} is not among {:?}", tuned.edition.trials)).outcome
}

#[test]
fn a_wrong_partition_is_rejected_by_the_race() {
    let cases: [(&str, Template, MadeGraph); 4] = [
        ("linear_silu", another_activation, activated),
        ("linear_add", nothing_joined, joined),
        ("norm_of_sum", no_residual, normed),
        ("norm_of_sum", no_gain, normed),
    ];
    let session = session(Mode::Tune);
    for (id, template, make) in cases {
        for dtype in [DType::F32, DType::Bf16] {
            // A record of the right one would answer for the wrong one.
            let session = super::session(Mode::Tune);
            let fused = make(&mut with(&session, &[template]), dtype);
            let tuned = fused.tune(&Silent).unwrap();
            let wrong = outcome(&tuned, id);
            assert!(matches!(wrong, Outcome::Rejected(Rejection::WrongAnswer { .. })), "{id} {dtype}: {wrong:?}");
            assert_eq!(tuned.edition.verdict.winner.variant, "apart", "{id} {dtype}");
            let (drawn, left) = run(&fused, 8);
            assert!(share(&fused, &drawn, &left) <= 1.0);
            assert!(fused.explain().contains("wrong answer"), "{}", fused.explain());
        }
    }
    // And the right ones are right.
    for make in [activated, joined, normed] {
        let fused = make(&mut session.graph(), DType::F32);
        let tuned = fused.tune(&Silent).unwrap();
        let right = tuned.edition.trials.iter().filter(|trial| trial.is_right()).count();
        assert_eq!(right, 2, "{:?}", tuned.edition.trials);
    }
}

#[test]
fn a_few_partitions_race_and_the_others_are_told_by_their_parts() {
    let session = session(Mode::Tune);
    let fused = super::layer(&mut session.graph(), 4, DType::F32);
    let tuned = fused.tune(&Silent).unwrap();
    let (plan, edition) = (&fused.problem().plan, &tuned.edition);
    assert!(edition.trials.iter().any(|trial| trial.candidate.variant == "apart"), "{:?}", edition.trials);
    assert!(edition.trials.len() <= 5 && edition.trials.len() > 1, "{:?}", edition.trials);
    assert_eq!(edition.trials.len() + edition.skipped.len(), plan.partitions.len());
    assert!(edition.skipped.iter().all(|s| s.reason.ends_with("µs")), "{:?}", edition.skipped);
    let (drawn, left) = run(&fused, 8);
    assert!(share(&fused, &drawn, &left) <= 1.0);
    assert!(fused.explain().contains("by their parts, not raced"), "{}", fused.explain());
}
