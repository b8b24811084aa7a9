//! The store with many processes and threads at once: F6, F7, F8, F9, F11, F12. Each also on a file system without
//! locks.
//!
//! F12 asks for fork: this crate forbids unsafe code, so the children here are this program started again while the
//! parent has the store open and a lock held. What differs in a real fork (shared open files) is handled in `lock.rs`
//! by process id.

mod support;

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use support::*;
use warplap_store::care::verify;
use warplap_store::files::{Files, Step};
use warplap_store::{Match, Store};

/// The store, on a file system without locks where the setting says so (EOPNOTSUPP).
fn open(root: &Path, leases: bool) -> Store {
    let without = || Files::with_hook(Arc::new(Faulty::each(Step::Lock, 95)));
    Store::directory_on(root, if leases { without() } else { Files::default() }).unwrap()
}

/// What a session does with a key: look, wait for the right to tune, look again, tune, put.
fn answer(store: &Store, tune: impl Fn() -> i64) -> i64 {
    let look = || match store.lookup(&key(1), &device(1)) {
        Match::Exact(record) => Some(winner(&record)),
        _ => None,
    };
    if let Some(value) = look() {
        return value;
    }
    let _flight = store.lock(&key(1), &device(1));
    look().unwrap_or_else(|| {
        let value = tune();
        store.put(&key(1), &device(1), edition(store.id(), 1, value), "").unwrap();
        value
    })
}

/// The child of F6 and F7: waits for the start, answers, and prints the answer.
fn session_part() {
    let root = setting("ROOT");
    let dir = Path::new(&root).parent().unwrap();
    while !dir.join("go").exists() {
        std::thread::sleep(Duration::from_millis(2));
    }
    let store = open(Path::new(&root), setting("LEASES") == "1");
    let value = answer(&store, || {
        let me = std::process::id();
        let mut log = std::fs::OpenOptions::new().append(true).create(true).open(dir.join("tunings")).unwrap();
        log.write_all(format!("{me}\n").as_bytes()).unwrap();
        std::thread::sleep(Duration::from_millis(setting("TUNE_MS").parse().unwrap()));
        i64::from(me)
    });
    say(std::io::stdout(), format!("\nanswer {value}"));
    std::process::exit(0);
}

/// The answers of children; those that were killed gave none.
fn answers(children: Vec<Child>) -> Vec<i64> {
    let of = |mut c: Child| {
        let mut text = String::new();
        c.stdout.take().unwrap().read_to_string(&mut text).unwrap();
        c.wait().unwrap();
        text.lines().find_map(|l| l.strip_prefix("answer ")?.parse().ok())
    };
    children.into_iter().filter_map(of).collect()
}

fn flights(test: &str, processes: usize, kills: usize, leases: &str) {
    let dir = temp();
    let root = dir.path().join("store");
    let tune = if kills > 0 { "300" } else { "100" };
    let settings = [("ROOT", root.to_str().unwrap()), ("TUNE_MS", tune), ("LEASES", leases)];
    let start = |_| child(test, "session", &settings).stdout(Stdio::piped()).spawn().unwrap();
    let children: Vec<Child> = (0..processes).map(start).collect();
    std::fs::write(dir.path().join("go"), "").unwrap();
    let tunings = || -> Vec<String> {
        let log = std::fs::read_to_string(dir.path().join("tunings")).unwrap_or_default();
        log.lines().map(str::to_string).collect()
    };
    for kill in 0..kills {
        let until = Instant::now() + Duration::from_secs(20);
        while tunings().len() <= kill && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
        let pid: i32 = tunings()[kill].parse().unwrap();
        let pid = rustix::process::Pid::from_raw(pid).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    }
    let answers = answers(children);
    assert_eq!(tunings().len(), kills + 1, "tunings");
    assert_eq!(answers.len(), processes - kills, "answers");
    assert!(answers.iter().all(|a| a.to_string() == *tunings().last().unwrap()), "one winner");
}

#[test]
fn f6_of_64_processes_one_tunes_and_all_have_its_answer() {
    if part().is_some() {
        session_part();
    }
    for _ in 0..if long() { 100 } else { 3 } {
        flights("f6_of_64_processes_one_tunes_and_all_have_its_answer", 64, 0, "0");
    }
    flights("f6_of_64_processes_one_tunes_and_all_have_its_answer", 32, 0, "1");
}

#[test]
fn f7_when_the_tuner_is_killed_the_next_one_takes_over() {
    if part().is_some() {
        session_part();
    }
    for _ in 0..if long() { 100 } else { 1 } {
        flights("f7_when_the_tuner_is_killed_the_next_one_takes_over", 64, 3, "0");
    }
    flights("f7_when_the_tuner_is_killed_the_next_one_takes_over", 16, 3, "1");
}

