//! A record from elsewhere is a proposal: its winner is proved here before it runs here, once, and a worker is asked
//! where there is one.

use warplap_core::engine::{AnyTuner, How};
use warplap_core::op::Op;
use warplap_core::record::Record;
use warplap_core::rejection::Rejection;
use warplap_core::sandbox::{Passed, SandboxRequest};
use warplap_core::settings::Mode;
use warplap_core::store::bundle::Bundle;
use warplap_core::store::trusted::TrustPolicy;
use warplap_core::store::{Merged, SecretKey, Store};
use warplap_core::variant::Fit;

use crate::fake::{Act, Fake, Row, Scale, problem, row};
use crate::support::*;

fn rows() -> [Row; 4] {
    [row("reference", 9e-3).fit(Fit::LOW), row("first", 4e-3), row("a", 1e-3), row("b", 3e-3)]
}

/// The same code by name, which is wrong on this machine.
fn rows_where_a(act: Act) -> [Row; 4] {
    let [reference, first, a, b] = rows();
    [reference, first, a.act(act), b]
}

/// The record of a key as another store wrote it: `a` won.
fn elsewhere() -> Record {
    let tuner = tuner(&rows(), &memory(), settings());
    tune(&tuner, &problem(64));
    tuner.record(&problem(64)).unwrap()
}

fn importing(record: Record) -> Store {
    let store = memory();
    assert_eq!(store.merge(record).unwrap(), Merged::Added);
    store
}

fn proved(tuner: &T) -> bool {
    AnyTuner::find(tuner, &Scale::text(&problem(64))).unwrap().proved
}

const MODES: [Mode; 3] = [Mode::Replay, Mode::Record, Mode::Tune];
/// Those that prove at the first use; in `replay` nothing is proved in the way.
const PROVING: [Mode; 2] = [Mode::Record, Mode::Tune];

#[test]
fn in_replay_nothing_is_proved_in_the_way_and_what_was_proved_before_answers() {
    let store = importing(elsewhere());
    let unproved = rows();
    let here = tuner(&unproved, &store, mode(Mode::Replay));
    let chosen = here.choose(&problem(64)).unwrap();
    assert_eq!(chosen.candidate.variant, "reference");
    assert!(matches!(chosen.how, How::Default(why) if why.contains("verify --prove")));
    assert_eq!((unproved[2].count.builds(), unproved[2].count.launches()), (0, 0));
    // At deployment.
    let record = store.read(&here.key(&problem(64)), &here.device_slug()).unwrap();
    let result = here.prove(&record).unwrap();
    assert!(result.passed.iter().any(|c| c.variant == "a") && result.failed.is_empty(), "{result:?}");
    assert_eq!(here.device().counts()[1], 0, "nothing is timed");
    let later = rows();
    let replay = tuner(&later, &store, mode(Mode::Replay));
    let chosen = replay.choose(&problem(64)).unwrap();
    assert_eq!((chosen.candidate.variant.as_str(), chosen.how), ("a", How::Stored));
    assert_eq!(later[2].count.launches(), 0, "built, not proved again");
    // Of what was raced here there is nothing to prove.
    let own = memory();
    let tuned = tuner(&rows(), &own, settings());
    tune(&tuned, &problem(64));
    assert_eq!(tuned.prove(&tuned.record(&problem(64)).unwrap()), None);
}

#[test]
fn a_wrong_winner_with_a_good_signature_stops_at_the_proof_and_a_right_one_needs_none_where_signatures_are_enough() {
    let friend = SecretKey::generate().unwrap();
    let bytes = Bundle::of_records([elsewhere()]).to_bytes();
    let signed = || {
        let store = memory();
        store.trust(|t| t.add(&friend.public(), "")).unwrap();
        let signature = Bundle::sign(&bytes, &friend).unwrap();
        Bundle::signed(&bytes, &[signature], &store.trusted().unwrap()).unwrap().put_into(&store).unwrap();
        store
    };
    let store = signed();
    let wrong = rows_where_a(Act::OffBy(1.0));
    let here = tuner(&wrong, &store, mode(Mode::Replay));
    let record = store.read(&here.key(&problem(64)), &here.device_slug()).unwrap();
    let result = here.prove(&record).unwrap();
    assert!(result.failed.iter().any(|(c, _)| c.variant == "a"), "{result:?}");
    assert_eq!(here.choose(&problem(64)).unwrap().candidate.variant, "reference");
    for mode_ in MODES {
        let wrong = rows_where_a(Act::OffBy(1.0));
        assert!(launch(&tuner(&wrong, &store, mode(mode_)), &problem(64)).unwrap(), "{mode_}");
    }
    let store = signed();
    store.trust(|t| t.policy = TrustPolicy::Signed).unwrap();
    let right = rows();
    let chosen = tuner(&right, &store, mode(Mode::Replay)).choose(&problem(64)).unwrap();
    assert_eq!((chosen.candidate.variant.as_str(), right[2].count.launches()), ("a", 0));
    // Not where nobody signed, and not where the one who did is trusted no more.
    let unsigned = importing(elsewhere());
    unsigned.trust(|t| t.policy = TrustPolicy::Signed).unwrap();
    store.trust(|t| t.keys.clear()).unwrap();
    for store in [unsigned, store] {
        let chosen = tuner(&rows(), &store, mode(Mode::Replay)).choose(&problem(64)).unwrap();
        assert_eq!(chosen.candidate.variant, "reference");
    }
}

