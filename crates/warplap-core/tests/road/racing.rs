//! Who races against whom, and for how long.

use std::sync::Barrier;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use warplap_core::engine::How;
use warplap_core::progress::{Event, Observer};
use warplap_core::settings::{Budget, Settings, Stop};
use warplap_core::variant::Fit;
use warplap_core::verdict::Grade;

use crate::fake::{Act, Fake, Row, problem, row};
use crate::support::*;

#[test]
fn the_winner_is_stored_with_every_trial_and_every_reason() {
    let rows = [
        row("reference", 9e-3),
        row("fast", 1e-3).configs(&[4e-3, 1e-3, 3e-3]),
        row("broken", 1e-3).act(Act::BuildFails),
        row("wrong", 1e-4).act(Act::OffBy(1.0)),
        row("aside", 1e-3).fit(Fit::aside("not today")),
        Row { needs: warplap_core::variant::Needs { workspace: 4000, ..Default::default() }, ..row("large", 1e-3) },
    ];
    let store = memory();
    let tuner = tuner(&rows, &store, settings());
    let tuned = tune(&tuner, &problem(64));
    let record = tuner.record(&problem(64)).unwrap();
    assert_eq!(record.editions, std::slice::from_ref(&tuned.edition));
    let e = &tuned.edition;
    assert_eq!(e.verdict.winner.to_string(), "fast[i=1]");
    assert_eq!(e.trials.iter().filter(|t| t.candidate.variant == "fast").count(), 3);
    let fates = ["reference", "broken", "wrong"].map(|id| fate(e, id));
    assert_eq!(fates, ["outpaced", "does_not_build", "wrong_answer"]);
    let why = |id: &str| e.skipped.iter().find(|s| s.variant == id).map(|s| s.reason.as_str()).unwrap_or("");
    assert_eq!((why("aside"), why("large")), ("not today", "over limits: bytes of workspace 4000 of 1000"));
    assert_eq!(rows[5].count.builds() + rows[4].count.builds(), 0);
    assert_eq!((e.verdict.grade, e.verdict.confidence), (Grade::Clean, 0.99));
    assert!((e.verdict.median_us - 1000.0).abs() < 20.0 && e.verdict.launches > 0 && e.verdict.rounds > 0);
}

#[test]
fn lower_tiers_are_skipped_when_the_high_tier_is_good_enough_and_the_record_says_so() {
    let rows = [row("reference", 9e-3).fit(Fit::LOW), row("mid", 1e-4).fit(Fit::MEDIUM), row("high", 1.2e-3)];
    let store = memory();
    // 1000 elements at a million a second: the floor is a millisecond.
    let tuner = on(Fake::new().with_rate(1e6), &rows, &store, settings());
    let tuned = tune(&tuner, &problem(1000));
    assert_eq!(tuned.edition.verdict.winner.variant, "high");
    assert_eq!(rows[0].count.builds() + rows[1].count.builds(), 0);
    let reason = |id: &str| tuned.edition.skipped.iter().find(|s| s.variant == id).unwrap().reason.clone();
    assert!(reason("mid").contains("83 % of the roofline") && reason("reference").contains("low priority"));
    assert!(tune(&tuner, &problem(1000)).from_store, "what was skipped is not new");
    let slow = [row("reference", 9e-3).fit(Fit::LOW), row("mid", 1.1e-3).fit(Fit::MEDIUM), row("high", 4e-3)];
    let tuner = on(Fake::new().with_rate(1e6), &slow, &memory(), settings());
    assert_eq!(tune(&tuner, &problem(1000)).edition.verdict.winner.variant, "mid");
}

#[test]
fn a_tier_whose_last_batch_is_the_incumbent_alone_still_opens_the_next() {
    // 25 configs: the second batch of 24 is one candidate, and that one is the incumbent of a second tuning.
    let mut times = vec![8e-3; 25];
    times[24] = 4e-3;
    let rows = [row("reference", 9e-3).fit(Fit::LOW), row("high", 1.0).configs(&times)];
    let store = memory();
    let first = on(Fake::new().with_rate(1e6), &rows, &store, settings());
    assert_eq!(tune(&first, &problem(1000)).edition.verdict.winner.to_string(), "high[i=24]");
    let faster = [row("reference", 1.5e-3).fit(Fit::LOW).source("2"), rows[1].clone()];
    let again = Settings { again: true, ..settings() };
    let second = on(Fake::new().with_rate(1e6), &faster, &store, again);
    assert_eq!(tune(&second, &problem(1000)).edition.verdict.winner.variant, "reference");
}

