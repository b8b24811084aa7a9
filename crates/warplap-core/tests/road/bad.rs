//! Bad candidates: whatever they do, they do not win, they do not harm, and the record says why they left.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use warplap_core::catalog::Catalog;
use warplap_core::engine::{How, Tuner};
use warplap_core::error::Error;
use warplap_core::oracle::{FarAnswer, Inputs, Oracle};
use warplap_core::progress::Silent;
use warplap_core::rejection::Rejection;
use warplap_core::settings::{Mode, Settings};
use warplap_core::space::{Config, Value};
use warplap_core::store::Store;
use warplap_core::variant::Fit;

use crate::fake::{Act, Fake, Panics, Row, Scale, ScaleProblem, problem, row};
use crate::support::*;

/// Races one bad row among good ones, judged by the host or by the device, and gives its fate.
fn among_good_ones(bad: Row, judge: fn(Fake, &[Row], &Store, Settings) -> T) -> &'static str {
    let rows = [row("reference", 9e-3), row("good", 2e-3), bad.clone(), row("slow", 4e-3)];
    let tuner = judge(Fake::new(), &rows, &memory(), settings());
    let e = tune(&tuner, &problem(50)).edition;
    assert_eq!(e.verdict.winner.variant, "good", "{:?}", bad.act);
    assert!(e.verdict.ties.is_empty() && e.verdict.runner_up.as_ref().is_none_or(|r| r.variant != "bad"));
    assert_eq!(fate(&e, "good"), "measured");
    assert!(launch(&tuner, &problem(50)).unwrap());
    fate(&e, "bad")
}

#[test]
fn every_bad_act_is_rejected_with_its_reason() {
    let cases = [
        (Act::BuildFails, "does_not_build"),
        (Act::BuildPanics, "crashed"),
        (Act::LaunchFails, "launch_failed"),
        (Act::LaunchPanics, "crashed"),
        (Act::WorkspacePanics, "crashed"),
        (Act::OffBy(1e-4), "wrong_answer"),
        (Act::OffBy(f64::NAN), "wrong_answer"),
        (Act::OffBy(f64::INFINITY), "wrong_answer"),
        (Act::LastIs(f64::NAN), "wrong_answer"),
        (Act::LastIs(0.0), "wrong_answer"),
        (Act::LeavesHoles, "wrong_answer"),
        (Act::Strays(-1), "wrong_answer"),
        (Act::Strays(1), "wrong_answer"),
        (Act::Strays(-200), "wrong_answer"),
        (Act::Strays(200), "wrong_answer"),
        (Act::RemembersFirst, "wrong_answer"),
        (Act::RemembersAddress, "wrong_answer"),
        (Act::LazyAfter(0), "wrong_answer"),
        (Act::LazyAfter(1), "wrong_answer"),
        (Act::FailsFrom(2), "launch_failed"),
        (Act::FailsFrom(3), "launch_failed"),
        (Act::PanicsFrom(3), "crashed"),
        (Act::WrongFrom(2), "wrong_answer"),
        // These are found out after timing, when the winner is proved once more.
        (Act::WrongFrom(3), "wrong_answer"),
        (Act::WrongFrom(5), "wrong_answer"),
        (Act::LazyAfter(3), "wrong_answer"),
    ];
    for (act, expected) in cases {
        assert_eq!(among_good_ones(row("bad", 1e-3).act(act), on), expected, "{act:?}");
        assert_eq!(among_good_ones(row("bad", 1e-3).act(act), far), expected, "{act:?}, judged on the device");
    }
}

#[test]
fn what_is_judged_on_the_device_comes_home_only_to_be_named() {
    let rows = [row("reference", 9e-3), row("good", 2e-3), row("slow", 4e-3)];
    let tuner = far(Fake::new(), &rows, &memory(), settings());
    let e = tune(&tuner, &problem(50)).edition;
    assert_eq!((e.verdict.winner.variant.as_str(), tuner.device().downloads.load(Ordering::SeqCst)), ("good", 0));
    let wrong = [rows[0].clone(), rows[1].clone(), row("bad", 1e-3).act(Act::LastIs(0.25))];
    let e = tune(&far(Fake::new(), &wrong, &memory(), settings()), &problem(50)).edition;
    let reason = format!("{:?}", trial(&e, "bad").outcome);
    assert!(reason.contains("element 49 of 50 is 2.5e-1, right is"), "{reason}");
}