#[test]
fn an_imported_winner_that_is_wrong_here_never_answers() {
    for mode_ in PROVING {
        let store = importing(elsewhere());
        let wrong = rows_where_a(Act::OffBy(1.0));
        let here = tuner(&wrong, &store, mode(mode_));
        assert!(launch(&here, &problem(64)).unwrap(), "{mode_}");
        let chosen = here.choose(&problem(64)).unwrap();
        assert_ne!(chosen.candidate.variant, "a", "{mode_}");
        if let How::Default(why) = chosen.how {
            assert!(why.contains("came from elsewhere"), "{why}");
        }
        // It is remembered: the next process does not try again.
        let again = rows_where_a(Act::OffBy(1.0));
        assert!(launch(&tuner(&again, &store, mode(mode_)), &problem(64)).unwrap());
        assert_eq!(again[2].count.launches(), 0, "{mode_}");
    }
}

#[test]
fn an_imported_winner_is_proved_once_and_then_costs_nothing() {
    for mode_ in PROVING {
        let store = importing(elsewhere());
        let first = rows();
        let here = tuner(&first, &store, mode(mode_));
        assert!(!proved(&here));
        let chosen = here.choose(&problem(64)).unwrap();
        assert_eq!((chosen.candidate.variant.as_str(), chosen.how), ("a", How::Stored), "{mode_}");
        assert!(first[2].count.launches() >= 2, "{mode_}: proved");
        assert_eq!(here.device().counts()[1], 0, "{mode_}: nothing is timed");
        let second = rows();
        let later = tuner(&second, &store, mode(mode_));
        assert_eq!(later.choose(&problem(64)).unwrap().candidate.variant, "a");
        assert_eq!((second[2].count.builds(), second[2].count.launches()), (1, 0), "{mode_}: built, not proved again");
        assert!(proved(&later));
        // Other code of the same name is somebody else.
        let [reference, other, a, b] = rows();
        let changed = [reference, other, a.source("2").act(Act::OffBy(1.0)), b];
        assert!(launch(&tuner(&changed, &store, mode(mode_)), &problem(64)).unwrap());
    }
}

#[test]
fn what_was_raced_here_is_not_proved_again() {
    let store = memory();
    tune(&tuner(&rows(), &store, settings()), &problem(64));
    for mode_ in MODES {
        let now = rows();
        assert_eq!(tuner(&now, &store, mode(mode_)).choose(&problem(64)).unwrap().candidate.variant, "a");
        assert_eq!(now[2].count.launches(), 0, "{mode_}");
    }
}

#[test]
fn where_there_are_workers_an_imported_winner_runs_in_one_first() {
    fn crashes(request: &SandboxRequest) -> Option<Result<Passed, Rejection>> {
        match request.candidate.variant.as_str() {
            "a" => Some(Err(Rejection::Crashed { reason: "signal 11".into() })),
            _ => Some(Ok(Passed { error: 0.1, seconds: 1e-3 })),
        }
    }
    for mode_ in PROVING {
        let store = importing(elsewhere());
        let fake = Fake::new();
        *fake.worker.lock().unwrap() = Some(crashes);
        // It would panic if it were built here.
        let now = rows_where_a(Act::BuildPanics);
        let here = on(fake, &now, &store, mode(mode_));
        assert!(launch(&here, &problem(64)).unwrap(), "{mode_}");
        assert_ne!(here.choose(&problem(64)).unwrap().candidate.variant, "a", "{mode_}");
        assert_eq!(now[2].count.builds(), 0, "{mode_}");
        assert_eq!(warplap_core::quarantine::all(&store).len(), 1, "{mode_}");
    }
}

