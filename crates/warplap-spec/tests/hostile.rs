//! Hostile kernels in C: whatever one does, it is named, it costs only itself, and the next run leaves it out.
#![cfg(target_os = "linux")]

#[path = "hostile/cheats.rs"]
mod cheats;
#[path = "hostile/harness.rs"]
mod harness;
#[path = "hostile/reach.rs"]
mod reach;
#[path = "hostile/table.rs"]
mod table;

use std::path::Path;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use harness::{Folder, HEAD, TURN, contained, kind};
use table::{ROWS, Row};
use warplap::core::candidate::Outcome;
use warplap::core::engine::Tuned;
use warplap::core::rejection::Rejection;
use warplap::core::store::Store;

#[test]
fn hostile_kernels_are_named_and_cost_only_themselves() {
    let short: Vec<&Row> = ROWS.iter().filter(|row| row.short).collect();
    let wrong = contained(&short, 60.0);
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), short.len(), wrong.join("\n"));
}

#[test]
#[ignore = "the long form: every row of the table, about two minutes"]
fn every_hostile_kernel_is_named_and_costs_only_itself() {
    let all: Vec<&Row> = ROWS.iter().collect();
    let wrong: Vec<String> = all.chunks(25).flat_map(|rows| contained(rows, 120.0)).collect();
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), all.len(), wrong.join("\n"));
    assert!(all.len() >= 60);
}

#[test]
fn whoever_reaches_out_of_its_cell_is_ended_or_refused_and_nobody_else_notices() {
    let short: Vec<&Row> = reach::ROWS.iter().filter(|row| row.short).collect();
    let wrong = contained(&short, 120.0);
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), short.len(), wrong.join("\n"));
}

#[test]
#[ignore = "the long form: every way out"]
fn whoever_reaches_out_of_its_cell_in_any_way_is_ended_or_refused_and_nobody_else_notices() {
    let all: Vec<&Row> = reach::ROWS.iter().collect();
    let wrong: Vec<String> = all.chunks(25).flat_map(|rows| contained(rows, 240.0)).collect();
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), all.len(), wrong.join("\n"));
}

/// Tunes within a budget of three seconds. That it is kept shows in a quiet moment: on a busy machine the third try counts
/// as well as the first.
fn soon(folder: &Folder, what: &str) -> Tuned {
    for attempt in 1.. {
        let started = Instant::now();
        let (_, tuned) = folder.tune(&Store::memory(), 3.0);
        let took = started.elapsed().as_secs_f64();
        if took < 6.0 {
            return tuned;
        }
        assert!(attempt < 3, "{what}: {took:.1} s");
    }
    unreachable!()
}

#[test]
fn a_budget_of_three_seconds_is_kept_with_a_kernel_that_hangs_and_there_is_an_answer() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let rows: Vec<&Row> = ROWS.iter().filter(|row| row.name.starts_with("hangs at call")).collect();
    let tuned = soon(&Folder::of(&rows), "hangs");
    assert_eq!(tuned.edition.verdict.winner.config.int("KIND"), Some(0));
}

#[test]
fn where_the_default_config_hangs_or_faults_at_its_fourth_call_another_answers_within_the_budget() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    for what in ["HANG;", "*(volatile int *)0 = 1;", "exit(0);"] {
        let folder = Folder::of(&[&ROWS[0]]);
        let body = "void scale(float *y, const float *x, int n, float a) {\n calls++;\n";
        let bad = format!(" if (KIND == 0 && calls == 4) {{ {what} }}\n");
        let rest = " for (int i = 0; i < n; i++) y[i] = a * x[i];\n}\n";
        std::fs::write(folder.path("k.c"), format!("{HEAD}{body}{bad}{rest}")).unwrap();
        let tuned = soon(&folder, what);
        let said: Vec<String> = tuned.edition.trials.iter().map(|t| format!("{:?}", t.outcome)).collect();
        assert_eq!(tuned.edition.verdict.winner.config.int("KIND"), Some(1), "{what}: {said:#?}");
    }
}

#[test]
fn a_kernel_that_turns_the_clock_of_its_process_tells_no_less_time_than_passes() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let rows: Vec<&Row> = ROWS.iter().filter(|row| row.name == "slows the clock down").collect();
    let (_, tuned) = Folder::sized(&rows, 100_003, 1 << 22).tune(&Store::memory(), 30.0);
    let time = |wanted: usize| {
        let trial = tuned.edition.trials.iter().find(|trial| kind(trial) == wanted);
        trial.and_then(|trial| trial.measurement()).map(|m| m.median_us)
    };
    // A machine that is busy for one of them may make a difference; the clock was to be ten times as slow.
    let (honest, other) = (time(0).unwrap(), time(1).unwrap_or(f64::INFINITY));
    assert!(other > honest / 3.0, "{honest} and {other} µs");
}

/// Races cheats beside the whole work: who won, and what became of each.
fn race_of_cheats(cheats: &[(&str, &str)], elements: u32) -> (i64, Vec<String>) {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let rows: Vec<&Row> = cheats.iter().map(|_| &ROWS[0]).collect();
    let folder = Folder::sized(&rows, elements, 1 << 22);
    let mut source = format!("{}\nvoid scale(float *y, const float *x, int n, float a) {{\n calls++;\n", cheats::HEAD);
    for (number, (_, code)) in cheats.iter().enumerate() {
        source += &format!("#if KIND == {}\n {code}\n#endif\n", number + 1);
    }
    source += "#if KIND == 0\n work(y, x, n, a, 400);\n#endif\n ended = __rdtsc();\n}\n";
    std::fs::write(folder.path("k.c"), source).unwrap();
    let (_, tuned) = folder.tune(&Store::memory(), 120.0);
    let said = tuned.edition.trials.iter().map(|trial| {
        let name = kind(trial).checked_sub(1).map_or("honest", |number| cheats[number].0);
        let outcome = match &trial.outcome {
            Outcome::Measured(m) => format!("{:.3} µs", m.median_us),
            Outcome::Rejected(rejection) => rejection.to_string(),
        };
        format!("{name}: {outcome}")
    });
    let said = said.collect();
    (tuned.edition.verdict.winner.config.int("KIND").unwrap(), said)
}

