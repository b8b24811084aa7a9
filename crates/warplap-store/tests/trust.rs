//! Who is let in: F42 (directories), F43 (planted links), F44 (poisoned records), F45 (umask).
#![cfg(unix)]

mod support;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use support::*;
use warplap_store::records::key::Key;
use warplap_store::{Match, Store, StoreError, open_or_memory};

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// A directory for one permutation: `<temp>/parent/store`, both of them ours alone.
fn place() -> (tempfile::TempDir, PathBuf) {
    let dir = temp();
    let root = dir.path().join("parent/store");
    fs::create_dir_all(&root).unwrap();
    mode(root.parent().unwrap(), 0o700);
    mode(&root, 0o700);
    (dir, root)
}

#[test]
fn f42_a_directory_somebody_else_could_write_is_refused_with_a_remedy() {
    type Arrange = fn(&Path);
    let mut permutations: Vec<(&str, Arrange)> = vec![
        ("a link to a good directory", |root| {
            fs::rename(root, root.with_extension("real")).unwrap();
            symlink(root.with_extension("real"), root).unwrap();
        }),
        ("a link to nowhere", |root| {
            fs::remove_dir(root).unwrap();
            symlink("/nowhere/at/all", root).unwrap();
        }),
        ("a file", |root| {
            fs::remove_dir(root).unwrap();
            fs::write(root, "").unwrap();
        }),
        ("0777", |root| mode(root, 0o777)),
        ("0770", |root| mode(root, 0o770)),
        ("0702", |root| mode(root, 0o702)),
        ("sticky 1777", |root| mode(root, 0o1777)),
        ("parent 0777", |root| mode(root.parent().unwrap(), 0o777)),
        ("parent sticky 1777", |root| mode(root.parent().unwrap(), 0o1777)),
        ("missing below a parent 0777", |root| {
            fs::remove_dir(root).unwrap();
            mode(root.parent().unwrap(), 0o777);
        }),
        ("parent 0770", |root| mode(root.parent().unwrap(), 0o770)),
        ("parent 0775", |root| mode(root.parent().unwrap(), 0o775)),
        ("missing below a parent 0770", |root| {
            fs::remove_dir(root).unwrap();
            mode(root.parent().unwrap(), 0o770);
        }),
        ("grandparent 0770", |root| mode(root.parent().unwrap().parent().unwrap(), 0o770)),
        ("grandparent 0777", |root| mode(root.parent().unwrap().parent().unwrap(), 0o777)),
        ("a way through a link in a directory 0777", |root| {
            let parent = root.parent().unwrap();
            let open = parent.with_extension("open");
            fs::create_dir_all(open.join("real/store")).unwrap();
            fs::remove_dir_all(parent).unwrap();
            symlink(open.join("real"), parent).unwrap();
            mode(&open, 0o777);
        }),
        ("records are a link", |root| symlink("/etc", root.join("records-v1")).unwrap()),
        ("records 0777", |root| {
            fs::create_dir(root.join("records-v1")).unwrap();
            mode(&root.join("records-v1"), 0o777);
        }),
    ];
    // A group that its user is alone in may write: for root no group counts as such, for others most machines have one.
    if !rustix::process::geteuid().is_root() {
        permutations.retain(|(name, _)| !name.ends_with("0770") && !name.ends_with("0775"));
    }
    if rustix::process::geteuid().is_root() {
        permutations.push(("another owner", |root| std::os::unix::fs::chown(root, Some(12345), None).unwrap()));
        permutations.push(("parent of another owner", |root| {
            std::os::unix::fs::chown(root.parent().unwrap(), Some(12345), None).unwrap();
        }));
        permutations.push(("a way through a link of another owner", |root| {
            let parent = root.parent().unwrap();
            fs::rename(parent, parent.with_extension("real")).unwrap();
            symlink(parent.with_extension("real"), parent).unwrap();
            std::os::unix::fs::lchown(parent, Some(12345), None).unwrap();
        }));
    } else {
        say(std::io::stderr(), "SKIPPED: three permutations with another owner need root".into());
    }
    assert!(permutations.len() >= 12);
    for (what, arrange) in permutations {
        let (_dir, root) = place();
        arrange(&root);
        match Store::directory(&root) {
            Err(StoreError::Untrusted { remedy, why, .. }) => {
                assert!(!remedy.is_empty() && !why.is_empty(), "{what}")
            }
            other => panic!("{what}: {other:?}"),
        }
        let opened = open_or_memory(Some(&root));
        assert_eq!(opened.store.place(), "memory", "{what}");
        assert!(opened.warning.is_some(), "{what}");
        opened.store.put(&key(1), &device(1), edition(opened.store.id(), 1, 1), "").unwrap();
    }
}

#[test]
fn f42_the_users_own_directory_is_taken_also_through_a_link_of_theirs() {
    let (dir, root) = place();
    mode(&root, 0o755);
    assert!(Store::directory(&root).is_ok());
    let link = dir.path().join("link");
    symlink(root.parent().unwrap(), &link).unwrap();
    assert!(Store::directory(&link.join("store")).is_ok());
    assert!(Store::directory(&link.join("new/and/deep")).is_ok());
}

