//! The border to worker processes: who passed there races here, who failed there never comes here, and both are
//! remembered. And candidates that are compiled ahead of their turn.

use std::sync::atomic::Ordering;

use warplap_core::error::Error;
use warplap_core::progress::Silent;
use warplap_core::quarantine;
use warplap_core::rejection::Rejection;
use warplap_core::sandbox::{Passed, SandboxRequest};
use warplap_core::settings::{Budget, Settings};

use crate::fake::{Act, Fake, Worker, problem, row};
use crate::support::*;

fn with_worker(worker: Worker) -> Fake {
    let fake = Fake::new();
    *fake.worker.lock().unwrap() = Some(worker);
    fake
}

fn passes(_: &SandboxRequest) -> Option<Result<Passed, Rejection>> {
    Some(Ok(Passed { error: 0.25, seconds: 1e-3 }))
}

/// `bad` takes its worker down; the others pass.
fn bad_crashes(request: &SandboxRequest) -> Option<Result<Passed, Rejection>> {
    match request.candidate.variant.as_str() {
        "bad" => Some(Err(Rejection::Crashed { reason: "signal 11".into() })),
        _ => passes(request),
    }
}

#[test]
fn who_fails_in_a_worker_is_never_built_here_and_never_asked_again() {
    let store = memory();
    // It would panic if it were built here.
    let rows = [row("reference", 9e-3), row("good", 2e-3), row("bad", 1e-3).act(Act::BuildPanics)];
    let first = tune(&on(with_worker(bad_crashes), &rows, &store, settings()), &problem(50)).edition;
    assert_eq!((first.verdict.winner.variant.as_str(), fate(&first, "bad")), ("good", "crashed"));
    let said = serde_json::to_string(&trial(&first, "bad").outcome).unwrap();
    assert!(said.contains("signal 11"), "{said}");
    let held = quarantine::all(&store);
    assert_eq!(held.len(), 1);
    assert_eq!((held[0].1.op.as_str(), held[0].1.candidate.variant.as_str()), ("scale", "bad"));

    // The next race, even of another size, asks no worker about it.
    fn nobody_bad(request: &SandboxRequest) -> Option<Result<Passed, Rejection>> {
        assert_ne!(request.candidate.variant, "bad");
        passes(request)
    }
    let second = tune(&on(with_worker(nobody_bad), &rows, &store, settings()), &problem(60)).edition;
    assert_eq!(fate(&second, "bad"), "nothing");
    let skipped = second.skipped.iter().find(|s| s.variant == "bad").unwrap();
    assert!(skipped.reason.contains("in quarantine: crashed: signal 11"), "{}", skipped.reason);

    // Under another driver it gets another chance.
    let newer = Fake::named("Fake 1", "2.0");
    *newer.worker.lock().unwrap() = Some(bad_crashes);
    let third = tune(&on(newer, &rows, &store, settings()), &problem(60)).edition;
    assert_eq!(fate(&third, "bad"), "crashed");
}

#[test]
fn who_passed_for_a_key_needs_no_worker_when_the_key_is_raced_again() {
    let store = memory();
    let rows = [row("reference", 9e-3), row("good", 2e-3)];
    tune(&on(with_worker(passes), &rows, &store, settings()), &problem(50));
    fn nobody(request: &SandboxRequest) -> Option<Result<Passed, Rejection>> {
        panic!("{} is asked again", request.candidate)
    }
    let again = Settings { again: true, ..settings() };
    let edition = tune(&on(with_worker(nobody), &rows, &store, again), &problem(50)).edition;
    assert_eq!(fate(&edition, "good"), "measured");
}

#[test]
fn a_key_raced_to_its_end_whose_record_is_gone_is_raced_among_those_who_passed() {
    let store = memory();
    // Nobody of `fussy` passes, and it is not asked again for that.
    fn but_fussy(request: &SandboxRequest) -> Option<Result<Passed, Rejection>> {
        match request.candidate.variant.as_str() {
            "fussy" => Some(Err(Rejection::DoesNotBuild { reason: "not here".into() })),
            _ => passes(request),
        }
    }
    let rows = [row("reference", 9e-3), row("good", 2e-3), row("other", 3e-3), row("fussy", 1e-3)];
    tune(&on(with_worker(but_fussy), &rows, &store, settings()), &problem(50));
    let entries = store.entries();
    assert!(entries.len() == 1 && store.remove(&entries[0]).unwrap());
    // One more setting of a variant that raced, and one variant nobody knows.
    fn only_new(request: &SandboxRequest) -> Option<Result<Passed, Rejection>> {
        assert_eq!(request.candidate.variant, "new");
        passes(request)
    }
    let mut more = rows.to_vec();
    more.push(row("new", 2.5e-3));
    more[1] = more[1].clone().configs(&[2e-3, 1e-3]);
    let edition = tune(&on(with_worker(only_new), &more, &store, settings()), &problem(50)).edition;
    assert_eq!((fate(&edition, "new"), fate(&edition, "other")), ("outpaced", "outpaced"));
    for variant in ["good", "fussy"] {
        assert!(
            edition.skipped.iter().any(|s| s.variant == variant && s.reason.contains("raced to its end")),
            "{variant}"
        );
    }
}

