//! The fleet on this machine: real workers, some of which are killed. About 20 s.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::{Corner, Ended, program};

/// Longer than anything here should take, on a machine that is busy.
const LONG: Duration = Duration::from_secs(120);

/// The program with a store and a place for locks of its own.
fn fleet(place: &Corner) -> Command {
    let mut command = program(&place.store());
    for name in ["WARPLAP_FLEET_FAULT", "WARPLAP_THREADS", "WARPLAP_NODE", "WARPLAP_PROGRAM", "XDG_RUNTIME_DIR"] {
        command.env_remove(name);
    }
    command.env("TMPDIR", place.dir.path());
    command
}

fn problems(count: usize) -> Vec<String> {
    (1..=count).map(|n| format!("gemm:m={},n=8,k=8,dtype=f32", 8 * n)).collect()
}

/// `fleet tune` on the CPU, with faults.
fn tune(place: &Corner, problems: &[String], more: &[&str], fault: &str) -> Command {
    let mut command = fleet(place);
    command.args(["fleet", "tune", "--device", "cpu", "--bucket", "exact", "--budget", "0.05", "--json"]);
    command.args(more).args(problems).env("WARPLAP_FLEET_FAULT", fault);
    command
}

fn jobs(place: &Corner, problems: &[String]) -> Vec<Value> {
    let ended = Ended::of(tune(place, problems, &["--dry-run"], "").output().unwrap());
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    ended.lines().into_iter().map(|line| line["job"].clone()).collect()
}

/// A worker that is fed by hand.
struct Worker {
    child: Child,
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
}

impl Worker {
    fn start(place: &Corner, fault: &str) -> Worker {
        let mut command = fleet(place);
        command.args(["fleet", "work", "--device", "cpu"]).env("WARPLAP_FLEET_FAULT", fault);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (to, from) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        Worker { child, to, from }
    }

    fn send(&mut self, line: &str) {
        writeln!(self.to.as_mut().unwrap(), "{line}").unwrap();
    }

    fn hear(&mut self) -> Value {
        let mut line = String::new();
        self.from.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e} in '{line}'"))
    }

    /// Its last words, and that it ends by itself.
    fn end(mut self) -> Vec<Value> {
        self.to = None;
        let rest = (&mut self.from).lines().map(|l| serde_json::from_str(&l.unwrap()).unwrap()).collect();
        assert!(self.child.wait().unwrap().success());
        rest
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill().and_then(|()| self.child.wait());
    }
}

fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    while began.elapsed() < LONG {
        if let Some(seen) = look() {
            return seen;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("{what}: waited for {LONG:?}");
}

/// Lines of a log of begun races: id, class, process, when.
fn log(path: &Path) -> Vec<(String, String, i32)> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let line = |l: &str| {
        let mut words = l.split(' ').map(str::to_string);
        Some((words.next()?, words.next()?, words.next()?.parse().ok()?))
    };
    text.lines().filter_map(line).collect()
}

#[test]
fn a_worker_answers_what_it_can_refuses_another_class_and_survives_nonsense() {
    let place = Corner::new();
    let good = jobs(&place, &problems(1)).remove(0);
    let with = |field: &str, value: Value| {
        let mut job = good.clone();
        job[field] = value;
        job.to_string()
    };
    let mut worker = Worker::start(&place, "");
    worker.send(&with("device", "other-12345678".into()));
    let refused = worker.hear();
    assert_eq!(refused["state"], "refused");
    assert!(refused["why"].as_str().unwrap().contains("other-12345678"), "{refused}");
    worker.send(&with("soft", "0000000000000000".into()));
    assert_eq!(worker.hear()["state"], "refused");
    for (line, part) in [
        ("nonsense".to_string(), "not a job line"),
        ("x".repeat(1 << 23), "expected at most"),
        (with("budget", (-1).into()), "budget"),
        (with("problem", "gemm:m=0".into()), "m"),
        (with("search", "fast".into()), "search"),
        (with("op", "norm".into()), "op is 'norm'"),
    ] {
        worker.send(&line);
        let failed = worker.hear();
        assert_eq!(failed["state"], "failed", "{failed}");
        assert!(failed["why"].as_str().unwrap().contains(part), "{failed}");
    }
    worker.send(&good.to_string());
    assert_eq!(worker.hear()["state"], "begun");
    let done = worker.hear();
    assert_eq!((&done["state"], &done["from_store"]), (&json!("done"), &json!(false)), "{done}");
    worker.send(&good.to_string());
    assert_eq!(worker.hear()["state"], "begun");
    assert_eq!(worker.hear()["from_store"], true);
    assert!(worker.end().is_empty());
}