#[test]
fn f43_the_target_of_a_planted_link_is_untouched() {
    let (dir, root) = place();
    let target = dir.path().join("target");
    fs::write(&target, "precious").unwrap();
    symlink(&target, root.join("store.json")).unwrap();
    let store = Store::directory(&root).unwrap();
    let path = file_of(&root, &key(1), &device(1));
    let slug = device(1).slug();
    let plant = |path: &Path| {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let _ = fs::remove_file(path);
        symlink(&target, path).unwrap();
    };
    plant(&path);
    plant(&root.join(format!("devices-v1/{slug}/n.json")));
    plant(&root.join(format!("misses-v1/{slug}/matmul/{}.json", key(1).hash())));
    store.miss(&key(1), &device(1), "");
    assert_eq!(store.lookup(&key(1), &device(1)), Match::Miss);
    assert_eq!(store.note(&slug, "n"), None);
    store.put(&key(1), &device(1), edition(store.id(), 1, 1), "").unwrap();
    store.put_note(&slug, "n", &serde_json::json!(1)).unwrap();
    assert!(matches!(store.lookup(&key(1), &device(1)), Match::Exact(_)));
    for purpose in ["write", "flight"] {
        plant(&root.join(format!("locks-v1/{slug}.matmul.{}.{purpose}", key(1).hash())));
    }
    assert!(store.put(&key(1), &device(1), edition(store.id(), 2, 2), "").is_err());
    assert!(!store.lock(&key(1), &device(1)).is_shared());
    store.sweep(std::time::Duration::ZERO);
    assert_eq!(fs::read_to_string(&target).unwrap(), "precious");
    assert_eq!(fs::metadata(&target).unwrap().len(), 8);
}

#[test]
fn f43_a_planted_pipe_directory_or_foreign_file_is_a_miss_and_never_a_wait() {
    let (_dir, root) = place();
    let store = Store::directory(&root).unwrap();
    let path = file_of(&root, &key(1), &device(1));
    store.put(&key(1), &device(1), edition(store.id(), 1, 1), "").unwrap();
    let whole = fs::read(&path).unwrap();
    fs::remove_file(&path).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
    assert_eq!(store.lookup(&key(1), &device(1)), Match::Miss);
    fs::create_dir(&path).unwrap();
    assert_eq!(store.lookup(&key(1), &device(1)), Match::Miss);
    fs::write(&path, &whole).unwrap();
    mode(&path, 0o666);
    assert_eq!(store.lookup(&key(1), &device(1)), Match::Miss, "others may write to it");
    if rustix::process::geteuid().is_root() {
        fs::write(&path, &whole).unwrap();
        mode(&path, 0o644);
        std::os::unix::fs::chown(&path, Some(12345), None).unwrap();
        assert_eq!(store.lookup(&key(1), &device(1)), Match::Miss, "another owner's");
    }
    fs::write(&path, &whole).unwrap();
    mode(&path, 0o600);
    assert!(matches!(store.lookup(&key(1), &device(1)), Match::Exact(_)));
}

/// The body of a record's file, and a file with a right checksum around a body.
fn body_of(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap();
    text.split_once('\n').unwrap().1.strip_suffix("\n}\n").unwrap().to_string()
}

fn sealed(body: &str) -> String {
    let sum = blake3::hash(body.as_bytes()).to_hex();
    format!("{{\"checksum\": \"blake3:{sum}\", \"record\":\n{body}\n}}\n")
}

#[test]
fn f44_a_poisoned_record_with_a_right_checksum_is_a_miss() {
    let (dir, root) = place();
    let store = Store::directory(&root).unwrap();
    store.put(&key(1), &device(1), edition(store.id(), 1, 1), "").unwrap();
    let path = file_of(&root, &key(1), &device(1));
    let good = body_of(&path);
    let swap = |from: &str, to: &str| {
        assert!(good.contains(from), "{from}");
        good.replacen(from, to, 1)
    };
    let huge = format!("\"problem\": \"{}\"", "x".repeat(2 << 20));
    let poisons = [
        swap("\"op\": \"matmul\"", "\"op\": \"../../../escape\""),
        swap("\"op\": \"matmul\"", "\"op\": \"other\""),
        swap("\"tuned_at\": 1,", "\"tuned_at\": 99999999999999999999999999,"),
        swap("\"tuned_at\": 1,", "\"tuned_at\": 18446744073709551615,"),
        swap("\"tuned_at\": 1,", "\"tuned_at\": -1,"),
        swap("\"grade\": \"clean\"", "\"grade\": \"splendid\""),
        swap("\"measured\":", "\"promised\":"),
        swap("\"seconds\": 0.25", "\"seconds\": 1e999"),
        swap("\"schema\": 1", "\"schema\": -7"),
        swap("\"problem\": \"\"", &huge),
        swap("\"model\": \"Test Chip 1\"", "\"model\": \"../../../escape\""),
        "[".repeat(1_000_000),
        "{}".into(),
        "null".into(),
        String::new(),
    ];
    for (n, poison) in poisons.iter().enumerate() {
        fs::write(&path, sealed(poison)).unwrap();
        mode(&path, 0o600);
        let result = store.lookup(&key(1), &device(1));
        assert_eq!(result, Match::Miss, "poison {n}");
        assert!(!path.exists(), "poison {n} was not set aside");
    }
    // A deep field nobody knows does no harm: it is passed over without going down into it.
    let deep = format!("\"schema\": 1, \"deep\": {}{}", "[".repeat(100_000), "]".repeat(100_000));
    fs::write(&path, sealed(&swap("\"schema\": 1", &deep))).unwrap();
    mode(&path, 0o600);
    assert!(matches!(store.lookup(&key(1), &device(1)), Match::Exact(_)));
    // More than the limit, with no disk behind it.
    fs::File::create(&path).unwrap().set_len(1 << 30).unwrap();
    assert_eq!(store.lookup(&key(1), &device(1)), Match::Miss);
    let outside = |p: &PathBuf| !p.starts_with(&root);
    assert_eq!(files_below(dir.path()).into_iter().filter(outside).count(), 0);
    assert_eq!(store.lookup(&Key::new("../../x", "t".into()), &device(1)), Match::Miss);
}

