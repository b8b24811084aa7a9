//! The store under kills, failing steps, damage and full disks: F1, F2, F4, F5.

mod support;

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use support::*;
use warplap_store::care::verify;
use warplap_store::files::{Files, Hook, Step};
use warplap_store::{Match, Store};

/// The number in the winner of a key, if the key is found.
fn stored_number(store: &Store, n: u64) -> Option<i64> {
    match store.lookup(&key(n), &device(1)) {
        Match::Exact(record) => Some(winner(&record)),
        _ => None,
    }
}

fn put(store: &Store, n: u64, value: i64) -> bool {
    store.put(&key(n), &device(1), edition(store.id(), value as u64, value), "").is_ok()
}

#[test]
fn f1_nothing_acknowledged_is_lost_to_kill_9() {
    if part().as_deref() == Some("writer") {
        let store = Store::directory(Path::new(&setting("ROOT"))).unwrap();
        let first: u64 = setting("FIRST").parse().unwrap();
        for n in first.. {
            // A fresh key, and one that every writer writes over.
            assert!(put(&store, n, n as i64) && put(&store, 0, n as i64));
            say(std::io::stdout(), format!("ack {n}"));
        }
    }
    let dir = temp();
    let root = dir.path().join("store");
    let kills = if long() { 10_000 } else { 100 };
    let (mut first, mut acked, mut newest) = (1u64, Vec::new(), 0);
    for kill in 0..kills {
        let settings = [("ROOT", root.to_str().unwrap()), ("FIRST", &first.to_string())];
        let test = "f1_nothing_acknowledged_is_lost_to_kill_9";
        let mut writer = child(test, "writer", &settings).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(writer.stdout.take().unwrap()).lines();
        let heard = std::thread::spawn(move || {
            let mut heard = Vec::new();
            while let Some(Ok(line)) = lines.next() {
                heard.extend(line.strip_prefix("ack ").and_then(|n| n.parse::<u64>().ok()));
            }
            heard
        });
        // From before the first write on, at an odd moment.
        std::thread::sleep(Duration::from_micros(5_000 + (kill * 7919) % 25_000));
        writer.kill().unwrap();
        writer.wait().unwrap();
        let heard = heard.join().unwrap();
        newest = heard.last().copied().unwrap_or(newest);
        acked.extend(&heard);
        let store = Store::directory(&root).unwrap();
        for n in &heard {
            assert_eq!(stored_number(&store, *n), Some(*n as i64), "kill {kill}");
        }
        assert!(newest == 0 || stored_number(&store, 0).is_some_and(|n| n as u64 >= newest), "kill {kill}");
        first = acked.last().map_or(first, |n| n + 1);
    }
    let store = Store::directory(&root).unwrap();
    assert!(acked.iter().all(|n| stored_number(&store, *n) == Some(*n as i64)));
    assert!(verify(&store).is_clean() && store.set_aside().is_empty());
    say(std::io::stderr(), format!("{kills} kills, {} records acknowledged, none lost", acked.len()));
    assert!(acked.len() > kills as usize / 2, "the writers came to {} acknowledgements only", acked.len());
}

/// The operations whose every step is made to fail: value 1 of key 1 is there before, value 2 is what they bring.
const OPERATIONS: [&str; 5] = ["create", "add", "replace", "merge", "note"];

fn operate(root: &Path, files: Files, operation: &str) -> bool {
    let Ok(store) = Store::directory_on(root, files) else {
        return false;
    };
    match operation {
        "create" => true,
        "add" => put(&store, 2, 2),
        "replace" => put(&store, 1, 2),
        "merge" => store.merge(record(&key(1), &device(1), edition("elsewhere", 2, 2))).is_ok(),
        _ => store.put_note(&device(1).slug(), "n", &serde_json::json!(2)).is_ok(),
    }
}