/// An oracle with no answer, and no host behind it.
struct Mute;

impl Oracle<Scale, Fake> for Mute {
    fn answer(&self, _: &ScaleProblem, _: &Inputs<'_, Fake>, _: &Fake) -> Result<Vec<FarAnswer<Fake>>, Error> {
        Err(Error::Device("its voice is gone".into()))
    }
    fn is_alone(&self) -> bool {
        true
    }
}

#[test]
fn an_oracle_that_is_alone_says_why_there_is_no_answer() {
    let rows = [row("reference", 9e-3), row("good", 2e-3)];
    let alone = catalog(&rows).with_oracle(Arc::new(Mute));
    let tuner = Tuner::new(Arc::new(Fake::new()), alone, memory(), settings());
    let error = tuner.tune(&problem(50), &Silent).unwrap_err().to_string();
    assert!(error.contains("its voice is gone"), "{error}");
}

#[test]
fn who_writes_over_the_right_answer_is_not_judged_by_it() {
    let fake = Fake::new();
    fake.spoiled_from.store(1, Ordering::SeqCst);
    let rows = [row("reference", 9e-3), row("good", 2e-3)];
    let error = far(fake, &rows, &memory(), settings()).tune(&problem(50), &Silent).unwrap_err().to_string();
    assert!(error.contains("over the right answer"), "{error}");
}

#[test]
fn one_that_fails_at_any_later_launch_never_takes_the_others_with_it() {
    for n in 1..16 {
        for act in [Act::FailsFrom(n), Act::PanicsFrom(n), Act::WrongFrom(n)] {
            let rows = [row("reference", 9e-3), row("good", 2e-3), row("bad", 1e-3).act(act)];
            let e = tune(&tuner(&rows, &memory(), settings()), &problem(20)).edition;
            // Late enough it is not seen: then it was right as often as it was asked.
            if e.verdict.winner.variant == "bad" {
                assert!(n > 6, "{act:?}");
            } else {
                assert_eq!(e.verdict.winner.variant, "good", "{act:?}");
            }
        }
    }
}

#[test]
fn no_time_that_a_clock_cannot_say_ever_wins() {
    for seconds in [f64::NAN, 0.0, -0.0, -1.0, f64::INFINITY, f64::NEG_INFINITY, 1e300, 1e-300, f64::MIN_POSITIVE] {
        assert_eq!(among_good_ones(row("bad", seconds), on), "impossible", "{seconds}");
    }
}

#[test]
fn a_time_below_the_roofline_is_rejected() {
    let rows = [row("reference", 9e-3), row("good", 1.5e-3), row("fake", 0.5e-3)];
    let tuner = on(Fake::new().with_rate(1e6), &rows, &memory(), settings());
    let e = tune(&tuner, &problem(1000)).edition;
    assert_eq!((e.verdict.winner.variant.as_str(), fate(&e, "fake")), ("good", "impossible"));
    assert_eq!(tuner.device().remeasured.load(Ordering::SeqCst), 1, "the ceilings were doubted once");
    assert_eq!(e.floor_us, Some(1000.0));
}

#[test]
fn ceilings_measured_on_a_busy_machine_are_measured_again_and_the_race_is_run_again() {
    let rows = || [row("reference", 9e-3), row("good", 1.5e-3), row("honest", 0.5e-3)];
    let race = |better: f64| {
        let tuner = on(Fake::new().with_rate(1e6).with_better_rate(better), &rows(), &memory(), settings());
        let e = tune(&tuner, &problem(1000)).edition;
        assert_eq!(tuner.device().remeasured.load(Ordering::SeqCst), 1);
        (e.verdict.winner.variant.clone(), fate(&e, "honest"), e.floor_us.unwrap().round())
    };
    assert_eq!(race(4e6), ("honest".to_string(), "measured", 250.0));
    // A floor that fell, but not far enough, or hardly at all: then it is final.
    assert_eq!(race(1.2e6), ("good".to_string(), "impossible", 833.0));
    assert_eq!(race(1.01e6).0, "good");
    // Nobody but the impossible is right: the second look saves it.
    let only = [row("reference", 0.5e-3)];
    let tuner = on(Fake::new().with_rate(1e6).with_better_rate(4e6), &only, &memory(), settings());
    assert_eq!(tune(&tuner, &problem(1000)).edition.verdict.winner.variant, "reference");
}

