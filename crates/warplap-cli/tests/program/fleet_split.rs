//! One key over two cards: two real workers on the CPU, each with a thread of its own, race shares and finals. About 15 s.

use std::collections::BTreeSet;
use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::{Corner, Ended, program};

/// Its space has more candidates than anchors.
const PROBLEM: &str = "gemm:m=64,n=64,k=64,dtype=f32";

/// The program on a machine whose CPU counts as two cards of one thread.
fn fleet(place: &Corner) -> Command {
    let mut command = program(&place.store());
    for name in ["WARPLAP_FLEET_FAULT", "WARPLAP_NODE", "WARPLAP_PROGRAM", "XDG_RUNTIME_DIR"] {
        command.env_remove(name);
    }
    command.env("TMPDIR", place.dir.path()).envs([("WARPLAP_THREADS", "1"), ("WARPLAP_CPU_CARDS", "2")]);
    command
}

fn tune(place: &Corner, more: &[&str]) -> Ended {
    let mut command = fleet(place);
    command.args(["fleet", "tune", "--device", "cpu", "--bucket", "exact", "--budget", "3", "--json", PROBLEM]);
    Ended::of(command.args(more).output().unwrap())
}

/// The one edition that the store has of the problem, for the class with one thread.
fn edition(place: &Corner) -> Value {
    let record = |(path, bytes): (std::path::PathBuf, Vec<u8>)| {
        path.starts_with(place.store().join("records-v1")).then_some(())?;
        Some(serde_json::from_slice::<Value>(&bytes).ok()?["record"].take())
    };
    let mut records: Vec<Value> = place.snapshot().into_iter().filter_map(record).collect();
    assert_eq!(records.len(), 1, "one key was tuned");
    let editions = records[0]["editions"].as_array_mut().unwrap();
    assert_eq!(editions.len(), 1, "the shares leave no record of their own");
    editions.remove(0)
}

#[test]
fn a_key_split_over_two_cards_has_one_record_that_names_them_and_answers_afterwards() {
    let place = Corner::new();
    // A busy machine makes two cores differ by more than the usual gate lets through.
    let ended = tune(&place, &["--split", "--gate", "1000"]);
    let lines = ended.lines();
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(ended.stderr.contains("2 shares") && !ended.stderr.contains("not split"), "{}", ended.stderr);
    assert_eq!((lines.len(), &lines[0]["state"], &lines[0]["from_store"]), (2, &json!("done"), &json!(false)));
    assert_eq!((&lines[1]["done"], &lines[1]["failed"]), (&json!(1), &json!(0)), "{}", lines[1]);

    let edition = edition(&place);
    let trials = edition["trials"].as_array().unwrap();
    let card = |ran: &Value| ran["card"].as_str().unwrap().rsplit(':').next().unwrap().to_string();
    let cards: BTreeSet<String> = trials.iter().map(|trial| card(&trial["ran"])).collect();
    assert_eq!(cards, ["cpu-0", "cpu-1"].map(String::from).into(), "every trial says its card");
    let who = |trial: &Value| (trial["variant"].clone(), trial["config"].clone());
    let all: Vec<_> = trials.iter().map(who).collect();
    assert!((0..all.len()).all(|at| !all[..at].contains(&all[at])), "nobody is there twice");
    let finals: Vec<&Value> = trials.iter().filter(|trial| trial["ran"]["stage"] == "finals").collect();
    assert!((1..=12).contains(&finals.len()) && finals.len() < trials.len(), "{} of {}", finals.len(), trials.len());
    let winner = &edition["verdict"]["winner"];
    let won = finals.iter().find(|trial| who(trial) == who(winner)).expect("the winner was in the finals");
    let (own, also) = (card(&won["ran"]), card(&won["ran"]["also"][0]));
    assert_ne!(own, also, "and on two cards");
    let measured = &won["measured"];
    let times = measured.as_object().map_or(&won["rejected"]["measurement"]["median_us"], |m| &m["median_us"]);
    assert_eq!(times, &edition["verdict"]["median_us"], "a time is the time of one card");

    // A worker that knows nothing of the split is answered by the store.
    let known = tune(&place, &["--dry-run"]);
    assert_eq!((known.code, known.lines().len()), (0, 0), "{}", known.stdout);
    assert_eq!(tune(&place, &["--split"]).lines().pop().unwrap()["from_store"], 1);
    let answer = asked(&place);
    assert_eq!((&answer["state"], &answer["from_store"]), (&json!("done"), &json!(true)), "{answer}");
    assert_eq!(answer["winner"], lines[0]["winner"]);
    // Whoever reads records reads this one.
    let checked = place.run(&["store", "verify"]);
    assert_eq!(checked.code, 0, "{}{}", checked.stdout, checked.stderr);
    let bundle = place.dir.path().join("split.bundle");
    let exported = place.run(&["store", "export", bundle.to_str().unwrap()]);
    assert_eq!(exported.code, 0, "{}{}", exported.stdout, exported.stderr);
}

/// What a worker of the class says when it is asked for the problem.
fn asked(place: &Corner) -> Value {
    let elsewhere = Corner::new();
    let planned = tune(&elsewhere, &["--dry-run"]).lines().remove(0);
    let mut command = fleet(place);
    command.args(["fleet", "work", "--device", "cpu"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut worker = command.stderr(Stdio::piped()).spawn().unwrap();
    writeln!(worker.stdin.take().unwrap(), "{}", planned["job"]).unwrap();
    let mut said = Ended::of(worker.wait_with_output().unwrap()).lines();
    said.pop().unwrap()
}

#[test]
fn a_split_needs_two_cards_and_an_engine_that_tells_them_apart() {
    let place = Corner::new();
    let refused = tune(&place, &["--split", "--engine", "slurm"]);
    assert_eq!(refused.code, 2, "{}", refused.stderr);
    assert!(refused.stderr.contains("--split: expected --engine here"), "{}", refused.stderr);
    let mut one = fleet(&place);
    one.env("WARPLAP_CPU_CARDS", "1").args(["fleet", "tune", "--device", "cpu", "--bucket", "exact", "--json"]);
    let one = Ended::of(one.args(["--budget", "0.1", "--split", PROBLEM]).output().unwrap());
    assert!(one.stderr.contains("nothing is split"), "{}", one.stderr);
    assert_eq!((one.code, &one.lines()[0]["state"]), (0, &json!("done")), "{}", one.stderr);
    let edition = edition(&place);
    assert!(edition["trials"].as_array().unwrap().iter().all(|trial| trial.get("ran").is_none()));
}