/// After a failed or interrupted operation: what was acknowledged is there, nothing is wrong, and it works again.
fn holds(root: &Path, operation: &str, acknowledged: bool, what: &str) {
    let store = Store::directory(root).unwrap();
    if operation != "create" {
        let values = |n| store.read(&key(n), &device(1).slug()).map(|r| winner(&r));
        assert!(values(1).is_some(), "{what}: lost the old value");
        match operation {
            "add" => assert!(if acknowledged { values(2) == Some(2) } else { matches!(values(2), None | Some(2)) }),
            "replace" => assert!(if acknowledged { values(1) == Some(2) } else { values(1) > Some(0) }, "{what}"),
            "merge" => assert!(!acknowledged || values(1) == Some(2), "{what}"),
            _ => {
                let note = store.note(&device(1).slug(), "n").unwrap();
                assert!(if acknowledged { note == 2 } else { note == 1 || note == 2 }, "{what}");
            }
        }
    }
    assert!(verify(&store).is_clean() && store.set_aside().is_empty(), "{what}");
    assert!(operate(root, Files::default(), operation), "{what}: does not work afterwards");
}

fn prepared(dir: &Path, operation: &str) -> std::path::PathBuf {
    let root = dir.join("store");
    if operation != "create" {
        let store = Store::directory(&root).unwrap();
        assert!(put(&store, 1, 1));
        store.put_note(&device(1).slug(), "n", &serde_json::json!(1)).unwrap();
    }
    root
}

#[test]
fn f2_failing_at_any_step_loses_nothing_and_leaves_nothing_behind() {
    for operation in OPERATIONS {
        for code in [5, 28] {
            let mut steps = 0;
            for k in 0..200 {
                let dir = temp();
                let root = prepared(dir.path(), operation);
                let faulty = Arc::new(Faulty::at(k, Some(code)));
                let done = operate(&root, Files::with_hook(faulty.clone()), operation);
                steps = faulty.count.load(std::sync::atomic::Ordering::SeqCst);
                let what = format!("{operation} failing with {code} at {k}");
                let temps = files_below(&root).into_iter().filter(|p| p.to_string_lossy().contains(".tmp-")).count();
                assert_eq!(temps, 0, "{what}");
                holds(&root, operation, done, &what);
                if k >= steps {
                    assert!(done, "{what}: nothing failed");
                    break;
                }
            }
            assert!((4..200).contains(&steps), "{operation} took {steps} steps");
        }
    }
}

#[test]
fn f2_ending_at_any_step_loses_nothing() {
    if part().is_some() {
        let files = Files::with_hook(Arc::new(Faulty::at(setting("AT").parse().unwrap(), None)));
        let done = operate(Path::new(&setting("ROOT")), files, &setting("OPERATION"));
        std::process::exit(if done { 0 } else { 3 });
    }
    for operation in OPERATIONS {
        for k in 0..200 {
            let dir = temp();
            let root = prepared(dir.path(), operation);
            let (at, path) = (k.to_string(), root.to_str().unwrap());
            let settings = [("AT", at.as_str()), ("ROOT", path), ("OPERATION", operation)];
            let status = child("f2_ending_at_any_step_loses_nothing", "abort", &settings).status().unwrap();
            assert_ne!(status.code(), Some(3), "{operation} at {k}: an error instead of an end");
            holds(&root, operation, status.success(), &format!("{operation} ended at {k}"));
            if status.success() {
                assert!(k > 4);
                break;
            }
        }
    }
}