#[test]
fn jobs_that_kill_their_worker_are_tried_again_and_a_poisoned_one_is_given_up_with_its_reason() {
    let place = Corner::new();
    let all = problems(12);
    let planned = jobs(&place, &all);
    let poison = planned[3]["id"].as_str().unwrap();
    let marks = place.dir.path().join("marks");
    std::fs::create_dir(&marks).unwrap();
    let log_file = place.dir.path().join("log");
    let fault = format!("die-once=40,poison={poison},marks={},log={}", marks.display(), log_file.display());
    let ended = Ended::of(tune(&place, &all, &[], &fault).output().unwrap());
    assert_eq!(ended.code, 1, "{}", ended.stderr);
    let mut lines = ended.lines();
    let sum = lines.pop().unwrap();
    assert_eq!((&sum["wanted"], &sum["done"], &sum["failed"]), (&json!(12), &json!(11), &json!(1)), "{sum}");
    let failed = lines.iter().find(|l| l["state"] == "failed").unwrap();
    assert_eq!((failed["id"].as_str(), &failed["attempt"]), (Some(poison), &json!(3)));
    assert!(failed["why"].as_str().unwrap().contains("signal: 9"), "{failed}");
    // Each race began once, and once more for each death.
    let mut begun: BTreeMap<String, usize> = BTreeMap::new();
    log(&log_file).into_iter().for_each(|(id, ..)| *begun.entry(id).or_default() += 1);
    for job in &planned {
        let id = job["id"].as_str().unwrap();
        let expected = if id == poison { 3 } else { 1 + usize::from(marks.join(id).exists()) };
        assert_eq!(begun[id], expected, "{id}");
    }
    // What is done is not done again.
    let ended = Ended::of(tune(&place, &all, &[], "").output().unwrap());
    let sum = ended.lines().pop().unwrap();
    assert_eq!((&sum["done"], &sum["from_store"], &sum["failed"]), (&json!(1), &json!(11), &json!(0)), "{sum}");
}

#[test]
fn a_fleet_that_was_killed_goes_on_and_leaves_no_worker_behind() {
    let place = Corner::new();
    let (all, log_file) = (problems(8), place.dir.path().join("log"));
    let fault = format!("slow=300,log={}", log_file.display());
    let mut first = tune(&place, &all, &[], &fault).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait_for("three races", || (log(&log_file).len() >= 3).then_some(()));
    first.kill().unwrap();
    first.wait().unwrap();
    let killed = Instant::now();
    let worker = Pid::from_raw(log(&log_file).last().unwrap().2).unwrap();
    wait_for("the worker's end", || rustix::process::test_kill_process(worker).is_err().then_some(()));
    assert!(killed.elapsed() < Duration::from_secs(5), "{:?}", killed.elapsed());
    let ended = Ended::of(tune(&place, &all, &[], &fault).output().unwrap());
    let sum = ended.lines().pop().unwrap();
    assert_eq!((ended.code, &sum["failed"]), (0, &json!(0)), "{}", ended.stderr);
    assert!(sum["from_store"].as_u64().unwrap() >= 2, "{sum}");
    assert_eq!(sum["from_store"].as_u64().unwrap() + sum["done"].as_u64().unwrap(), 8, "{sum}");
}

#[test]
fn a_worker_killed_in_a_job_loses_no_other_job() {
    let place = Corner::new();
    let (all, log_file) = (problems(5), place.dir.path().join("log"));
    let fault = format!("slow=500,log={}", log_file.display());
    let running = tune(&place, &all, &[], &fault).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let (victim, _, process) = wait_for("two races", || log(&log_file).get(1).cloned());
    kill_process(Pid::from_raw(process).unwrap(), Signal::KILL).unwrap();
    let ended = Ended::of(running.wait_with_output().unwrap());
    let sum = ended.lines().pop().unwrap();
    assert_eq!((ended.code, &sum["done"], &sum["failed"]), (0, &json!(5), &json!(0)), "{}", ended.stderr);
    let again = ended.lines().into_iter().find(|l| l["id"] == victim).unwrap();
    assert_eq!((&again["state"], &again["attempt"]), (&json!("done"), &json!(2)), "{again}");
}

#[test]
fn two_workers_on_one_card_take_turns_and_a_killed_holder_lets_the_next_in() {
    let place = Corner::new();
    let planned = jobs(&place, &problems(2));
    let mut first = Worker::start(&place, "slow=60000");
    first.send(&planned[0].to_string());
    assert_eq!(first.hear()["state"], "begun");
    let mut second = Worker::start(&place, "");
    second.send(&planned[1].to_string());
    // The second has its job and the card is held: nothing is heard of it until the holder dies.
    let ready = wait_for("an answer", || {
        std::thread::sleep(Duration::from_secs(2));
        kill_process(Pid::from_child(&first.child), Signal::KILL).ok().map(|()| Instant::now())
    });
    let begun = second.hear();
    let free = ready.elapsed();
    assert_eq!(begun["state"], "begun");
    assert!(free < Duration::from_secs(5), "{free:?}");
    let killed = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap() - free;
    assert!(begun["at"].as_f64().unwrap() > killed.as_secs_f64() - 0.05, "it began while the card was held");
    assert_eq!(second.hear()["state"], "done");
    second.end();
}

#[test]
fn bad_input_of_a_fleet_names_its_field() {
    let place = Corner::new();
    for (args, part) in [
        (&["--device", "h900"][..], "--device h900: expected a class that is there"),
        (&["--suite", "/nowhere"], "--suite /nowhere"),
        (&["--engine", "cloud"], "possible values"),
        (&["--budget", "0"], "expected seconds"),
        (&["gem:m=1"], "'gem'"),
    ] {
        let ended = Ended::of(fleet(&place).args(["fleet", "tune"]).args(args).output().unwrap());
        assert_eq!(ended.code, 2, "{args:?}: {}", ended.stderr);
        assert!(ended.stderr.contains(part), "{args:?}: {}", ended.stderr);
    }
}