#[test]
fn a_new_variant_races_only_the_stored_winner() {
    let store = memory();
    let rows = [row("reference", 9e-3), row("slow", 3e-3).fit(Fit::LOW), row("won", 2e-3), row("second", 2.5e-3)];
    tune(&tuner(&rows, &store, settings()), &problem(64));
    let before: Vec<u64> = rows.iter().map(|r| r.count.builds()).collect();
    let more: Vec<Row> = rows.iter().cloned().chain([row("new", 1e-3)]).collect();
    let next = tuner(&more, &store, settings());
    let tuned = tune(&next, &problem(64));
    assert_eq!(tuned.edition.verdict.winner.variant, "new");
    let builds: Vec<u64> = rows.iter().zip(&before).map(|(r, b)| r.count.builds() - b).collect();
    assert_eq!(builds, [0, 0, 1, 0], "nobody but the stored winner was built again");
    for id in ["reference", "won", "second", "new"] {
        assert_ne!(fate(&tuned.edition, id), "nothing", "{id} is still in the record");
    }
    assert!(tuned.edition.skipped.iter().any(|s| s.variant == "slow"), "and so is what was skipped");
    let laps = next.device().counts()[1];
    assert!(tune(&next, &problem(64)).from_store && next.device().counts()[1] == laps);
    assert!(tune(&tuner(&more, &store, settings()), &problem(64)).from_store, "and it is a hit from then on");
}

#[test]
fn a_stored_winner_that_is_not_right_any_more_brings_everyone_back() {
    let store = memory();
    let rows = [row("reference", 9e-3), row("won", 1e-3), row("second", 2e-3)];
    tune(&tuner(&rows, &store, settings()), &problem(64));
    // The machine changed under it: the code is the same, the answer is not.
    let now = [rows[0].clone(), row("won", 1e-3).act(Act::OffBy(1.0)), rows[2].clone(), row("new", 5e-3)];
    let tuned = tune(&tuner(&now, &store, settings()), &problem(64));
    assert_eq!(tuned.edition.verdict.winner.variant, "second");
    assert_eq!(fate(&tuned.edition, "won"), "wrong_answer");
}

#[test]
fn a_tie_keeps_the_incumbent() {
    for other in ["a", "z"] {
        let store = memory();
        let reference = row("reference", 9e-3);
        tune(&tuner(&[reference.clone(), row("m", 1e-3)], &store, settings()), &problem(64));
        // One per cent faster is not worth a change.
        let rows = [reference, row("m", 1e-3), row(other, 0.992e-3)];
        let tuned = tune(&tuner(&rows, &store, settings()), &problem(64));
        assert_eq!(tuned.edition.verdict.winner.variant, "m");
        assert_eq!(fate(&tuned.edition, other), "measured");
    }
}

#[test]
fn other_work_on_the_device_shows_in_the_grade() {
    let device = Fake::new();
    device.contended.store(true, Ordering::SeqCst);
    let tuner = on(device, &[row("reference", 2e-3), row("b", 1e-3)], &memory(), settings());
    assert_eq!(tune(&tuner, &problem(64)).edition.verdict.grade, Grade::Contended);
}

#[test]
fn sixty_four_threads_on_one_key_tune_once() {
    let rows = [row("reference", 9e-3), row("loser", 3e-3), row("winner", 1e-3)];
    let store = memory();
    let tuner = tuner(&rows, &store, settings());
    let start = Barrier::new(64);
    std::thread::scope(|scope| {
        for _ in 0..64 {
            scope.spawn(|| {
                start.wait();
                assert!(launch(&tuner, &problem(64)).unwrap());
                assert_eq!(tuner.choose(&problem(64)).unwrap().candidate.variant, "winner");
            });
        }
    });
    assert_eq!([rows[0].count.builds(), rows[1].count.builds()], [1, 1]);
    assert_eq!(store.entries().len(), 1);
}

