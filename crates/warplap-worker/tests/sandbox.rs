//! The sandbox with a stand-in device: whatever a candidate does in its worker, the caller lives, the worker is
//! replaced where it must be, and the reason is kept.
#![allow(unreachable_pub, dead_code, reason = "the stand-in is shared with the pool's tests")]

mod standin;

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;
use std::time::{Duration, Instant};

use standin::{NO_DEVICE, ask, prove, request, scenario, worker_setup};
use warplap_core::rejection::Rejection;
use warplap_core::sandbox::SandboxRequest;
use warplap_worker::{Sandbox, Setup, WorkerSetup};

/// Not a test: the worker of all the others.
#[test]
fn worker() {
    standin::serve();
}

fn is_alive(process: u32) -> bool {
    // A killed process that nobody waited for yet is a zombie, not alive.
    let status = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    status.rsplit(')').next().is_some_and(|rest| !rest.trim().is_empty() && !rest.trim().starts_with('Z'))
}

fn dies_within(process: u32, limit: Duration) -> bool {
    let until = Instant::now() + limit;
    while is_alive(process) && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(10));
    }
    !is_alive(process)
}

#[test]
fn every_fault_is_contained_and_named() {
    let sandbox = Sandbox::default();
    for (act, word, reason) in [
        ("aborts", "crashed", "signal 6 (abort)"),
        ("segfaults", "crashed", "signal 11 (segmentation fault)"),
        ("exits", "crashed", "exit code 0"),
        ("panics", "crashed", "planted"),
        ("breaks", "crashed", "refused"),
        ("begins_for_ever", "crashed", "stages without end"),
        ("is_refused", "launch_failed", "refused"),
        ("is_wrong", "wrong_answer", ""),
        ("is_unknown", "does_not_build", "nobody is called so"),
    ] {
        let rejection = ask(&sandbox, act).expect_err(act);
        assert!(rejection.word() == word && rejection.to_string().contains(reason), "{act}: {rejection}");
    }
    let passed = ask(&sandbox, "good").unwrap();
    assert!(passed.error == 0.5 && passed.seconds > 0.0);
}

#[test]
fn a_device_that_is_gone_or_refuses_replaces_the_worker_and_a_refused_launch_does_not() {
    let sandbox = Sandbox::default();
    for (act, stays) in [("is_refused", true), ("is_wrong", true), ("breaks", false), ("tires", false)] {
        ask(&sandbox, "good").unwrap();
        let before = sandbox.worker_id();
        assert!(ask(&sandbox, act).is_err() && before.is_some());
        assert_eq!(sandbox.worker_id() == before, stays, "{act}");
    }
    assert!(matches!(ask(&sandbox, "tires"), Err(Rejection::Crashed { reason }) if reason == "the device refuses"));
}

#[test]
fn a_candidate_that_hangs_is_killed_with_its_worker_and_the_next_gets_a_fresh_one() {
    let sandbox = Sandbox::default();
    ask(&sandbox, "good").unwrap();
    let (first, started) = (sandbox.worker_id().unwrap(), Instant::now());
    assert_eq!(ask(&sandbox, "hangs"), Err(Rejection::TimedOut { seconds: 0.5 }));
    assert!(started.elapsed() < Duration::from_secs(5));
    assert!(dies_within(first, Duration::from_secs(2)));
    ask(&sandbox, "good").unwrap();
    assert_ne!(sandbox.worker_id().unwrap(), first);
}

#[test]
fn a_fault_told_after_the_deadline_is_still_heard() {
    assert_eq!(ask(&Sandbox::default(), "faults_late"), Err(Rejection::Crashed { reason: "told late".into() }));
}

#[test]
fn a_worker_that_dies_before_it_runs_anything_is_no_candidates_fault() {
    let outcome = ask(&Sandbox::default(), "dies_drawing");
    assert!(matches!(outcome, Err(Rejection::LaunchFailed { reason }) if reason.contains("lost twice")));
}

