//! Bundles and care: F14, F47's refusals, verify, prune, stats; and how long opening, looking up and listing take.

mod support;

use std::path::Path;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use support::*;
use warplap_store::bundle::{Bundle, BundleError, MAX_RECORDS};
use warplap_store::care::{Prune, prune, stats, verify};
use warplap_store::records::record::Record;
use warplap_store::{Match, Store};

fn open(dir: &Path, name: &str) -> Store {
    Store::directory(&dir.join(name)).unwrap()
}

fn many(count: u64) -> Bundle {
    Bundle::of_records((0..count).map(|n| {
        let device = device((n % 3) as u32);
        record(&key(n), &device, edition("origin0000000001", 100 + n, n as i64))
    }))
}

#[test]
fn f14_export_import_export_is_byte_equal() {
    let count = if long() { 100_000 } else { 10_000 };
    let dir = temp();
    let (first, second) = (open(dir.path(), "first"), open(dir.path(), "second"));
    let bundle = many(count);
    assert_eq!(bundle.put_into(&first).unwrap().added, count as usize);
    let path = dir.path().join("bundle");
    Bundle::of(&first, |_| true).write(&path).unwrap();
    let read = Bundle::read(&path).unwrap();
    let start = Instant::now();
    assert_eq!(read.put_into(&second).unwrap().added, count as usize);
    let took = start.elapsed();
    assert_eq!(read.put_into(&second).unwrap().unchanged, count as usize);
    let again = Bundle::of(&second, |_| true);
    assert_eq!(again.left_out, 0);
    assert!(again.to_bytes() == std::fs::read(&path).unwrap());
    assert!(again.to_bytes() == bundle.to_bytes());
    // The origin stays, so that nobody takes it for a local tuning.
    let result = second.read(&key(0), &device(0).slug()).unwrap();
    assert_eq!(result.editions[0].origin, "origin0000000001");
    say(std::io::stderr(), format!("import of {count} records: {took:?}"));
}

#[test]
fn opening_and_looking_up_take_the_same_time_however_many_records_there_are() {
    let dir = temp();
    let store = open(dir.path(), "store");
    let sizes: &[u64] = if long() { &[1_000, 10_000, 100_000] } else { &[1_000, 10_000] };
    // Written plainly: this test asks for reading times, and fsync would take most of its time.
    let sample = {
        store.put(&key(0), &device(1), edition(store.id(), 1, 0), "").unwrap();
        std::fs::read_to_string(file_of(&dir.path().join("store"), &key(0), &device(1))).unwrap()
    };
    let body = sample.split_once('\n').unwrap().1.strip_suffix("\n}\n").unwrap();
    let mut written = 1;
    for &size in sizes {
        for n in written..size {
            let body = body.replacen(&key(0).text, &key(n).text, 1);
            let sum = blake3::hash(body.as_bytes()).to_hex();
            let text = format!("{{\"checksum\": \"blake3:{sum}\", \"record\":\n{body}\n}}\n");
            let path = file_of(&dir.path().join("store"), &key(n), &device(1));
            std::fs::write(&path, text).unwrap();
            #[cfg(unix)]
            std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        }
        written = size;
        let mut hits = Vec::new();
        let mut misses = Vec::new();
        for n in 0..20 {
            let start = Instant::now();
            let store = open(dir.path(), "store");
            assert!(matches!(store.lookup(&key(n * size / 20), &device(1)), Match::Exact(_)));
            hits.push(start.elapsed());
            let start = Instant::now();
            let store = open(dir.path(), "store");
            assert_eq!(store.lookup(&key(u64::MAX - n), &device(1)), Match::Miss);
            misses.push(start.elapsed());
        }
        hits.sort();
        misses.sort();
        let start = Instant::now();
        assert_eq!(store.entries().len(), size as usize);
        let listed = start.elapsed();
        let start = Instant::now();
        assert_eq!(verify(&store).ok, size as usize);
        let (hit, miss, verified) = (hits[10], misses[10], start.elapsed());
        let line =
            format!("{size} records: open+hit {hit:?}, open+miss {miss:?}, list {listed:?}, verify {verified:?}");
        say(std::io::stderr(), line.clone());
        assert!(hit < Duration::from_millis(5), "{line}");
        assert!(listed < Duration::from_secs(3), "{line}");
    }
}

fn header(bytes: &[u8]) -> (serde_json::Value, String) {
    let text = std::str::from_utf8(bytes).unwrap();
    let (first, rest) = text.split_once('\n').unwrap();
    let mut head: serde_json::Value = serde_json::from_str(first).unwrap();
    // Those who change records leave the index out.
    let index = head.as_object_mut().unwrap().remove("index").map_or(0, |index| index["bytes"].as_u64().unwrap());
    (head, rest[..rest.len() - index as usize].to_string())
}