#[test]
fn who_is_faster_than_ceilings_that_were_measured_under_load_races_on_and_wins() {
    let rows = [row("reference", 9e-3), row("good", 1.5e-3), row("honest", 0.5e-3), row("fake", 0.1e-3)];
    // A thousand elements take a millisecond by what was measured, and a quarter of one by the data sheet.
    let fake = Fake::new().with_rate(1e6).with_data_sheet(4e6);
    let tuner = on(fake, &rows, &memory(), settings());
    let e = tune(&tuner, &problem(1000)).edition;
    assert_eq!((e.verdict.winner.variant.as_str(), fate(&e, "honest")), ("honest", "measured"));
    assert_eq!(fate(&e, "fake"), "impossible", "a data sheet is not beaten");
    assert!(e.floor_us.unwrap() < 600.0, "the floor fell: {:?}", e.floor_us);
    assert!(tuner.device().remeasured.load(Ordering::SeqCst) >= 1, "the ceilings are taken again");
    // Measuring again found the same low ceilings: what is stored answers all the same.
    assert!(tune(&tuner, &problem(1000)).from_store);
}

#[test]
fn a_variant_that_panics_before_it_is_built_stands_aside() {
    for at in [Panics::Fit, Panics::Space, Panics::Rule, Panics::Source, Panics::Needs, Panics::Floor] {
        let rows = [row("reference", 9e-3), row("good", 2e-3), row("bad", 3e-3).panics(at)];
        let store = memory();
        let tuner = on(Fake::new().with_rate(1e9), &rows, &store, settings());
        let e = tune(&tuner, &problem(50)).edition;
        assert_eq!(e.verdict.winner.variant, "good", "{at:?}");
        assert!(launch(&tuner, &problem(50)).unwrap());
        let builds = rows[2].count.builds();
        assert_eq!(builds, u64::from(matches!(at, Panics::Source | Panics::Floor)), "{at:?}");
        assert!(builds == 1 || e.skipped.iter().any(|s| s.variant == "bad"), "{at:?}: {:?}", e.skipped);
        assert!(tune(&tuner, &problem(50)).from_store, "{at:?} is not new the second time");
        for m in [Mode::Off, Mode::Replay, Mode::Record] {
            let quiet = on(Fake::new(), &rows, &store, mode(m));
            assert!(launch(&quiet, &problem(50)).unwrap() && launch(&quiet, &problem(51)).unwrap(), "{at:?} {m}");
        }
    }
}

#[test]
fn a_catalog_passes_on_whether_timed_launches_write() {
    for (act, writes) in [(Act::Right, true), (Act::GivesNew, false)] {
        let catalog = Catalog::new(Arc::new(row("reference", 9e-3))).with(Arc::new(row("asked", 1e-3).act(act)));
        let config = Config::new().with("i", Value::Int(0));
        let kernel = catalog.find("asked").unwrap().build(&problem(50), &config, &Fake::new()).unwrap();
        assert_eq!(kernel.writes(), writes, "{act:?}");
    }
}

#[test]
fn a_variant_that_panics_while_it_is_built_harms_no_mode() {
    // First by priority, so that every mode without a record chooses it.
    let rows = [row("reference", 9e-3).fit(Fit::LOW), row("bad", 1e-3).act(Act::BuildPanics)];
    for m in [Mode::Off, Mode::Replay, Mode::Record, Mode::Tune] {
        let tuner = tuner(&rows, &memory(), mode(m));
        assert!(launch(&tuner, &problem(50)).unwrap(), "{m}");
        assert_eq!(tuner.choose(&problem(50)).unwrap().candidate.variant, "reference", "{m}");
    }
}

