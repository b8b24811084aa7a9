//! Manners: exit codes, interruption, broken pipes, colours, budgets, help.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::time::Instant;

use super::{Corner, SMALL, program};

/// Many problems that take a while together.
fn long() -> Vec<String> {
    (0..60).map(|i| format!("gemm:m=96,n={},k=96", 64 + i)).collect()
}

#[test]
fn ctrl_c_keeps_what_was_measured() {
    let place = Corner::new();
    let mut command = program(&place.store());
    command.arg("tune").args(long()).args(["--budget", "2", "--json"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut first = String::new();
    stdout.read_line(&mut first).unwrap();
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let printed = 1 + rest.lines().count();
    assert!(printed < 60, "the tune was over before it was interrupted");
    let kept = place.run(&["store", "ls", "--json"]).lines().len();
    assert_eq!(kept, printed, "every answer that was printed is kept");
    let problem: serde_json::Value = serde_json::from_str(&first).unwrap();
    let again = ["tune", problem["problem"].as_str().unwrap(), "--mode", "replay", "--json"];
    assert_eq!(place.run(&again).lines().remove(0)["from_store"], true);
}

#[test]
fn a_reader_that_goes_away_is_no_reason_to_panic() {
    let place = Corner::new();
    for args in [vec!["tune".to_string()].into_iter().chain(long()).collect(), vec!["--help".to_string()]] {
        let mut command = program(&place.store());
        command.args(&args).args(["--budget", "0.02", "--json"].iter().filter(|_| args.len() > 1));
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{stderr}");
        assert!(!stderr.contains("panicked"), "{stderr}");
    }
}

#[test]
fn pipes_get_no_colours_and_json_gets_no_prose() {
    let place = Corner::new();
    for args in
        [&["tune", SMALL, "--budget", "0.1"][..], &["explain", SMALL], &["store", "ls"], &["variants"], &["--help"]]
    {
        let ended = place.run(args);
        assert!(!ended.stdout.contains('\u{1b}') && !ended.stderr.contains('\u{1b}'), "{args:?} has colour codes");
    }
    let quiet = place.run(&["tune", SMALL, "--json", "--quiet"]);
    assert!(quiet.stderr.is_empty() && quiet.lines().len() == 1, "{}", quiet.stderr);
}

#[test]
fn a_budget_is_kept() {
    let tries = [(); 3].map(|()| {
        let (place, started) = (Corner::new(), Instant::now());
        let tuned = place.run(&["tune", "gemm:m=384,n=384,k=384", "--budget", "1", "--search", "exhaustive", "--json"]);
        assert_eq!(tuned.code, 0, "{}", tuned.stderr);
        (tuned.lines()[0]["seconds"].as_f64().unwrap(), started.elapsed().as_secs_f64())
    });
    // One second of slack for proofs before and after; tests of many processes may run beside one of the tries.
    assert!(tries.iter().any(|(seconds, wall)| *seconds < 2.5 && *wall < 5.0), "{tries:?} s of a budget of 1 s");
}

#[test]
fn help_documents_the_exit_codes_and_no_command_is_bad_input() {
    let place = Corner::new();
    let help = place.run(&["--help"]);
    assert_eq!(help.code, 0);
    for part in ["Exit codes:", "  0  ", "  1  ", "  2  ", "  130  ", "tune", "store", "--json", "gemm:m=1024"] {
        assert!(help.stdout.contains(part), "'{part}' is missing in\n{}", help.stdout);
    }
    let none = Command::new(env!("CARGO_BIN_EXE_warplap")).output().unwrap();
    assert_eq!(none.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&none.stdout).contains("Usage:"));
    let version = place.run(&["--version"]);
    assert_eq!((version.code, version.stdout.trim()), (0, concat!("warplap ", env!("CARGO_PKG_VERSION"))));
    assert_eq!(place.run(&["tnue"]).code, 2);
}