/// A bundle's bytes with its body changed and a right checksum again.
fn forged(bytes: &[u8], count: usize, change: impl Fn(&str) -> String) -> Vec<u8> {
    let (mut head, body) = header(bytes);
    let body = change(&body);
    head["count"] = count.into();
    head["checksum"] = format!("blake3:{}", blake3::hash(body.as_bytes()).to_hex()).into();
    format!("{head}\n{body}").into_bytes()
}

#[test]
fn a_bundle_that_is_not_whole_and_sound_is_refused_whole() {
    let bytes = many(5).to_bytes();
    assert_eq!(Bundle::parse(&bytes).unwrap().len(), 5);
    assert_eq!(Bundle::parse(&Bundle::default().to_bytes()).unwrap().len(), 0);
    for cut in (0..bytes.len()).step_by(37).chain([bytes.len() - 1]) {
        assert!(Bundle::parse(&bytes[..cut]).is_err(), "cut at {cut}");
    }
    for bit in (0..bytes.len() * 8).step_by(101) {
        let mut bad = bytes.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        assert!(Bundle::parse(&bad).is_err(), "bit {bit}");
    }
    let refused = |count, change: &dyn Fn(&str) -> String| Bundle::parse(&forged(&bytes, count, change)).unwrap_err();
    let same = |body: &str| body.to_string();
    assert!(matches!(refused(4, &same), BundleError::Damaged(why) if why.contains("more")));
    assert!(matches!(refused(6, &same), BundleError::Damaged(why) if why.contains("fewer")));
    assert!(matches!(refused(MAX_RECORDS + 1, &same), BundleError::TooLarge(_)));
    let twice = |body: &str| format!("{}\n{body}", body.lines().next().unwrap());
    assert!(matches!(refused(6, &twice), BundleError::BadRecord { line: 2, .. }));
    let turned = |body: &str| body.lines().rev().map(|l| format!("{l}\n")).collect();
    assert!(matches!(refused(5, &turned), BundleError::BadRecord { line: 2, .. }));
    let escape = |body: &str| body.replacen("\"op\":\"matmul\"", "\"op\":\"../../etc\"", 1);
    assert!(matches!(refused(5, &escape), BundleError::BadRecord { line: 1, .. }));
    let newer = |body: &str| body.replacen("\"schema\":1", "\"schema\":7", 1);
    assert!(matches!(refused(5, &newer), BundleError::BadRecord { why, .. } if why.contains("newer")));
    let big = |body: &str| body.replacen("\"problem\":\"", &format!("\"problem\":\"{}", "x".repeat(17 << 20)), 1);
    assert!(matches!(refused(5, &big), BundleError::BadRecord { line: 1, .. }));
    assert!(matches!(Bundle::parse(b"{}\n"), Err(BundleError::NotABundle(_))));
    assert!(Bundle::parse(&forged(&bytes, 5, same)).is_ok());
}

#[test]
fn a_bundle_whose_names_are_code_or_whose_winner_was_wrong_is_refused() {
    let bytes = many(2).to_bytes();
    let code = "x*/int y=system(\\\"id\\\");/*";
    let spoils: Vec<(String, String)> = vec![
        ("\"variant\":\"tiled\"".into(), format!("\"variant\":\"{code}\"")),
        ("\"mc\":".into(), format!("\"{code}\":")),
        ("\"isa\":\"avx2\"".into(), format!("\"isa\":\"{code}\"")),
        ("\"program\":\"0.1.0\"".into(), format!("\"program\":\"{code}\"")),
        ("\"origin\":\"origin".into(), "\"origin\":\"\\u009b31m".into()),
        ("\"problem\":\"matmul".into(), "\"problem\":\"\\u001b]0;matmul".into()),
        ("\"driver\":\"1.0\"".into(), "\"driver\":\"\\u202e1.0\"".into()),
        // Its own trials call its winner wrong, or do not know it, or it took no time.
        ("\"measured\":{".into(), "\"rejected\":{\"does_not_build\":{\"reason\":\"x\"}},\"was\":{".into()),
        (
            "\"verdict\":{\"winner\":{\"variant\":\"tiled\"".into(),
            "\"verdict\":{\"winner\":{\"variant\":\"naive\"".into(),
        ),
        ("\"median_us\":12.345678901234567".into(), "\"median_us\":-1.0".into()),
        ("\"median_us\":12.345678901234567".into(), "\"median_us\":1e300".into()),
        ("\"floor_us\":1.5".into(), "\"floor_us\":99.5".into()),
    ];
    for (from, to) in spoils {
        let spoil = |body: &str| body.replace(&from, &to);
        let forged = forged(&bytes, 2, spoil);
        assert_ne!(forged, bytes, "{from} is not there");
        match Bundle::parse(&forged) {
            Err(BundleError::BadRecord { line: 1, why }) => {
                assert!(!why.contains(['\u{9b}', '\u{1b}', '\u{202e}']), "{why:?}")
            }
            other => panic!("{from} → {to}: {other:?}"),
        }
    }
}

