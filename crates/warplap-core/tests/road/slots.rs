//! Every kind of slot on the road: all that is written is proved, and arguments that do not fit are refused by name.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use warplap_core::arg::{Arg, ScalarArg};
use warplap_core::catalog::Catalog;
use warplap_core::dtype::DType;
use warplap_core::engine::Tuner;
use warplap_core::error::Error;
use warplap_core::progress::Silent;
use warplap_core::record::TuningRun;
use warplap_core::rejection::Rejection;

use crate::descend::{Act, DOWN, Descend, DescendProblem, G, MASK, MOVED, RATE, W, WRITTEN, step, way};
use crate::fake::{Fake, In, Meter, Out, Seer};
use crate::support::{fate, memory, settings, trial};

type T = Tuner<Descend, Fake>;

/// A way that may be bad among good ones, judged by the host or by the device.
fn tuner(act: Act, on_the_device: bool) -> T {
    let catalog = Catalog::new(Arc::new(way("reference", 9e-3, Act::Right)));
    let catalog = catalog.with(Arc::new(way("good", 2e-3, Act::Right))).with(Arc::new(way("bad", 1e-3, act)));
    let catalog = if on_the_device { catalog.with_oracle(Arc::new(Seer)) } else { catalog };
    Tuner::new(Arc::new(Fake::new()), catalog, memory(), settings())
}

fn tuned(tuner: &T, p: &DescendProblem) -> TuningRun {
    tuner.tune(p, &Silent).unwrap().edition
}

const PLAIN: DescendProblem = DescendProblem { rows: 10, pad: 0, masked: false, rated: true };

/// What a caller gives for the rate.
const RATED: f64 = 0.25;

/// A caller's memory.
struct Memory {
    g: Vec<f64>,
    mask: Vec<f64>,
    w: Vec<f64>,
    moved: Vec<f64>,
    down: Vec<f64>,
}

impl Memory {
    fn new(len: usize) -> Self {
        let count = |step: f64| (0..len).map(|i| (i as f64 - 3.0) * step).collect();
        let nan = || vec![f64::NAN; len];
        Memory { g: count(0.125), mask: count(-0.5), w: count(2.0), moved: nan(), down: nan() }
    }

    fn args(&mut self, p: &DescendProblem) -> [Arg<'_, Fake>; 6] {
        [
            Arg::Read(In::new(DType::F16, &self.g)),
            Arg::optional(p.masked.then(|| In::new(DType::F32, &self.mask))),
            if p.rated { Arg::Scalar(ScalarArg::Real(RATED)) } else { Arg::Absent },
            Arg::Write(Out::new(DType::F32, &mut self.w)),
            Arg::Write(Out::new(DType::F16, &mut self.moved)),
            Arg::Write(Out::new(DType::I32, &mut self.down)),
        ]
    }

    /// Launches on memory without padding, which may hold more than the problem spans. Says whether all that is written
    /// is right and nothing else was written.
    fn right_after_launch(mut self, tuner: &T, p: &DescendProblem) -> bool {
        let (n, rest) = (p.span(), self.w[p.span()..].to_vec());
        let rate = if p.rated { RATED } else { 1.0 };
        let right = step(&self.g[..n], p.masked.then_some(&self.mask[..]), rate, &self.w[..n]);
        tuner.launch(p, &mut self.args(p), &Meter::default()).unwrap();
        let untouched = self.w[n..] == rest && self.moved[n..].iter().chain(&self.down[n..]).all(|v| v.is_nan());
        untouched && [self.w, self.moved, self.down].iter().zip(&right).all(|(got, right)| got[..n] == right[..])
    }
}

#[test]
fn every_kind_of_slot_is_drawn_raced_and_launched() {
    for case in 0..8u8 {
        let [masked, rated, on_the_device] = [1, 2, 4].map(|bit| case & bit != 0);
        let p = DescendProblem { masked, rated, ..PLAIN };
        let tuner = tuner(Act::Right, on_the_device);
        let edition = tuned(&tuner, &p);
        assert_eq!(edition.verdict.winner.variant, "bad", "{p:?}: not bad at all here, and the fastest: {edition:?}");
        assert_ne!(fate(&edition, "good"), "wrong_answer", "{p:?}");
        // A number is given by value, not where an oracle looks: then the host answers.
        let came_home = tuner.device().downloads.load(Ordering::SeqCst) > 0;
        assert_eq!(came_home, !on_the_device || rated, "{p:?}");
        assert!(Memory::new(p.span()).right_after_launch(&tuner, &p), "{p:?}");
    }
}

/// Tunes with a bad way, judged by the host and by the device, and gives what the host said of it.
fn rejected(act: Act, p: &DescendProblem) -> String {
    let said = [true, false].map(|on_the_device| {
        let tuner = tuner(act, on_the_device);
        let edition = tuned(&tuner, p);
        assert_eq!(edition.verdict.winner.variant, "good", "{act:?}, {on_the_device}");
        assert!(edition.verdict.runner_up.as_ref().is_none_or(|r| r.variant != "bad"), "{act:?}");
        assert_eq!(fate(&edition, "bad"), "wrong_answer", "{act:?}, {on_the_device}");
        assert!(p.pad > 0 || Memory::new(p.span()).right_after_launch(&tuner, p), "{act:?}");
        format!("{:?}", trial(&edition, "bad").outcome)
    });
    said[1].clone()
}