#[test]
fn f8_writers_and_readers_together_lose_and_tear_nothing() {
    const KEYS: u64 = 20;
    if part().is_some() {
        let store = open(Path::new(&setting("ROOT")), setting("LEASES") == "1");
        let until = Instant::now() + Duration::from_secs_f64(setting("SECONDS").parse().unwrap());
        let (me, mut n, mut last) = (setting("ME"), 0u64, [0i64; KEYS as usize]);
        while Instant::now() < until {
            n += 1;
            let k = n % KEYS;
            if me.starts_with('w') {
                store.put(&key(k), &device(1), edition(&me, n, n as i64), "").unwrap();
                last[k as usize] = n as i64;
            } else {
                assert!(matches!(store.lookup(&key(k), &device(1)), Match::Exact(r) if r.key == key(k).text));
            }
        }
        // Nobody else's put may have cost one of mine.
        for (k, last) in last.iter().enumerate().filter(|(_, last)| **last > 0) {
            let record = store.read(&key(k as u64), &device(1).slug()).unwrap();
            let mine = record.editions.iter().find(|e| e.origin == me).unwrap();
            assert_eq!(mine.verdict.winner.config.int("mc"), Some(*last));
        }
        std::process::exit(0);
    }
    for (leases, pairs) in [("0", if long() { 32 } else { 8 }), ("1", 3)] {
        let dir = temp();
        let root = dir.path().join("store");
        let store = Store::directory(&root).unwrap();
        for k in 0..KEYS {
            store.put(&key(k), &device(1), edition(store.id(), 1, 0), "").unwrap();
        }
        let seconds = if long() { "60" } else { "2" };
        let names = (0..pairs).flat_map(|n| [format!("w{n}"), format!("r{n}")]);
        let start = |me: String| {
            let settings =
                [("ROOT", root.to_str().unwrap()), ("ME", me.as_str()), ("SECONDS", seconds), ("LEASES", leases)];
            child("f8_writers_and_readers_together_lose_and_tear_nothing", "w", &settings).spawn().unwrap()
        };
        assert_eq!(failures(names.map(start).collect()), 0, "leases {leases}");
        let verified = verify(&store);
        assert!(verified.is_clean() && verified.ok == KEYS as usize && verified.set_aside == 0);
    }
}

#[test]
fn f9_of_64_threads_one_tunes() {
    let dir = temp();
    let stores = [
        open(&dir.path().join("a"), false),
        open(&dir.path().join("b"), true),
        Store::memory(),
        Store::new(Arc::new(book::Book::default())),
    ];
    for store in stores {
        let tunings = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..64 {
                scope.spawn(|| {
                    let value = answer(&store, || {
                        tunings.fetch_add(1, Ordering::SeqCst);
                        std::thread::sleep(Duration::from_millis(50));
                        5
                    });
                    assert_eq!(value, 5);
                });
            }
        });
        assert_eq!(tunings.into_inner(), 1, "{}", store.place());
    }
}

#[test]
fn f11_64_processes_create_one_store() {
    if part().is_some() {
        let root = setting("ROOT");
        while !Path::new(&root).parent().unwrap().join("go").exists() {
            std::thread::sleep(Duration::from_millis(1));
        }
        let store = open(Path::new(&root), false);
        let n: u64 = setting("ME").parse().unwrap();
        store.put(&key(n), &device(1), edition(store.id(), 1, n as i64), "").unwrap();
        let id = i64::from_str_radix(&store.id()[1..], 16).unwrap();
        say(std::io::stdout(), format!("\nanswer {id}"));
        std::process::exit(0);
    }
    for _ in 0..if long() { 50 } else { 3 } {
        let dir = temp();
        let root = dir.path().join("not/there/yet/store");
        std::fs::create_dir_all(root.parent().unwrap()).unwrap();
        let start = |me: usize| {
            let settings = [("ROOT", root.to_str().unwrap()), ("ME", &me.to_string())];
            let mut command = child("f11_64_processes_create_one_store", "c", &settings);
            command.stdout(Stdio::piped()).spawn().unwrap()
        };
        let children: Vec<Child> = (0..64).map(start).collect();
        std::fs::write(root.parent().unwrap().join("go"), "").unwrap();
        let mut ids = answers(children);
        assert_eq!(ids.len(), 64);
        ids.dedup();
        assert_eq!(ids.len(), 1);
        assert_eq!(verify(&open(&root, false)).ok, 64);
    }
}

#[test]
fn f12_children_use_the_store_their_parent_has_open_and_locked() {
    if part().is_some() {
        let store = open(Path::new(&setting("ROOT")), false);
        let n: u64 = setting("ME").parse().unwrap();
        // The parent's lock on key 1 does not keep anybody from other keys, nor from reading and putting key 1.
        assert!(store.try_lock(&key(1), &device(1), Duration::ZERO).is_none());
        drop(store.lock(&key(n), &device(1)));
        store.put(&key(n), &device(1), edition(&format!("child{n}"), 1, 1), "").unwrap();
        store.put(&key(1), &device(1), edition(&format!("child{n}"), 1, 1), "").unwrap();
        std::process::exit(0);
    }
    let dir = temp();
    let root = dir.path().join("store");
    let store = open(&root, false);
    let flight = store.lock(&key(1), &device(1));
    let start = |me: usize| {
        let settings = [("ROOT", root.to_str().unwrap()), ("ME", &me.to_string())];
        child("f12_children_use_the_store_their_parent_has_open_and_locked", "c", &settings).spawn().unwrap()
    };
    assert_eq!(failures((100..200).map(start).collect()), 0);
    drop(flight);
    assert_eq!(store.entries().len(), 101);
    assert_eq!(store.read(&key(1), &device(1).slug()).unwrap().editions.len(), 100);
    assert!(verify(&store).is_clean());
}
