//! Waiting for another process that tunes the same key: as long as it makes sense, and never for ever.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::{Corner, Ended, program};

const KEY: &str = "gemm:m=192,n=192,k=192,dtype=f32";

/// Longer than any wait here should take, on a machine that is busy.
const LONG: Duration = Duration::from_secs(60);

/// Starts a program that tunes the key for a long time; gives it with its lock file once it holds that.
fn holder(place: &Corner) -> (Child, PathBuf) {
    let mut command = program(&place.store());
    command.args(["tune", KEY, "--budget", "600"]).stdout(Stdio::null()).stderr(Stdio::null());
    let (mut child, began) = (command.spawn().unwrap(), Instant::now());
    while began.elapsed() < LONG {
        let files = std::fs::read_dir(place.store().join("locks-v1")).into_iter().flatten().flatten();
        let mut locks = files.map(|f| f.path()).filter(|p| p.extension().is_some_and(|e| e == "flight"));
        if let Some(path) = locks.find(|p| std::fs::metadata(p).is_ok_and(|m| m.len() > 0)) {
            return (child, path);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let _ = child.kill().and_then(|()| child.wait());
    panic!("nobody took the lock");
}

#[test]
fn a_stopped_holder_keeps_nobody_from_an_answer() {
    let place = Corner::new();
    let (mut child, _) = holder(&place);
    kill_process(Pid::from_child(&child), Signal::STOP).unwrap();
    let began = Instant::now();
    let ended = place.run(&["tune", KEY, "--budget", "0.5", "--json"]);
    let took = began.elapsed();
    kill_process(Pid::from_child(&child), Signal::KILL).unwrap();
    child.wait().unwrap();
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let named = format!("process {} (warplap), which is stopped", child.id());
    assert!(ended.stderr.contains(&named), "{}", ended.stderr);
    assert!(took < LONG / 2, "{took:?}");
    assert_eq!(ended.lines().remove(0)["from_store"], false);
    assert_eq!(place.run(&["tune", KEY, "--mode", "replay", "--json"]).lines().remove(0)["from_store"], true);
}

#[test]
fn waiting_ends_with_patience_and_with_ctrl_c() {
    let place = Corner::new();
    let (mut child, path) = holder(&place);
    child.kill().unwrap();
    child.wait().unwrap();
    // Somebody unknown has the lock now, and does nothing with it.
    let held = File::open(&path).unwrap();
    held.lock().unwrap();
    let ended = place.run(&["tune", KEY, "--budget", "0.3", "--json"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(ended.stderr.contains("without waiting longer for somebody"), "{}", ended.stderr);

    let mut waiting = program(&place.store());
    waiting.args(["tune", KEY, "--again", "--budget", "600"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let waiting = waiting.spawn().unwrap();
    std::thread::sleep(Duration::from_secs(2));
    let began = Instant::now();
    kill_process(Pid::from_child(&waiting), Signal::INT).unwrap();
    let ended = Ended::of(waiting.wait_with_output().unwrap());
    assert_eq!(ended.code, 130, "{}", ended.stderr);
    assert!(ended.stderr.contains("waiting for somebody"), "{}", ended.stderr);
    assert!(began.elapsed() < LONG / 2, "{:?}", began.elapsed());
}

#[test]
fn a_race_that_was_interrupted_is_gone_on_with() {
    let place = Corner::new();
    let (mut child, _) = holder(&place);
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let cut = place.run(&["tune", KEY, "--mode", "replay", "--json"]).lines().remove(0);
    assert_eq!((&cut["from_store"], &cut["grade"]), (&true.into(), &"capped".into()), "{cut}");
    // It answers at once, and says so, until somebody wants more.
    let plain = place.run(&["tune", KEY]);
    assert!(plain.stdout.contains("0 raced with 0 launches, 1 from the store"), "{}", plain.stdout);
    let said = "0 of 1 decided; the same with --until-clean takes about 8 s";
    assert!(plain.stdout.contains(said), "{}", plain.stdout);
    for (flag, would) in [("--quiet", "answer"), ("--until-clean", "go on"), ("--again", "race")] {
        let dry = place.run(&["tune", KEY, "--dry-run", "--json", flag]);
        assert_eq!((&dry.lines()[0]["would"], &dry.lines()[0]["grade"]), (&would.into(), &"capped".into()));
    }
    let more = place.run(&["tune", KEY, "--budget", "1", "--until-clean", "--total", "20", "--json"]).lines();
    assert_eq!((&more[0]["from_store"], &more[1]["from_store"]), (&true.into(), &false.into()), "{more:?}");
    assert!(more[1]["note"].as_str().unwrap().starts_with("went on with a capped record"), "{more:?}");
}
