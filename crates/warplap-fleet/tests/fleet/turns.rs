//! One tuner a key across machines: as many processes as there are, one of them tunes, and all have the answer.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use warplap_core::store::{ASKING, BEFORE_A_RACE, Match, Store};

use crate::outages::{SILENT, wire};
use crate::server::Server;
use crate::sharing::{machine, now, open, put};
use crate::store_support::{child, device, key, long, part, setting};

/// How long "tuning" takes.
const TUNING: Duration = Duration::from_millis(400);
/// How long it takes those who are to be killed, frozen or cut off meanwhile.
const DOOMED: Duration = Duration::from_secs(120);

/// A process on a machine of its own that needs a key: it answers from what is known, or waits for its turn, looks again,
/// and tunes. What it did is appended to a file that all of them share.
fn need(store: &Store, n: u64, log: &Path, doomed: usize) {
    let say = |what: &str| {
        let line = format!("{what} {} {}\n", std::process::id(), micros());
        fs::OpenOptions::new().create(true).append(true).open(log).unwrap().write_all(line.as_bytes()).unwrap();
    };
    let known = |wait| {
        store.ask(&key(n), &device(1), wait);
        matches!(store.lookup(&key(n), &device(1)), Match::Exact(_))
    };
    if !known(ASKING) {
        let _flight = store.lock(&key(n), &device(1));
        if !known(BEFORE_A_RACE) {
            say("begun");
            let is_doomed = said(log, "begun").len() <= doomed;
            std::thread::sleep(if is_doomed { DOOMED } else { TUNING });
            put(store, n, now());
            store.publish();
            say("finished");
        }
    }
    say("answered");
}

fn micros() -> u128 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_micros()
}

/// What the processes of a log did.
fn said(log: &Path, what: &str) -> Vec<(u32, u128)> {
    let text = fs::read_to_string(log).unwrap_or_default();
    let read = |line: &str| {
        let mut words = line.split(' ');
        (words.next()? == what).then_some(())?;
        Some((words.next()?.parse().ok()?, words.next()?.parse().ok()?))
    };
    text.lines().filter_map(read).collect()
}

fn start(port: u16, database: &str, folder: &Path, log: &Path, n: u64, doomed: usize) -> Child {
    let port = port.to_string();
    let settings = [
        ("PORT", port.as_str()),
        ("DATABASE", database),
        ("FOLDER", folder.to_str().unwrap()),
        ("LOG", log.to_str().unwrap()),
        ("KEY", &n.to_string()),
        ("DOOMED", &doomed.to_string()),
    ];
    child("turns::many_processes_need_one_key", "need", &settings).stderr(Stdio::inherit()).spawn().unwrap()
}

#[test]
fn many_processes_need_one_key() {
    if part().is_some() {
        let folder = setting("FOLDER");
        let url = format!("postgres://owner:owner-password@127.0.0.1:{}/{}", setting("PORT"), setting("DATABASE"));
        let store = warplap_fleet::open(&format!("{url}?near={folder}/near")).unwrap();
        let (n, doomed) = (setting("KEY").parse().unwrap(), setting("DOOMED").parse().unwrap());
        return need(&store, n, Path::new(&setting("LOG")), doomed);
    }
    let (processes, rounds) = if long() { (64, 20) } else { (8, 1) };
    let _alone = crate::alone();
    let (server, home) = (Server::start(), tempfile::tempdir().unwrap());
    let database = server.database();
    let folders: Vec<_> = (0..processes).map(|n| home.path().join(n.to_string())).collect();
    for folder in &folders {
        fs::create_dir(folder).unwrap();
        drop(machine(&server, &database, "owner", folder));
    }
    let mut waited = Vec::new();
    for round in 0..2 * rounds {
        let kills = (round % 2) as usize * if long() { 3 } else { 1 };
        let log = home.path().join(format!("log{round}"));
        let mut children: Vec<Child> =
            folders.iter().map(|folder| start(server.port(), &database, folder, &log, round, kills)).collect();
        // Whoever has just begun is killed, three times over; the next one is let in at once.
        let mut handed_over = Vec::new();
        for kill in 0..kills {
            let begun = wait_for(|| said(&log, "begun").get(kill).copied());
            let victim = children.iter_mut().find(|c| c.id() == begun.0).unwrap();
            victim.kill().unwrap();
            let killed = micros();
            let next = wait_for(|| said(&log, "begun").get(kill + 1).copied());
            handed_over.push((next.1 - killed) / 1000);
        }
        let ended: usize = children.iter_mut().map(|c| usize::from(c.wait().unwrap().success())).sum();
        let counts = ["begun", "finished", "answered"].map(|what| said(&log, what).len());
        assert_eq!(counts, [1 + kills, 1, processes - kills], "round {round}: one tunes, all have its answer");
        assert_eq!(ended, processes - kills);
        crate::store_support::say(
            std::io::stderr(),
            format!("  {processes} processes, {kills} killed: {counts:?}, next after {handed_over:?} ms"),
        );
        waited.extend(handed_over);
    }
    waited.sort_unstable();
    let (median, slowest) = (waited[waited.len() / 2], waited[waited.len() - 1]);
    crate::store_support::say(std::io::stderr(), format!("  the next one came after {median} ms, {slowest} at most"));
    // A busy machine wakes everybody late.
    assert!(median <= if long() { 50 } else { 5_000 }, "{waited:?}");
}

fn wait_for<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + Duration::from_secs(120);
    loop {
        if let Some(result) = look() {
            return result;
        }
        assert!(Instant::now() < until, "it never came");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_holder_that_is_frozen_or_cut_off_is_not_waited_for_for_ever() {
    let _alone = crate::alone();
    let (server, home) = (Server::start(), tempfile::tempdir().unwrap());
    let database = server.database();
    let (wired, state) = wire(server.port());
    // Both at once: each takes as long as the server lets a silent session be.
    let mut holders = [("frozen", server.port(), 7), ("cut off", wired, 8)].map(|(what, port, n)| {
        let folder = home.path().join(what);
        fs::create_dir(&folder).unwrap();
        drop(machine(&server, &database, "owner", &folder));
        let log = home.path().join(format!("log{n}"));
        let holder = start(port, &database, &folder, &log, n, 1);
        let begun = wait_for(|| said(&log, "begun").first().copied());
        assert_eq!(begun.0, holder.id());
        match what {
            "frozen" => rustix::process::kill_process(pid(&holder), rustix::process::Signal::STOP).unwrap(),
            _ => state.store(SILENT, Ordering::Release),
        }
        (what, n, holder, Instant::now())
    });
    let other = home.path().join("other");
    fs::create_dir(&other).unwrap();
    drop(machine(&server, &database, "owner", &other));
    let store = open(&server, &database, "owner", &other);
    for (what, n, holder, since) in &mut holders {
        let flight = store.try_lock(&key(*n), &device(1), Duration::from_secs(40));
        let took = since.elapsed();
        holder.kill().unwrap();
        holder.wait().unwrap();
        assert!(flight.is_some(), "{what}: it is still held after {took:?}");
        assert!(took <= Duration::from_secs(35), "{what}: {took:?}");
        crate::store_support::say(std::io::stderr(), format!("  {what}: the lock was free after {took:.1?}"));
    }
}

fn pid(child: &Child) -> rustix::process::Pid {
    rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap()
}