#[test]
fn many_problems_at_once_from_many_threads_each_get_their_own_winner() {
    // Which variant is best depends on the size: `even` does only even ones.
    let rows = [row("reference", 9e-3), row("any", 2e-3), row("even", 1e-3).multiple(2)];
    let store = memory();
    let tuner = tuner(&rows, &store, settings());
    std::thread::scope(|scope| {
        for t in 0..16u64 {
            let tuner = &tuner;
            scope.spawn(move || {
                for i in 0..24 {
                    let p = problem(16 + (i * 7 + t) % 24);
                    assert!(launch(tuner, &p).unwrap());
                    let expected = if p.n.is_multiple_of(2) { "even" } else { "any" };
                    assert_eq!(tuner.choose(&p).unwrap().candidate.variant, expected);
                }
            });
        }
    });
    assert_eq!(store.entries().len(), 24);
    assert_eq!(rows[0].count.builds(), 24, "each key was raced once");
}

fn budget(seconds: f64, trials: u64) -> Settings {
    Settings { budget: Budget { seconds, trials, ..Budget::default() }, ..settings() }
}

#[test]
fn the_budget_of_seconds_is_kept() {
    // Two hundred candidates of 3 ms each: proving them alone would take over a second.
    let slow = row("slow", 3e-3).configs(&[3e-3; 200]).real(3000);
    let started = Instant::now();
    let tuned =
        tune(&tuner(&[row("reference", 3e-3).real(3000), slow.clone()], &memory(), budget(0.3, 10_000)), &problem(64));
    let took = started.elapsed().as_secs_f64();
    // One batch may be under way; on a loaded machine sleeping takes longer than asked for.
    assert!((0.25..0.7).contains(&took), "{took} s of 0.3");
    let e = &tuned.edition;
    assert_eq!((e.verdict.grade, e.verdict.confidence), (Grade::Capped, 0.0));
    let spent: u64 = e.skipped.iter().filter(|s| s.reason.contains("budget")).map(|s| s.configs).sum();
    assert_eq!(spent + e.trials.len() as u64, 201, "what was not tried is named: {:?}", e.skipped);
    assert!(slow.count.builds() < 150);
}

#[test]
fn the_budget_of_trials_is_kept_and_what_was_left_is_not_new() {
    for trials in [1, 2, 3, 7, 30] {
        let rows = [row("reference", 9e-3), row("a", 1e-3).configs(&[2e-3; 40]), row("b", 1e-3), row("c", 1e-3)];
        let store = memory();
        let tuner = tuner(&rows, &store, budget(60.0, trials));
        let tuned = tune(&tuner, &problem(64));
        assert_eq!(tuned.edition.trials.len() as u64, trials);
        let laps = tuner.device().counts()[1];
        assert!(tune(&tuner, &problem(64)).from_store, "{trials} trials");
        assert_eq!(tuner.device().counts()[1], laps);
    }
}

#[test]
fn however_small_the_budget_somebody_right_is_found() {
    for (seconds, trials) in [(0.0, 10_000), (0.0, 0), (60.0, 0), (60.0, 1), (-1.0, 1), (f64::MIN_POSITIVE, 1)] {
        let rows = [row("reference", 9e-3), row("first", 1e-3)];
        let tuner = tuner(&rows, &memory(), budget(seconds, trials));
        assert!(launch(&tuner, &problem(64)).unwrap(), "{seconds} s, {trials} trials");
        assert_eq!(tuner.choose(&problem(64)).unwrap().how, How::Raced);
        // The first choices are all wrong: the reference is right.
        let wrong = |id: &str| row(id, 1e-3).act(Act::OffBy(1.0)).configs(&[1e-3; 30]);
        let rows = [row("reference", 9e-3).fit(Fit::LOW), wrong("x"), wrong("y")];
        let tuner = tuner_with(&rows, seconds, trials);
        assert!(launch(&tuner, &problem(64)).unwrap(), "{seconds} s, {trials} trials");
        let chosen = tuner.choose(&problem(64)).unwrap();
        assert_eq!((chosen.candidate.variant.as_str(), chosen.how), ("reference", How::Raced));
        assert!(rows[1].count.builds() + rows[2].count.builds() <= 2, "the budget was spent after the first");
    }
}