#[test]
fn when_everyone_fails_tuning_says_so_and_nothing_is_stored() {
    let bad = Act::OffBy(1.0);
    let rows = [row("reference", 1e-3).act(bad), row("a", 1e-3).act(bad), row("b", 1e-3).act(Act::LaunchPanics)];
    let store = memory();
    let tuner = tuner(&rows, &store, settings());
    match tuner.tune(&problem(50), &Silent) {
        Err(Error::NothingRight { problem, .. }) => assert_eq!(problem, "scale:n=50,step=1,dtype=f32"),
        other => panic!("{other:?}"),
    }
    assert!(store.entries().is_empty());
    match tuner.choose(&problem(50)).map(|c| c.candidate) {
        Err(Error::NothingRight { rejection: Rejection::WrongAnswer { .. }, .. }) => {}
        other => panic!("a wrong reference is never handed out: {other:?}"),
    }
}

#[test]
fn when_nobody_can_be_measured_the_reference_answers_once_it_has_shown_that_it_is_right() {
    // A broken clock: every time is NaN.
    let rows = [row("reference", f64::NAN).fit(Fit::LOW), row("a", f64::NAN), row("b", 1e-3).act(Act::OffBy(1.0))];
    let store = memory();
    let tuner = tuner(&rows, &store, settings());
    assert!(matches!(tuner.tune(&problem(50), &Silent), Err(Error::NothingRight { .. })));
    assert!(launch(&tuner, &problem(50)).unwrap());
    let chosen = tuner.choose(&problem(50)).unwrap();
    assert_eq!(chosen.candidate.variant, "reference");
    assert!(matches!(&chosen.how, How::Default(why) if why.contains("no variant gave")), "{:?}", chosen.how);
    let laps = tuner.device().counts()[1];
    assert!((0..5).all(|_| launch(&tuner, &problem(50)).unwrap()));
    assert_eq!(tuner.device().counts()[1], laps, "it is not raced at each launch");
    assert!(store.entries().is_empty());
}

#[test]
fn without_memory_to_race_in_the_reference_answers() {
    let device = Fake::new();
    device.full.store(true, Ordering::SeqCst);
    let tuner = on(device, &[row("reference", 2e-3).fit(Fit::LOW), row("a", 1e-3)], &memory(), settings());
    assert!(matches!(tuner.tune(&problem(50), &Silent), Err(Error::Device(_))));
    assert!(launch(&tuner, &problem(50)).unwrap());
    assert_eq!(tuner.choose(&problem(50)).unwrap().candidate.variant, "reference");
}

#[test]
fn a_winner_that_fails_when_it_is_launched_says_so_once_and_then_the_reference_answers() {
    let rows = [row("reference", 9e-3).fit(Fit::LOW), row("brittle", 1e-3)];
    let store = memory();
    tune(&tuner(&rows, &store, settings()), &problem(50));
    let broken = [rows[0].clone(), row("brittle", 1e-3).act(Act::LaunchFails)];
    let tuner = tuner(&broken, &store, settings());
    match launch(&tuner, &problem(50)) {
        Err(Error::Launch { rejection: Rejection::LaunchFailed { .. }, .. }) => {}
        other => panic!("{other:?}"),
    }
    let reference = broken[0].count.launches();
    assert!((0..5).all(|_| launch(&tuner, &problem(50)).unwrap()));
    assert_eq!(broken[0].count.launches(), reference + 5);
}

#[test]
fn a_panic_in_a_launch_leaves_the_tuner_usable() {
    let rows = [row("reference", 9e-3).fit(Fit::LOW), row("brittle", 1e-3)];
    let store = memory();
    tune(&tuner(&rows, &store, settings()), &problem(50));
    let broken = [rows[0].clone(), row("brittle", 1e-3).act(Act::LaunchPanics)];
    let tuner = tuner(&broken, &store, settings());
    let call = std::panic::AssertUnwindSafe(|| launch(&tuner, &problem(50)));
    assert!(!matches!(std::panic::catch_unwind(call), Ok(Ok(true))));
    assert!(launch(&tuner, &problem(51)).unwrap(), "another problem is not harmed");
}

#[test]
fn hundreds_of_cheats_that_are_found_out_late_end_with_the_right_one() {
    let rows = [row("reference", 9e-3), row("cheat", 1e-3).configs(&[1e-3; 60]).act(Act::WrongFrom(4))];
    let e = tune(&tuner(&rows, &memory(), settings()), &problem(20)).edition;
    assert_eq!(e.verdict.winner.variant, "reference");
}
