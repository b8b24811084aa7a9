//! A store straight from a bundle: opened in milliseconds, checked record by record, written nowhere. Takes about ten
//! seconds; with `WARPLAP_LONG` a thousand processes start from one bundle.

#[path = "../../warplap-store/tests/support/mod.rs"]
mod store_support;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use store_support::*;
use warplap_core::store::bundle::{Bundle, Claims};
use warplap_core::store::{Match, SecretKey, Store};
use warplap_fleet::register;

const RECORDS: u64 = 10_000;

fn written(dir: &Path, count: u64, key_of: &SecretKey) -> PathBuf {
    let records = (0..count).map(|n| record(&key(n), &device(1), edition("origin0000000001", 100 + n, n as i64)));
    let mut bundle = Bundle::of_records(records);
    bundle.claims = Claims { name: "all".into(), serial: Some(1), expires: None };
    let (path, bytes) = (dir.join("b"), bundle.to_bytes());
    std::fs::write(&path, &bytes).unwrap();
    std::fs::write(dir.join("b.minisig"), Bundle::sign(&bytes, key_of).unwrap().to_string()).unwrap();
    path
}

fn url(path: &Path, key: &SecretKey) -> String {
    format!("bundle:{}?key={}&trust=signed", path.display(), key.public())
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

#[test]
fn ten_thousand_records_are_opened_in_milliseconds_and_every_process_asks_nobody() {
    register();
    if part().is_some() {
        let begun = Instant::now();
        let store = Store::open(setting("URL")).unwrap();
        let n = std::process::id() as u64 % RECORDS;
        assert!(matches!(store.lookup(&key(n), &device(1)), Match::Exact(_)));
        return say(std::io::stdout(), format!("opened {}", begun.elapsed().as_micros()));
    }
    let (dir, signer) = (temp(), SecretKey::generate().unwrap());
    let path = written(dir.path(), RECORDS, &signer);
    let (mut opened, mut result, mut missed) = (Vec::new(), Vec::new(), Vec::new());
    for n in 0..50 {
        let begun = Instant::now();
        let store = Store::open(url(&path, &signer)).unwrap();
        opened.push(begun.elapsed());
        let begun = Instant::now();
        let Match::Exact(record) = store.lookup(&key(n * 199), &device(1)) else { panic!("{n}") };
        result.push(begun.elapsed());
        assert_eq!(winner(&record), n as i64 * 199);
        let edition = &record.editions[0];
        assert!(edition.origin != store.id() && edition.vouched.contains(&signer.public().origin()));
        assert!(store.needs_no_proof(edition), "trust=signed");
        let begun = Instant::now();
        assert_eq!(store.lookup(&key(RECORDS + n), &device(1)), Match::Miss);
        missed.push(begun.elapsed());
    }
    let (open, hit, miss) = (median(opened), median(result), median(missed));
    let bytes = std::fs::metadata(&path).unwrap().len();
    let line = format!("{RECORDS} records, {bytes} bytes: open {open:?}, hit {hit:?}, miss {miss:?}");
    say(std::io::stderr(), line.clone());
    assert!(open < Duration::from_millis(50), "{line}");
    let count = if long() { 1_000 } else { 20 };
    let name = "ten_thousand_records_are_opened_in_milliseconds_and_every_process_asks_nobody";
    let (begun, mut inside) = (Instant::now(), Vec::new());
    for _ in 0..count / 10 {
        let start =
            || child(name, "open", &[("URL", &url(&path, &signer))]).stdout(std::process::Stdio::piped()).spawn();
        let ten: Vec<_> = (0..10).map(|_| start().unwrap()).collect();
        for child in ten {
            let ended = child.wait_with_output().unwrap();
            let said = String::from_utf8_lossy(&ended.stdout).to_string();
            let micros = said.split("opened ").nth(1).and_then(|rest| rest.split_whitespace().next()?.parse().ok());
            inside.push(Duration::from_micros(micros.unwrap_or_else(|| panic!("{said}"))));
        }
    }
    let each = median(inside);
    say(std::io::stderr(), format!("{count} processes in {:?}: open and look up {each:?} each", begun.elapsed()));
    let left = std::fs::read_dir(dir.path()).unwrap().count();
    assert_eq!(left, 2, "nothing was written");
}

#[test]
fn what_was_changed_or_signed_by_another_is_not_opened_or_not_found() {
    register();
    let (dir, signer, other) = (temp(), SecretKey::generate().unwrap(), SecretKey::generate().unwrap());
    let path = written(dir.path(), 5, &signer);
    let whole = std::fs::read(&path).unwrap();
    assert!(Store::open(url(&path, &other)).is_err());
    let plain = format!("bundle:{}", path.display());
    for bad in ["bundle:", "bundle:/no/such/file", &format!("{plain}?trust=signed"), &format!("{plain}?x=1")] {
        assert!(Store::open(bad).is_err(), "{bad}");
    }
    let (mut believed, mut refused) = (0, 0);
    for at in 0..whole.len() {
        let mut bad = whole.clone();
        bad[at] ^= 1;
        std::fs::write(&path, &bad).unwrap();
        let Ok(store) = Store::open(url(&path, &signer)) else {
            refused += 1;
            continue;
        };
        for n in 0..5 {
            match store.lookup(&key(n), &device(1)) {
                Match::Exact(record) => believed += usize::from(winner(&record) != n as i64),
                _ => refused += 1,
            }
        }
    }
    let tried = whole.len();
    // The ends of the five lines are in no record: who reads one record does not look at them.
    assert!(believed == 0 && refused >= tried - 5, "{believed} believed, {refused} refused of {tried}");
    say(std::io::stderr(), format!("0 of {tried} changed bytes were believed"));
    std::fs::write(&path, &whole).unwrap();
    // Notes and records that are written end with the process.
    let store = Store::open(&plain).unwrap();
    assert_eq!(store.entries().len(), 5);
    store.put(&key(1), &device(1), edition(store.id(), 9, 77), "").unwrap();
    store.put_note("cpu", "n", &serde_json::json!(1)).unwrap();
    let Match::Exact(record) = store.lookup(&key(1), &device(1)) else { panic!() };
    assert_eq!((record.editions.len(), store.entries().len()), (2, 5));
    assert!(std::fs::read(&path).unwrap() == whole);
    assert!(!store.needs_no_proof(&record.editions[0]), "nobody was named who signed it");
}