#[test]
fn f4_no_damage_gives_a_wrong_value() {
    let dir = temp();
    let root = dir.path().join("store");
    let store = Store::directory(&root).unwrap();
    let keys = 40;
    for n in 0..keys {
        assert!(put(&store, n, 1000 + n as i64));
    }
    let originals: Vec<_> = (0..keys).map(|n| std::fs::read(file_of(&root, &key(n), &device(1))).unwrap()).collect();
    let mut random = fastrand::Rng::with_seed(4);
    let (rounds, mut missed) = (if long() { 10_000 } else { 2_500 }, 0);
    for round in 0..rounds {
        let n = random.u64(..keys);
        let path = file_of(&root, &key(n), &device(1));
        let mut bytes = originals[n as usize].clone();
        let at = random.usize(..bytes.len());
        match random.u8(..8) {
            0..=2 => bytes[at] ^= 1 << random.u8(..8),
            3 => bytes.truncate(at),
            4 => bytes[at..].fill(0),
            5 => bytes.insert(at, random.u8(..)),
            6 => drop(bytes.remove(at)),
            // Another key's file under this name.
            _ => bytes = originals[(n as usize + 1) % keys as usize].clone(),
        }
        let unchanged = bytes == originals[n as usize];
        std::fs::write(&path, &bytes).unwrap();
        let start = Instant::now();
        let value = stored_number(&store, n);
        assert!(start.elapsed() < Duration::from_millis(500), "round {round}: {:?}", start.elapsed());
        assert!(value.is_none() || (unchanged && value == Some(1000 + n as i64)), "round {round}: {value:?}");
        missed += usize::from(value.is_none());
        assert_eq!(stored_number(&store, (n + 3) % keys), Some(1000 + ((n + 3) % keys) as i64), "round {round}");
        if round % 10 == 0 {
            assert!(put(&store, n, 1000 + n as i64), "round {round}");
            assert_eq!(stored_number(&store, n), Some(1000 + n as i64), "round {round}");
        } else {
            std::fs::write(&path, &originals[n as usize]).unwrap();
        }
    }
    say(std::io::stderr(), format!("{rounds} damages, {missed} seen and set aside, none believed"));
    assert_eq!(store.set_aside().len(), missed);
    assert_eq!(store.sweep(Duration::ZERO), missed);
    assert!(verify(&store).is_clean());
}

#[test]
fn f5_a_refusing_disk_costs_the_put_and_nothing_else() {
    // EROFS, EACCES, ENOSPC, EDQUOT, EMFILE.
    for code in [30, 13, 28, 122, 24] {
        for step in [Step::Create, Step::Write, Step::Sync, Step::Rename, Step::SyncDir, Step::Lock] {
            let dir = temp();
            let root = dir.path().join("store");
            let faulty = Arc::new(Faulty::each(step, code));
            faulty.on.store(false, std::sync::atomic::Ordering::SeqCst);
            let store = Store::directory_on(&root, Files::with_hook(faulty.clone() as Arc<dyn Hook>)).unwrap();
            assert!(put(&store, 1, 1));
            faulty.on.store(true, std::sync::atomic::Ordering::SeqCst);
            assert!(!put(&store, 1, 2) && !put(&store, 2, 2), "{step:?} {code}");
            assert!(stored_number(&store, 1).is_some(), "{step:?} {code}");
            store.miss(&key(3), &device(1), "");
            let flight = store.lock(&key(1), &device(1));
            assert_eq!(flight.is_shared(), step != Step::Lock);
            drop(flight);
            let temps = files_below(&root).into_iter().filter(|p| p.to_string_lossy().contains(".tmp-")).count();
            assert_eq!(temps, 0, "{step:?} {code}");
            faulty.on.store(false, std::sync::atomic::Ordering::SeqCst);
            assert!(put(&store, 1, 3) && stored_number(&store, 1) == Some(3), "{step:?} {code}");
        }
        let dir = temp();
        let faulty = Arc::new(Faulty::each(Step::Open, code));
        let store = Store::directory_on(&dir.path().join("store"), Files::with_hook(faulty)).unwrap();
        assert_eq!(store.lookup(&key(1), &device(1)), Match::Miss);
    }
}

#[test]
fn f5_a_deleted_directory_is_made_again_with_the_same_identity() {
    let dir = temp();
    let root = dir.path().join("store");
    let store = Store::directory(&root).unwrap();
    assert!(put(&store, 1, 1));
    std::fs::remove_dir_all(&root).unwrap();
    assert_eq!(stored_number(&store, 1), None);
    drop(store.lock(&key(1), &device(1)));
    std::fs::remove_dir_all(&root).unwrap();
    assert!(put(&store, 1, 2) && stored_number(&store, 1) == Some(2));
    assert_eq!(Store::directory(&root).unwrap().id(), store.id());
}

