//! The last heat: who is faster in a program's own call answers from then on, and the record says so.

use warplap_core::record::EndToEndRace;
use warplap_core::verdict::WonBy;

use crate::fake::{problem, row};
use crate::support::*;

#[test]
fn who_wins_the_last_heat_answers_and_stands_first() {
    let rows = [row("reference", 9e-3), row("ours", 1e-3), row("theirs", 1.1e-3), row("far", 4e-3)];
    let store = memory();
    let tuner = tuner(&rows, &store, settings());
    let won = tune(&tuner, &problem(64)).edition.verdict.winner;
    let is_theirs = |id: &str| id == "theirs" || id == "far";
    let rival = tuner.rival(&problem(64), is_theirs).expect("somebody of the other kind was near");
    assert!(rival.is_library);
    let rival = rival.candidate;
    assert_eq!((won.variant.as_str(), rival.variant.as_str()), ("ours", "theirs"));
    assert!(tuner.built(&problem(64), &rival).is_some());

    tuner.settle(&problem(64), EndToEndRace { winner: rival.clone(), other: won, call_us: 3.0, gap: 0.25 });
    assert_eq!(tuner.choose(&problem(64)).unwrap().candidate, rival);
    assert!(launch(&tuner, &problem(64)).unwrap());
    let result = tune(&crate::support::tuner(&rows, &store, settings()), &problem(64));
    assert!(result.from_store, "another process hears of it");
    let edition = result.edition;
    assert_eq!((edition.verdict.won_by, edition.verdict.margin), (WonBy::Call, Some(0.25)));
    let order: Vec<&str> = edition.ranked().iter().map(|r| r.trial.candidate.variant.as_str()).collect();
    assert_eq!(order, ["theirs", "ours", "far", "reference"]);
    assert!((edition.ranked()[1].behind - 0.25).abs() < 0.02);
    assert!(tuner.rival(&problem(64), is_theirs).is_none(), "the two have met");
}

#[test]
fn who_keeps_its_place_keeps_its_verdict() {
    let rows = [row("reference", 9e-3), row("ours", 1e-3), row("theirs", 1.1e-3)];
    let tuner = tuner(&rows, &memory(), settings());
    let before = tune(&tuner, &problem(64)).edition.verdict;
    let other = tuner.rival(&problem(64), |id| id == "theirs").unwrap().candidate;
    tuner.settle(&problem(64), EndToEndRace { winner: before.winner.clone(), other, call_us: 2.0, gap: 0.01 });
    let edition = tune(&tuner, &problem(64)).edition;
    assert_eq!(edition.verdict, before);
    assert_eq!(edition.end_to_end_race.map(|h| h.gap), Some(0.01));
}

#[test]
fn who_is_far_behind_a_library_or_not_there_is_nobodys_rival() {
    let rows = [row("reference", 9e-3), row("fast", 1e-3), row("slow", 2.5e-3)];
    let tuner = tuner(&rows, &memory(), settings());
    assert!(tuner.rival(&problem(64), |id| id == "slow").is_none(), "nothing was raced");
    tune(&tuner, &problem(64));
    let met = |library: &'static str| tuner.rival(&problem(64), move |id| id == library);
    assert!(met("fast").is_none(), "a cheaper call does not make up for that");
    assert!(met("none").is_none(), "all are of one kind");
    assert!(
        met("slow").is_some_and(|r| r.is_library && r.candidate.variant == "slow"),
        "a library is asked at any rate"
    );
}