#[test]
fn of_hostile_bundles_with_right_checksums_nothing_unsound_gets_through() {
    let bytes = many(3).to_bytes();
    let mut random = fastrand::Rng::with_seed(15);
    let pieces = [
        "../",
        "\\\"",
        "\\u009b",
        "\\u001b[2J",
        "*/",
        "system(0);",
        "null",
        "1e308",
        "-1",
        "true",
        "{}",
        "[]",
        "\\n#define",
        "",
        "253402300799",
        "origin0000000002",
        "naive",
        "tiled",
        "rejected",
        "measured",
        "\u{202e}",
        "$(id)",
        "`id`",
    ];
    let (mut taken, cases) = (0, if long() { 200_000 } else { 2_000 });
    for _ in 0..cases {
        let (head, mut body) = header(&bytes);
        for _ in 0..random.usize(1..4) {
            // A word, a number or a piece of punctuation becomes something else.
            let from = (0..=random.usize(..body.len())).rev().find(|i| body.is_char_boundary(*i)).unwrap_or(0);
            let length = body[from..].find(['"', ',', ':', '{', '}', '[', ']']).unwrap_or(0).max(1);
            let to = (from + length..=body.len()).find(|i| body.is_char_boundary(*i)).unwrap_or(body.len());
            body.replace_range(from..to, pieces[random.usize(..pieces.len())]);
        }
        let count = head["count"].as_u64().unwrap() as usize;
        let Ok(bundle) = Bundle::parse(&forged(&bytes, count, |_| body.clone())) else { continue };
        let store = Store::memory();
        if bundle.put_into(&store).is_err() {
            continue;
        }
        taken += 1;
        for record in bundle.records() {
            for edition in &record.editions {
                let winner = &edition.verdict.winner;
                assert!(edition.trials.iter().any(|t| t.candidate == *winner && t.is_right()), "{record:?}");
                let names =
                    edition.trials.iter().map(|t| t.candidate.variant.as_str()).chain([edition.program.as_str()]);
                let code = ['"', '\'', ';', '(', '*', '$', '`', '\n', '/', '\\', '\u{9b}', '\u{1b}', '\u{202e}'];
                assert!(names.into_iter().all(|name| !name.contains(code)), "{record:?}");
            }
        }
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
        let kept = Bundle::of(&store, |_| true);
        assert!(kept.records().flat_map(|r| r.editions).all(|e| e.origin != store.id() && e.tuned_at <= now));
    }
    say(std::io::stderr(), format!("{cases} hostile bundles: {taken} were harmless and taken, the others refused"));
}

#[test]
fn records_that_are_removed_meanwhile_do_no_harm_to_a_check() {
    let dir = temp();
    let store = open(dir.path(), "store");
    many(300).put_into(&store).unwrap();
    let entries = store.entries();
    std::thread::scope(|scope| {
        let remover = scope.spawn(|| entries.iter().for_each(|e| assert!(store.remove(e).unwrap())));
        while !remover.is_finished() {
            let result = verify(&store);
            assert!(result.is_clean(), "{result:?}");
        }
    });
    assert!(matches!(store.check(&entries[0]), warplap_store::Checked::Gone));
}

#[test]
fn a_record_on_the_disk_that_does_not_hold_together_answers_nobody_and_is_named() {
    let dir = temp();
    let store = open(dir.path(), "store");
    store.put(&key(1), &device(1), edition(store.id(), 1, 1), "").unwrap();
    let path = file_of(&dir.path().join("store"), &key(1), &device(1));
    let text = std::fs::read_to_string(&path).unwrap();
    let body = text.split_once('\n').unwrap().1.strip_suffix("\n}\n").unwrap();
    let body = body.replacen("\"variant\": \"tiled\"", "\"variant\": \"tilde\"", 1);
    let sum = blake3::hash(body.as_bytes()).to_hex();
    std::fs::write(&path, format!("{{\"checksum\": \"blake3:{sum}\", \"record\":\n{body}\n}}\n")).unwrap();
    let result = verify(&store);
    assert!(result.damaged.iter().any(|(_, why)| why.contains("none of its trials")), "{result:?}");
    assert_eq!(store.lookup(&key(1), &device(1)), Match::Miss);
    assert_eq!(store.set_aside().len(), 1);
}