#[test]
fn while_nothing_may_be_launched_an_unproved_winner_waits() {
    let store = importing(elsewhere());
    let here = tuner(&rows(), &store, mode(Mode::Tune));
    *here.device().busy.lock().unwrap() = Some("a capture is going on".into());
    let chosen = here.choose(&problem(64)).unwrap();
    assert!(chosen.candidate.variant != "a" && matches!(chosen.how, How::Default(_)), "{:?}", chosen.how);
    *here.device().busy.lock().unwrap() = None;
    assert_eq!(here.choose(&problem(64)).unwrap().candidate.variant, "a");
}

#[test]
fn what_others_measured_is_not_taken_for_ones_own() {
    let store = importing(elsewhere());
    // Somebody new races against the imported winner; `b` and `first` do not.
    let now: Vec<Row> = rows().into_iter().chain([row("new", 0.5e-3)]).collect();
    let here = tuner(&now, &store, settings());
    let tuned = tune(&here, &problem(64));
    assert_eq!((tuned.from_store, tuned.edition.verdict.winner.variant.as_str()), (false, "new"));
    assert_eq!(tuned.edition.origin, store.id());
    let right = tuned.edition.trials.iter().filter(|t| t.is_right()).map(|t| t.candidate.variant.as_str());
    assert!(right.into_iter().all(|v| now.iter().any(|r| r.id == v && r.count.launches() > 0)), "{:?}", tuned.edition);
    // And they are no newcomers the next time.
    assert!(tune(&here, &problem(64)).from_store);
}

#[test]
fn an_imported_time_that_this_device_cannot_reach_is_raced() {
    let mut record = elsewhere();
    for trial in &mut record.editions[0].trials {
        if let warplap_core::candidate::Outcome::Measured(m) = &mut trial.outcome {
            (m.median_us, m.ci_us, m.samples_us) = (1e-3, [1e-3; 2], vec![1e-3]);
        }
    }
    (record.editions[0].verdict.median_us, record.editions[0].verdict.ci_us) = (1e-3, [1e-3; 2]);
    let store = importing(record);
    // 64 elements at a million a second.
    let here = on(Fake::new().with_rate(1e6), &rows(), &store, settings());
    let tuned = tune(&here, &problem(64));
    assert!(!tuned.from_store && tuned.edition.verdict.median_us > 900.0, "{:?}", tuned.edition.verdict);
}

#[test]
fn a_record_that_does_not_hold_together_is_not_taken_in() {
    type Spoil = fn(&mut Record);
    let spoils: [Spoil; 8] = [
        |r| r.editions[0].trials.retain(|t| t.candidate.variant != "a"),
        |r| {
            let wrong = Rejection::WrongAnswer { error: 1.0, allowed: 0.1, reason: "off".into() };
            let won = r.editions[0].trials.iter_mut().find(|t| t.candidate.variant == "a").unwrap();
            won.outcome = warplap_core::candidate::Outcome::Rejected(wrong);
        },
        |r| r.editions[0].verdict.median_us = 0.0,
        |r| r.editions[0].verdict.median_us = -1.0,
        |r| r.editions[0].verdict.median_us = 1e300,
        |r| r.editions[0].floor_us = Some(1e9),
        |r| r.editions[0].floor_us = Some(-1.0),
        |r| r.editions[0].seconds = 1e308,
    ];
    for (n, spoil) in spoils.iter().enumerate() {
        let mut record = elsewhere();
        spoil(&mut record);
        let store = memory();
        let said = store.merge(record).unwrap_err().to_string();
        assert!(said.contains("cannot be stored"), "{n}: {said}");
        assert!(store.entries().is_empty(), "{n}");
    }
}

#[test]
fn in_replay_a_winner_that_never_met_the_programs_own_call_leaves_it_the_answer() {
    // Tuned by a program without that call, and proved here.
    let store = importing(elsewhere());
    let [reference, first, a, b] = rows();
    let all = [reference, first, a, b, row("host", 2e-3).usual()];
    let replay = || tuner(&all, &store, mode(Mode::Replay));
    let record = store.read(&replay().key(&problem(64)), &replay().device_slug()).unwrap();
    assert!(replay().prove(&record).unwrap().failed.is_empty());
    let chosen = replay().choose(&problem(64)).unwrap();
    assert_eq!(chosen.candidate.variant, "host");
    assert!(matches!(chosen.how, How::Default(why) if why.contains("never raced beside")));
    assert!(!AnyTuner::find(&replay(), &Scale::text(&problem(64))).unwrap().met_the_host);
    // One short race against the winner settles it.
    let tuned = tune(&tuner(&all, &store, settings()), &problem(64));
    assert!(!tuned.from_store && trial(&tuned.edition, "host").is_right());
    let chosen = replay().choose(&problem(64)).unwrap();
    assert_eq!((chosen.candidate.variant.as_str(), chosen.how), ("a", How::Stored));
}