#[test]
fn a_slow_build_does_not_count_as_a_hang_of_the_device() {
    let impatient = SandboxRequest { patience: 0.3, ..request("builds_slowly") };
    assert!(prove(&Sandbox::default(), &worker_setup(), &impatient).unwrap().is_ok());
}

#[test]
fn a_worker_can_be_called_ahead_and_is_the_one_that_proves() {
    let (sandbox, workers) = (Sandbox::default(), worker_setup());
    sandbox.call(&workers, Setup::prover("standin", 0, None));
    let called = sandbox.worker_id();
    ask(&sandbox, "good").unwrap();
    assert!(called.is_some() && sandbox.worker_id() == called);
}

#[test]
fn what_a_worker_prints_does_not_reach_the_user() {
    let output = scenario("panics_in_a_worker").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("contained") && !said.contains("panicked"), "{said}");
}

#[test]
#[ignore = "run by what_a_worker_prints_does_not_reach_the_user"]
fn panics_in_a_worker() {
    assert!(matches!(ask(&Sandbox::default(), "panics"), Err(Rejection::Crashed { .. })));
    let _ = writeln!(std::io::stderr(), "contained");
}

#[test]
fn the_death_of_the_caller_ends_its_worker_even_while_a_candidate_hangs() {
    let mut caller = scenario("starts_a_worker_and_waits").stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(caller.stdout.take().unwrap()).lines();
    let line = lines.find_map(|l| l.ok().filter(|l| l.contains("worker="))).expect("the worker's number");
    let worker: u32 = line.split("worker=").nth(1).unwrap().trim().parse().unwrap();
    std::thread::sleep(Duration::from_millis(200));
    assert!(is_alive(worker));
    caller.kill().unwrap();
    caller.wait().unwrap();
    assert!(dies_within(worker, Duration::from_secs(5)));
}

#[test]
#[ignore = "run by the_death_of_the_caller_ends_its_worker_even_while_a_candidate_hangs"]
fn starts_a_worker_and_waits() {
    let sandbox = Sandbox::default();
    ask(&sandbox, "good").unwrap();
    let _ = writeln!(std::io::stdout(), "worker={}", sandbox.worker_id().unwrap());
    let _ = std::io::stdout().flush();
    let _ = prove(&sandbox, &worker_setup(), &SandboxRequest { patience: 60.0, ..request("hangs") });
}

#[test]
fn where_no_worker_can_be_had_only_the_trusted_run_here() {
    let trusted = SandboxRequest { trusted: true, ..request("good") };
    for program in ["/nonexistent/program", "/bin/true"] {
        let (sandbox, mut workers) = (Sandbox::default(), WorkerSetup::usual());
        workers.choose(program.into(), Vec::new());
        assert!(prove(&sandbox, &workers, &trusted).is_none(), "{program}");
        let refused = prove(&sandbox, &workers, &request("good")).unwrap();
        assert!(matches!(&refused, Err(Rejection::DoesNotBuild { reason }) if reason.contains(program)), "{refused:?}");
    }
    let mut home = worker_setup();
    home.send_home();
    assert!(prove(&Sandbox::default(), &home, &request("good")).is_none());
}

#[test]
fn a_worker_is_not_believed_that_has_no_such_device_or_operation() {
    let mut poor = worker_setup();
    poor.set(NO_DEVICE, "it is not plugged in");
    let refused = |workers: &WorkerSetup, setup: fn() -> Setup, request: &SandboxRequest| {
        let outcome = Sandbox::default().prove(workers, setup, request).expect("it is not trusted");
        outcome.expect_err("no device").to_string()
    };
    let standin = || Setup::prover("standin", 0, None);
    let said = refused(&poor, standin, &request("good"));
    assert!(said.contains("the worker has no device: it is not plugged in"), "{said}");
    let said = refused(&worker_setup(), || Setup::prover("abacus", 0, None), &request("good"));
    assert!(said.contains("no device of the kind 'abacus'"), "{said}");
    let said = refused(&worker_setup(), standin, &SandboxRequest { problem: "nonesuch:n=1".into(), ..request("good") });
    assert!(said.contains("nonesuch"), "{said}");
}