#[test]
fn f44_an_unknown_variant_is_only_a_name() {
    // Whether a variant exists is asked of the catalog; the store gives the name and runs nothing.
    let (_dir, root) = place();
    let store = Store::directory(&root).unwrap();
    let named = |name: &str| {
        let mut odd = edition(store.id(), 1, 1);
        odd.verdict.winner.variant = name.into();
        odd.trials[0].candidate.variant = name.into();
        odd
    };
    store.put(&key(1), &device(1), named("nobody_knows_it"), "").unwrap();
    assert!(matches!(store.lookup(&key(1), &device(1)), Match::Exact(_)));
    // What is no name at all is not even kept.
    let said = store.put(&key(1), &device(1), named("../../bin/sh; $(reboot)"), "").unwrap_err().to_string();
    assert!(said.contains("no variant's name"), "{said}");
}

#[test]
fn f44_mutated_records_with_right_checksums_never_escape_and_never_panic() {
    let (dir, root) = place();
    let store = Store::directory(&root).unwrap();
    store.put(&key(1), &device(1), edition(store.id(), 1, 1), "").unwrap();
    let path = file_of(&root, &key(1), &device(1));
    let good = body_of(&path);
    let mut random = fastrand::Rng::with_seed(44);
    let pieces =
        ["../", "\"", "\\u0000", "{", "}", "[", "]", "null", "1e308", "-0", "NaN", "true", ",", ":", "\u{1F600}"];
    for case in 0..if long() { 1_000_000 } else { 4_000 } {
        let mut body = good.clone();
        for _ in 0..random.usize(1..4) {
            let at = (0..=random.usize(..body.len())).rev().find(|i| body.is_char_boundary(*i)).unwrap_or(0);
            match random.u8(..3) {
                0 => body.insert_str(at, pieces[random.usize(..pieces.len())]),
                1 => body.truncate(at.max(2)),
                _ => drop(body.remove(at.min(body.len() - 1))),
            }
        }
        fs::write(&path, sealed(&body)).unwrap();
        mode(&path, 0o600);
        if let Match::Exact(record) = store.lookup(&key(1), &device(1)) {
            assert!(record.op == "matmul" && record.key == key(1).text && record.device == device(1).hard, "{case}");
        }
        if case % 1000 == 999 {
            store.sweep(std::time::Duration::ZERO);
        }
    }
    assert_eq!(files_below(dir.path()).into_iter().filter(|p| !p.starts_with(&root)).count(), 0);
}

#[test]
fn f45_with_umask_000_files_are_0600_and_directories_0700() {
    if part().is_some() {
        rustix::process::umask(rustix::fs::Mode::empty());
        let store = Store::directory(Path::new(&setting("ROOT"))).unwrap();
        store.put(&key(1), &device(1), edition(store.id(), 1, 1), "").unwrap();
        store.put_note(&device(1).slug(), "n", &serde_json::json!(1)).unwrap();
        store.miss(&key(2), &device(1), "");
        std::mem::forget(store.lock(&key(3), &device(1)));
        std::process::exit(0);
    }
    let dir = temp();
    let root = dir.path().join("made/store");
    let settings = [("ROOT", root.to_str().unwrap())];
    let test = "f45_with_umask_000_files_are_0600_and_directories_0700";
    assert!(child(test, "umask", &settings).status().unwrap().success());
    let files = files_below(&root);
    assert!(files.len() >= 5, "{files:?}");
    for file in &files {
        assert_eq!(fs::symlink_metadata(file).unwrap().mode() & 0o7777, 0o600, "{}", file.display());
        for parent in file.ancestors().skip(1).take_while(|p| *p != dir.path()) {
            assert_eq!(fs::metadata(parent).unwrap().mode() & 0o7777, 0o700, "{}", parent.display());
        }
    }
}
