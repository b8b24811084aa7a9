//! New sizes that are told by their parts: proved, taken without a race, and not kept.

use std::collections::BTreeMap;

use crate::partition::Size;
use warplap_core::op::Op;
use warplap_core::progress::Silent;
use warplap_ops::gemm::Activation;

use super::{Cpu, DType, Mode, Session};
use super::{run, session, share};
use crate::sized::{Match, Nodes, fused};
use crate::task::Task;
use crate::{Builder, Fused, Graphs};

fn small(mut g: Builder<Cpu>, rows: u64) -> Fused<Cpu> {
    let (x, w) = (g.input("x", DType::F32, &[rows, 40]), g.input("w", DType::F32, &[24, 40]));
    let y = g.linear(x, w).unwrap();
    let y = g.silu(y).unwrap();
    g.output("y", y).build().unwrap()
}

/// Two sizes of a graph, around what its parts take, in which each choice was worth so much of its parts.
fn pretend(session: &Session, fused: &Fused<Cpu>, worth: &[(&str, [f64; 2])]) {
    let parts: BTreeMap<String, f64> = fused.by_parts(&Silent).into_iter().collect();
    let known = &session.raced;
    for (i, scale) in [0.5, 2.0].into_iter().enumerate() {
        let parts: BTreeMap<String, f64> = parts.iter().map(|(id, s)| (id.clone(), s * scale)).collect();
        let whole = |(id, worth): &(&str, [f64; 2])| (id.to_string(), parts[*id] * worth[i]);
        let wholes = worth.iter().map(whole).collect();
        known.remember(&fused.problem().plan.choices(), Size { parts, wholes });
    }
}

fn is_kept(session: &Session) -> bool {
    session.store().entries().iter().any(|entry| format!("{entry:?}").contains("graph"))
}

#[test]
fn a_clear_choice_is_taken_without_a_race_and_a_race_puts_an_end_to_it() {
    let session = session(Mode::Tune);
    let fused = small(session.graph(), 9);
    // Ten times faster than its parts, and ten times slower.
    pretend(&session, &fused, &[("linear_silu", [0.1, 0.1]), ("apart", [10.0, 10.0])]);
    let (drawn, left) = run(&fused, 2);
    assert!(share(&fused, &drawn, &left) <= 1.0);
    let story = fused.explain();
    let how = "  told by its parts: 2 other sizes were raced, and this was off by 2% at most";
    assert_eq!(story.lines().nth(1), Some(how), "{story}");
    assert!(story.contains("└ gemm: linear_silu") && story.contains("told by their parts, not raced"), "{story}");
    assert!(fused.tuner().record(fused.problem()).is_none() && !is_kept(&session), "it is not kept");
    for seed in 3..6 {
        let (drawn, left) = run(&fused, seed);
        assert!(share(&fused, &drawn, &left) <= 1.0);
    }
    assert!(fused.tuner().record(fused.problem()).is_none());
    // Arguments are looked at as ever.
    let (x, mut y) = (vec![0f32; 9 * 40], vec![0f32; 9 * 24]);
    let wrong = fused.run([("x", x[..].into()), ("w", x[..24].into())], [("y", (&mut y[..]).into())]);
    assert!(wrong.unwrap_err().to_string().contains("argument 'w': holds 24 elements"));
    let tuned = fused.tune(&Silent).unwrap();
    assert!(!tuned.from_store && fused.explain().contains("raced as a whole"), "{}", fused.explain());
    let (drawn, left) = run(&fused, 7);
    assert!(share(&fused, &drawn, &left) <= 1.0);
}

#[test]
fn what_varied_or_was_not_raced_is_raced() {
    for worth in [
        &[("linear_silu", [0.1, 10.0]), ("apart", [1.0, 1.0])][..],
        &[("linear_silu", [0.1, 0.1])],
        &[("linear_silu", [1e-3, 1e3]), ("apart", [1e-3, 1e3])],
    ] {
        let session = session(Mode::Tune);
        let fused = small(session.graph(), 9);
        pretend(&session, &fused, worth);
        run(&fused, 2);
        assert!(fused.tuner().record(fused.problem()).is_some(), "{}", fused.explain());
        assert!(fused.explain().contains("raced as a whole"), "{}", fused.explain());
    }
}

fn another_activation(look: &Nodes<'_>, at: usize) -> Vec<Match> {
    let mut all: Vec<Match> = fused(look, at);
    for result in &mut all {
        if let Task::Gemm(p) = &mut result.calls[0].task {
            p.act = Activation::Relu;
        }
    }
    all
}

#[test]
fn a_wrong_choice_is_not_taken_however_clear_it_is() {
    let session = session(Mode::Tune);
    let build = || small(session.graph().with_templates(&[another_activation]), 9);
    let fused = build();
    let id = fused.problem().plan.partitions[1].id.clone();
    pretend(&session, &fused, &[(&id, [0.1, 0.1]), ("apart", [10.0, 10.0])]);
    let (drawn, left) = run(&fused, 2);
    assert!(share(&fused, &drawn, &left) <= 1.0);
    let edition = fused.tuner().record(fused.problem()).unwrap().editions.remove(0);
    assert_eq!(edition.verdict.winner.variant, "apart");
}

#[test]
fn raced_sizes_are_remembered_by_what_the_choices_are() {
    let session = session(Mode::Tune);
    let of = |rows: u64| small(session.graph(), rows);
    assert_eq!(of(9).problem().plan.choices(), of(400).problem().plan.choices());
    let known = session.raced.clone();
    for rows in [9, 40] {
        let fused = of(rows);
        run(&fused, 2);
        assert!(fused.tuner().record(fused.problem()).is_some(), "one size is too few: {}", fused.explain());
    }
    let fused = of(20);
    let far: BTreeMap<String, f64> = fused.by_parts(&Silent).into_iter().map(|(id, s)| (id, 100.0 * s)).collect();
    assert!(known.guess(&fused.problem().plan.choices(), &far).is_none());
    assert!(known.guess("another", &far).is_none());
    // Two layers of one shape, or of two: `linear_silu` means both, or the first.
    let layers = |wide: u64| {
        let mut g = session.graph();
        let (x, w) = (g.input("x", DType::F32, &[8, 40]), g.input("w", DType::F32, &[wide, 40]));
        let v = g.input("v", DType::F32, &[40, wide]);
        let y = g.linear(x, w).unwrap();
        let y = g.silu(y).unwrap();
        let y = g.linear(y, v).unwrap();
        let y = g.silu(y).unwrap();
        g.output("y", y).build().unwrap()
    };
    let (one, two) = (layers(40), layers(24));
    assert_eq!(one.problem().plan.structure(), two.problem().plan.structure());
    assert_ne!(one.problem().plan.choices(), two.problem().plan.choices());
    assert_ne!(Graphs::text(one.problem()), Graphs::text(two.problem()));
}