#[test]
#[cfg(target_os = "linux")]
fn f5_too_many_open_files_is_an_error_and_a_miss() {
    if part().is_some() {
        let store = Store::directory(Path::new(&setting("ROOT"))).unwrap();
        let none = rustix::process::Rlimit { current: Some(3), maximum: Some(3) };
        rustix::process::setrlimit(rustix::process::Resource::Nofile, none).unwrap();
        let refused = !put(&store, 1, 2) && store.lookup(&key(1), &device(1)) == Match::Miss;
        std::process::exit(if refused { 0 } else { 3 });
    }
    let dir = temp();
    let root = dir.path().join("store");
    let store = Store::directory(&root).unwrap();
    assert!(put(&store, 1, 1));
    let settings = [("ROOT", root.to_str().unwrap())];
    let status = child("f5_too_many_open_files_is_an_error_and_a_miss", "full", &settings).status().unwrap();
    assert!(status.success());
    assert!(stored_number(&store, 1) == Some(1) && store.set_aside().is_empty());
}

#[test]
#[cfg(target_os = "linux")]
fn f5_a_read_only_directory_still_answers() {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;
    if part().is_some() {
        let store = Store::directory(Path::new(&setting("ROOT"))).unwrap();
        let reads = stored_number(&store, 1) == Some(1);
        let refused = !put(&store, 1, 2) && !put(&store, 2, 2);
        let flight = store.lock(&key(2), &device(1));
        std::process::exit(if reads && refused && !flight.is_shared() { 0 } else { 3 });
    }
    let dir = temp();
    let root = dir.path().join("store");
    let store = Store::directory(&root).unwrap();
    assert!(put(&store, 1, 1));
    let as_root = rustix::process::geteuid().is_root();
    let mode = |path: &Path, mode| std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    // Everyone may read, nobody may write; root's bits do not bind root, so the child is somebody else.
    mode(dir.path(), 0o755);
    let dirs = [root.clone(), root.join("records-v1"), root.join("locks-v1")];
    let inner = file_of(&root, &key(1), &device(1));
    let inner: Vec<_> = inner.ancestors().take_while(|p| *p != root).collect();
    dirs.iter().map(|p| p.as_path()).chain(inner.iter().copied()).for_each(|p| mode(p, 0o555));
    mode(&root.join("store.json"), 0o444);
    // Where it lies now, in somebody's closed home for instance, that somebody else may not reach it.
    let program = dir.path().join("program");
    std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    mode(&program, 0o755);
    let settings = [("ROOT", root.to_str().unwrap())];
    let mut command = child_of(&program, "f5_a_read_only_directory_still_answers", "reader", &settings);
    command.current_dir("/");
    if as_root {
        command.uid(65534).gid(65534);
    }
    let status = command.status();
    dirs.iter().map(|p| p.as_path()).chain(inner.iter().copied()).for_each(|p| mode(p, 0o755));
    assert!(status.unwrap().success());
}

#[test]
#[cfg(target_os = "linux")]
fn f5_a_really_full_disk_refuses_the_put_and_keeps_what_it_has() {
    let dir = temp();
    let mounted = std::process::Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=256k,mode=700", "tmpfs", dir.path().to_str().unwrap()])
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|s| s.success());
    if !mounted {
        writeln!(std::io::stderr(), "SKIPPED: no tmpfs can be mounted here; the failing layer stands in").unwrap();
        return;
    }
    let result = std::panic::catch_unwind(|| {
        let root = dir.path().join("store");
        let store = Store::directory(&root).unwrap();
        let kept = (0..500).take_while(|n| put(&store, *n, *n as i64)).count() as u64;
        assert!((5..500).contains(&kept), "{kept} fitted");
        assert!((0..kept).all(|n| stored_number(&store, n) == Some(n as i64)));
        assert!(verify(&store).is_clean());
        let temps = files_below(&root).into_iter().filter(|p| p.to_string_lossy().contains(".tmp-")).count();
        assert_eq!(temps, 0);
        store.remove(&store.entries()[0]).unwrap();
        store.remove(&store.entries()[0]).unwrap();
        assert!(put(&store, 900, 9));
    });
    std::process::Command::new("umount").arg(dir.path()).status().unwrap();
    result.unwrap();
}