#[test]
fn verify_counts_and_prune_takes_what_it_is_told() {
    let dir = temp();
    let store = open(dir.path(), "store");
    for n in 0..10 {
        store.put(&key(n), &device(1), edition(store.id(), 1, 1), "").unwrap();
    }
    let path = |n| file_of(&dir.path().join("store"), &key(n), &device(1));
    std::fs::write(path(0), "nonsense").unwrap();
    std::fs::copy(path(2), path(1)).unwrap();
    store.miss(&key(99), &device(1), "");
    let result = verify(&store);
    let counts = (result.ok, result.damaged.len(), result.misplaced.len(), result.newer.len(), result.set_aside);
    assert_eq!(counts, (8, 1, 1, 0, 0));
    assert!(!result.is_clean());
    let counted = stats(&store);
    assert_eq!((counted.records, counted.misses, counted.by_op.len()), (10, 1, 1));
    let dry = prune(&store, &Prune { damaged: true, dry_run: true, ..Prune::default() }).unwrap();
    assert_eq!((dry.entries.len(), store.entries().len()), (2, 10));
    assert_eq!(prune(&store, &Prune::default()).unwrap().entries.len(), 0);
    prune(&store, &Prune { damaged: true, ..Prune::default() }).unwrap();
    assert!(verify(&store).is_clean());
    let old = std::time::SystemTime::now() - Duration::from_secs(9000);
    std::fs::File::options().write(true).open(path(5)).unwrap().set_modified(old).unwrap();
    let temp = path(5).with_file_name(".tmp-1-dead");
    std::fs::File::create(&temp).unwrap().set_modified(old).unwrap();
    let rules = Prune { older_than: Some(Duration::from_secs(3600)), damaged: true, ..Prune::default() };
    let gone = prune(&store, &rules).unwrap();
    assert_eq!((gone.entries.len(), gone.swept, temp.exists()), (1, 1, false));
    let mut upgraded = device(1);
    assert_eq!(
        prune(&store, &Prune { stale_for: Some(upgraded.clone()), ..Prune::default() }).unwrap().entries.len(),
        0
    );
    assert_eq!(prune(&store, &Prune { keep: Some(4), ..Prune::default() }).unwrap().entries.len(), 3);
    upgraded.soft.insert("driver".into(), "2".into());
    assert_eq!(prune(&store, &Prune { stale_for: Some(upgraded), ..Prune::default() }).unwrap().entries.len(), 4);
    assert!(store.entries().is_empty());
}

/// Records of few keys, origins, drivers and times, so that they meet.
fn some_record() -> impl Strategy<Value = Record> {
    let editions = prop::collection::vec((0..3u8, 0..12u8, 0..4u64, 0..3i64), 0..6);
    (0..3u64, 0..2u32, 0..3u8, editions).prop_map(|(k, d, problem, editions)| {
        let mut made = record(&key(k), &device(d), edition("x", 0, 0));
        made.problem = format!("p{problem}");
        made.editions = editions
            .into_iter()
            .map(|(origin, driver, at, n)| {
                let mut made = edition(&format!("o{origin}"), at, n);
                made.soft.insert("driver".into(), driver.to_string());
                made
            })
            .collect();
        made
    })
}

fn some_bundle() -> impl Strategy<Value = Bundle> {
    prop::collection::vec(some_record(), 0..8).prop_map(Bundle::of_records)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if long() { 10_000 } else { 300 }, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn f14_merging_bundles_is_commutative_associative_and_idempotent(
        a in some_bundle(), b in some_bundle(), c in some_bundle()
    ) {
        let join = |x: &Bundle, y: &Bundle| x.clone().merge(y.clone());
        prop_assert_eq!(&join(&a, &b), &join(&b, &a));
        prop_assert_eq!(&join(&join(&a, &b), &c), &join(&a, &join(&b, &c)));
        prop_assert_eq!(&join(&a, &a), &a);
        prop_assert_eq!(&join(&join(&a, &b), &b), &join(&a, &b));
        prop_assert_eq!(&Bundle::parse(&a.to_bytes()).unwrap(), &a);
        // Importing both into one store is the same, in either order.
        let (one, other) = (Store::memory(), Store::memory());
        a.put_into(&one).unwrap();
        b.put_into(&one).unwrap();
        b.put_into(&other).unwrap();
        a.put_into(&other).unwrap();
        prop_assert_eq!(Bundle::of(&one, |_| true), join(&a, &b));
        prop_assert_eq!(Bundle::of(&other, |_| true), join(&a, &b));
    }
}