#[test]
#[cfg(target_arch = "x86_64")]
fn nobody_wins_who_does_less_when_he_is_timed_or_tells_less_time_than_passes() {
    let (winner, said) = race_of_cheats(cheats::CHEATS, 1024);
    assert_eq!(winner, 0, "{said:#?}");
    // Who does nearly the whole work, or hits a bad moment, may be found too slow before he is found out.
    let found = said.iter().filter(|line| line.contains("wrong answer")).count();
    assert!(found + 3 >= cheats::CHEATS.len(), "{said:#?}");
}

/// Much work for each element. At KIND 1 the last answer is copied where every 64th element is as it was.
const REMEMBERS: &str = r#"
#include <string.h>
static float sum, kept[N];
void scale(float *y, const float *x, int n, float a) {
  float s = 0;
  for (int i = 0; i < n; i += 64) s += x[i] * (i + 1);
  if (KIND == 1 && s == sum) { memcpy(y, kept, sizeof kept); return; }
  sum = s;
  for (int i = 0; i < n; i++) { float v = x[i]; for (int k = 0; k < 200; k++) v = v * x[i] + a; y[i] = v; }
  if (KIND == 1) memcpy(kept, y, sizeof kept);
}
"#;

#[test]
fn a_kernel_that_copies_its_last_answer_when_many_elements_are_as_they_were_does_not_win() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = Folder::sized(&[&ROWS[0]], 4096, 1 << 22);
    std::fs::write(folder.path("k.c"), REMEMBERS).unwrap();
    let (_, tuned) = folder.tune(&Store::memory(), 30.0);
    let said: Vec<String> = tuned.edition.trials.iter().map(|t| format!("{:?}", t.outcome)).collect();
    assert_eq!(tuned.edition.verdict.winner.config.int("KIND"), Some(0), "{said:#?}");
    assert!(said.iter().any(|s| s.contains("WrongAnswer")), "{said:#?}");
}

#[test]
#[cfg(target_arch = "x86_64")]
fn nobody_wins_who_does_less_in_place_when_he_is_called_again_soon() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = Folder::sized(&[&ROWS[0], &ROWS[0]], 1024, 1 << 22);
    let spec = std::fs::read_to_string(folder.path("k.toml")).unwrap().replace("\"out\"", "\"inout\"");
    std::fs::write(folder.path("k.toml"), spec).unwrap();
    let body = "void scale(float *y, const float *x, int n, float a) {\n calls++;\n\
        int rounds = KIND == 1 && SOON ? 4 : 400, count = KIND == 2 && SOON ? n / 2 : n;\n\
        for (int i = 0; i < count; i++) y[i] = 0.5f * y[i] + element(x[i], a, rounds);\n ended = __rdtsc();\n}\n";
    std::fs::write(folder.path("k.c"), format!("{}\n{body}", cheats::HEAD)).unwrap();
    let (_, tuned) = folder.tune(&Store::memory(), 30.0);
    let said: Vec<String> = tuned.edition.trials.iter().map(|t| format!("{:?}", t.outcome)).collect();
    assert_eq!(tuned.edition.verdict.winner.config.int("KIND"), Some(0), "{said:#?}");
    assert!(said.iter().any(|s| s.contains("as its timed launches left it")), "{said:#?}");
}

/// Races a right kernel of some sizes while others keep every processor busy: what was said against it.
fn said_on_a_busy_machine(sizes: &[u32], others: usize) -> Vec<String> {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let rows: Vec<&Row> = ROWS.iter().filter(|row| row.name == "has a clock of its own").collect();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..others {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let mut said = Vec::new();
        for size in sizes {
            let tuned = std::panic::catch_unwind(|| Folder::sized(&rows, *size, 1 << 22).tune(&Store::memory(), 3.0).1);
            match tuned {
                Err(_) => said.push(format!("{size}: no answer")),
                Ok(tuned) => said.extend(tuned.edition.trials.iter().filter_map(|trial| match &trial.outcome {
                    Outcome::Rejected(Rejection::Outpaced { .. }) | Outcome::Measured(_) => None,
                    Outcome::Rejected(rejection) => Some(format!("{size}: {rejection}")),
                })),
            }
        }
        over.store(true, Ordering::Relaxed);
        said
    })
}

#[test]
fn a_right_kernel_is_not_rejected_on_a_busy_machine() {
    let said = said_on_a_busy_machine(&[1, 1003, 300_003], 4);
    assert!(said.is_empty(), "{said:#?}");
}

#[test]
#[ignore = "the long form: four loads, seven sizes, ten times"]
fn a_right_kernel_is_not_rejected_whatever_the_load() {
    let sizes = [1, 7, 64, 1003, 30_003, 300_003, 3_000_003];
    for others in [0, 2, 4, 8].into_iter().cycle().take(40) {
        let said = said_on_a_busy_machine(&sizes, others);
        assert!(said.is_empty(), "{others} others: {said:#?}");
    }
}

#[test]
fn the_rows_have_names_of_their_own() {
    let mut names: Vec<&str> = ROWS.iter().chain(reach::ROWS).map(|row| row.name).collect();
    names.sort_unstable();
    names.dedup();
    assert!(names.len() == ROWS.len() + reach::ROWS.len() && Path::new("/proc").is_dir());
}