fn tuner_with(rows: &[Row], seconds: f64, trials: u64) -> T {
    tuner(rows, &memory(), budget(seconds, trials))
}

/// Says stop at the n-th event of a kind.
struct Stopper<'a> {
    stop: &'a Stop,
    at: &'static str,
    left: std::sync::atomic::AtomicI64,
}

impl Observer for Stopper<'_> {
    fn event(&self, event: &Event<'_>) {
        let word = match event {
            Event::Proved(_) => "proved",
            Event::Racing(_) => "racing",
            Event::Leader(..) => "leader",
            Event::Tried(_) => "tried",
            _ => "other",
        };
        if word == self.at && self.left.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.stop.say();
        }
    }
}

#[test]
fn stop_said_anywhere_keeps_what_was_measured() {
    for at in ["proved", "racing", "leader", "tried"] {
        for n in [1, 2, 3, 20, 25, 30] {
            let rows = [row("reference", 9e-3), row("a", 1.0).configs(&[2e-3; 30]), row("best", 1e-3)];
            let stop = Stop::default();
            let store = memory();
            let tuner = tuner(&rows, &store, Settings { stop: stop.clone(), ..settings() });
            let observer = Stopper { stop: &stop, at, left: n.into() };
            let tuned = tuner.tune(&problem(64), &observer).unwrap_or_else(|e| panic!("{n} {at}: {e}"));
            let e = &tuned.edition;
            let won = e.trials.iter().find(|t| t.candidate == e.verdict.winner).unwrap();
            assert!(won.is_right(), "{n} {at}");
            // Said after the last race was decided, it cuts nothing off.
            let cut = stop.said() && (matches!(at, "proved" | "racing") || e.trials.len() < 32);
            let expected = if cut { (Grade::Capped, 0.0) } else { (Grade::Clean, 0.99) };
            assert_eq!((e.verdict.grade, e.verdict.confidence), expected, "{n} {at}");
            assert!(cut || e.verdict.winner.variant == "best", "{n} {at}");
            assert_eq!(tuner.record(&problem(64)).unwrap().editions.len(), 1);
            let tried = e.trials.len() as u64;
            let skipped: u64 = e.skipped.iter().map(|s| s.configs).sum();
            assert!(tried + skipped >= 32, "{n} {at}: everyone is in the record");
        }
    }
}

#[test]
fn a_stop_in_a_second_race_leaves_the_first_ones_winner_standing() {
    // Batch one holds the best; stop comes while batch two is proved.
    let rows = [row("reference", 9e-3), row("best", 1e-3), row("many", 1.0).configs(&[5e-3; 60])];
    let stop = Stop::default();
    let tuner = tuner(&rows, &memory(), Settings { stop: stop.clone(), ..settings() });
    let observer = Stopper { stop: &stop, at: "proved", left: 26.into() };
    let e = tuner.tune(&problem(64), &observer).unwrap().edition;
    assert!(stop.said());
    assert_eq!((e.verdict.winner.variant.as_str(), e.verdict.grade), ("best", Grade::Capped));
    assert!((e.verdict.median_us - 1000.0).abs() < 50.0);
}

#[test]
fn short_and_long_kernels_keep_their_budget() {
    for (micros, seconds) in [(1, 0.1), (60_000, 0.4)] {
        let rows =
            [row("reference", 1e-3).real(micros), row("b", 1.005e-3).real(micros), row("c", 1.004e-3).real(micros)];
        let started = Instant::now();
        tune(&tuner(&rows, &memory(), budget(seconds, 100)), &problem(16));
        let took = started.elapsed();
        // A launch under way is not interrupted; the winner is proved once more.
        let most =
            Duration::from_secs_f64(1.1 * seconds) + 4 * Duration::from_micros(micros) + Duration::from_millis(150);
        assert!(took <= most, "{took:?} of {seconds} s");
    }
}