#[test]
fn a_winner_that_fooled_its_worker_is_found_out_here_and_put_away() {
    let store = memory();
    let rows = [row("reference", 9e-3), row("good", 2e-3), row("bad", 1e-3).act(Act::OffBy(1.0))];
    let tuner = on(with_worker(passes), &rows, &store, settings());
    let edition = tune(&tuner, &problem(50)).edition;
    assert_eq!((edition.verdict.winner.variant.as_str(), fate(&edition, "bad")), ("good", "wrong_answer"));
    let held = quarantine::all(&store);
    assert_eq!(held.iter().map(|(_, q)| q.candidate.variant.as_str()).collect::<Vec<_>>(), ["bad"]);
}

#[test]
fn the_reference_is_never_put_away() {
    fn all_crash(_: &SandboxRequest) -> Option<Result<Passed, Rejection>> {
        Some(Err(Rejection::Crashed { reason: "the device is on fire".into() }))
    }
    let store = memory();
    let rows = [row("reference", 9e-3), row("good", 2e-3)];
    let tuner = on(with_worker(all_crash), &rows, &store, settings());
    assert!(tuner.tune(&problem(50), &Silent).is_err());
    assert!(quarantine::all(&store).iter().all(|(_, q)| q.candidate.variant == "good"));
    assert!(launch(&tuner, &problem(50)).unwrap(), "the reference answers all the same");
}

#[test]
fn candidates_compile_ahead_on_threads_and_whoever_does_not_is_rejected() {
    let fake = Fake::new();
    fake.builders.store(3, Ordering::SeqCst);
    let mut rows = vec![row("reference", 9e-3), row("good", 2e-3)];
    rows.extend((0..40).map(|i| row(&format!("other{i}"), 3e-3)));
    rows.extend([row("refused", 1e-3).act(Act::CompileFails), row("panics", 1e-3).act(Act::BuildPanics)]);
    let edition = tune(&on(fake, &rows, &memory(), settings()), &problem(50)).edition;
    assert_eq!(edition.verdict.winner.variant, "good");
    assert_eq!((fate(&edition, "refused"), fate(&edition, "panics")), ("does_not_build", "crashed"));
    assert_eq!(edition.trials.len(), rows.len());
}

#[test]
fn who_compiles_slowly_keeps_nobody_from_racing_and_comes_in_late() {
    let tuned = |compiling: u64, seconds: f64| {
        let fake = Fake::new();
        fake.builders.store(2, Ordering::SeqCst);
        let slow = row("slow", 1e-3).act(Act::CompilesSlowly(compiling));
        let rows = [row("reference", 9e-3), row("fine", 3e-3), row("good", 2e-3), slow];
        let budget = Budget { seconds, ..settings().budget };
        tune(&on(fake, &rows, &memory(), Settings { budget, ..settings() }), &problem(50)).edition
    };
    let edition = tuned(3000, 1.2);
    assert_eq!(edition.verdict.winner.variant, "good");
    for variant in ["good", "fine"] {
        let trial = edition.trials.iter().find(|t| t.candidate.variant == variant).unwrap();
        assert!(trial.median_us().is_some(), "{variant}: {:?}", trial.outcome);
    }
    assert!(edition.verdict.rounds >= 3, "raced, not cut: {:?}", edition.verdict);
    assert_eq!(tuned(700, 60.0).verdict.winner.variant, "slow");
}

#[test]
fn where_the_reference_has_no_time_in_its_worker_the_library_answers() {
    fn too_long(_: &SandboxRequest) -> Option<Result<Passed, Rejection>> {
        Some(Err(Rejection::TimedOut { seconds: 0.5 }))
    }
    let rows = [row("reference", 9e-3), row("library", 2e-3).library(), row("good", 1e-3)];
    let tuner = on(with_worker(too_long), &rows, &memory(), settings());
    match tuner.tune(&problem(50), &Silent) {
        Err(Error::NothingRight { rejection: Rejection::TimedOut { .. }, .. }) => {}
        other => panic!("{other:?}"),
    }
    assert_eq!(tuner.choose(&problem(50)).unwrap().candidate.variant, "library");
}