#[test]
fn whatever_is_wrong_in_any_slot_is_rejected_by_its_name_and_never_wins() {
    let p = DescendProblem { masked: true, ..PLAIN };
    for (slot, name) in WRITTEN.into_iter().zip(["w: ", "moved: ", "down: "]) {
        let strays = [-200, -1, 1, 200].map(|by| Act::Strays(slot, by));
        for act in [Act::Leaves(slot), Act::LeavesLast(slot), Act::WrongIn(slot)].into_iter().chain(strays) {
            // Judged on the device without a number, on the host with one.
            for rated in [false, true] {
                let said = rejected(act, &DescendProblem { rated, ..p.clone() });
                assert!(said.contains(name), "{act:?}: {said}");
            }
        }
    }
    for act in [Act::ForgetsWhatItWasGiven, Act::WrongInPlaceLater, Act::IgnoresTheMask, Act::IgnoresTheRate] {
        rejected(act, &p);
    }
}

#[test]
fn padding_between_rows_stays_as_it_was_in_every_slot() {
    for (slot, name) in WRITTEN.into_iter().zip(["w: ", "moved: ", "down: "]) {
        for rated in [false, true] {
            let p = DescendProblem { pad: 3, masked: true, rated, ..PLAIN };
            let said = rejected(Act::WritesPadding(slot), &p);
            assert!(said.contains(name) && said.contains("padding"), "{said}");
            rejected(Act::WrongIn(slot), &p);
        }
    }
}

#[test]
fn arguments_that_do_not_fit_are_refused_by_name_and_reach_no_kernel() {
    let good = way("good", 2e-3, Act::Right);
    let count = good.count.clone();
    let tuner: T = Tuner::new(Arc::new(Fake::new()), Catalog::new(Arc::new(good)), memory(), settings());
    tuned(&tuner, &PLAIN);
    let before = count.launches();
    let refused = |p: &DescendProblem, args: &mut [Arg<'_, Fake>]| match tuner.launch(p, args, &Meter::default()) {
        Err(Error::Argument { argument, reason }) => format!("{argument} {reason}"),
        other => panic!("{other:?}"),
    };

    let n = PLAIN.span();
    let (mut short, mut other, floats) = (vec![0.0; n - 1], vec![0.0; n], vec![0.0; n]);
    let mut memories: [Memory; 9] = std::array::from_fn(|_| Memory::new(n));
    let read = || Arg::Read(In::new(DType::F32, &floats));
    let cases: [(&str, usize, Arg<'_, Fake>); 9] = [
        ("g is missing", G, Arg::Absent),
        ("g holds f32, expected f16", G, read()),
        ("mask is given, the problem has none", MASK, read()),
        ("rate is missing", RATE, Arg::Absent),
        ("rate is a buffer", RATE, read()),
        ("w is lent for reading", W, read()),
        ("w holds 39 elements, expected at least 40", W, Arg::Write(Out::new(DType::F32, &mut short))),
        ("moved is a number", MOVED, Arg::Scalar(ScalarArg::Int(1))),
        ("down holds f32, expected i32", DOWN, Arg::Write(Out::new(DType::F32, &mut other))),
    ];
    for (memory, (words, at, arg)) in memories.iter_mut().zip(cases) {
        let mut args = memory.args(&PLAIN);
        args[at] = arg;
        let said = refused(&PLAIN, &mut args);
        assert!(said.contains(words), "{words}: {said}");
    }
    let mut memory = Memory::new(n);
    let mut args = memory.args(&PLAIN);
    args.swap(G, MOVED);
    assert!(refused(&PLAIN, &mut args).contains("g is lent for writing"));
    let masked = DescendProblem { masked: true, ..PLAIN };
    assert!(refused(&masked, &mut memory.args(&PLAIN)).contains("mask is missing"));
    assert!(refused(&PLAIN, &mut memory.args(&PLAIN)[..DOWN]).contains("down is missing"));
    let mut more: Vec<_> = memory.args(&PLAIN).into();
    more.push(Arg::Absent);
    assert!(refused(&PLAIN, &mut more).contains("there are 7, expected 6"));

    // A problem nobody has chosen a kernel for is tuned before its launch; no kernel saw a caller's arguments.
    let raced = count.launches();
    assert!(Memory::new(n).right_after_launch(&tuner, &PLAIN), "the winner is not blamed");
    assert!(Memory::new(n + 10).right_after_launch(&tuner, &PLAIN), "more than the slots span is fine");
    assert_eq!(count.launches(), raced + 2, "{before} launches while it was raced");
}

#[test]
fn a_prepared_kernel_refuses_what_does_not_fit() {
    let tuner = tuner(Act::Right, false);
    let kernel = tuner.prepare(&PLAIN).unwrap();
    let masked = DescendProblem { masked: true, ..PLAIN };
    for (len, p) in [(PLAIN.span() - 1, &PLAIN), (PLAIN.span(), &masked)] {
        let outcome = kernel.launch(&mut Memory::new(len).args(p), &Meter::default());
        assert!(matches!(outcome, Err(Rejection::LaunchFailed { .. })), "{outcome:?}");
    }
    kernel.launch(&mut Memory::new(PLAIN.span()).args(&PLAIN), &Meter::default()).unwrap();
}
