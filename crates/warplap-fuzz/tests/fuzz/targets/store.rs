//! The store's files: what is damaged is never believed, and what is believed holds together and comes back the same.

use std::cell::RefCell;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use warplap::core::fingerprint::Fingerprint;
use warplap::core::key::Key;
use warplap::core::record::Record;
use warplap::core::store::alphabet::{is_axis, is_value, is_variant};
use warplap::core::store::bundle::{Bundle, Reader};
use warplap::core::store::files::{Files, Hook, Step};
use warplap::core::store::minisign::{Hashed, MinisignSignature};
use warplap::core::store::trusted::Trusted;
use warplap::core::store::{Change, Checked, Kind, Match, MemoryBackend, Place, PublicKey, Store, StoreBackend};

const BELIEVED: &str = "believed";

/// The body of a sealed file, if its checksum fits: worked out here once more.
fn sealed_body(bytes: &[u8]) -> Option<&[u8]> {
    let rest = bytes.strip_prefix(b"{\"checksum\": \"blake3:")?;
    let (sum, rest) = rest.split_at_checked(64)?;
    let start = rest.iter().position(|b| *b == b'\n')?;
    let body = rest[start + 1..].strip_suffix(b"\n}\n")?;
    (blake3::hash(body).to_hex().as_bytes() == sum).then_some(body)
}

fn seal(kind: &str, body: &[u8]) -> Vec<u8> {
    let sum = blake3::hash(body).to_hex();
    [format!("{{\"checksum\": \"blake3:{sum}\", \"{kind}\":\n").as_bytes(), body, b"\n}\n"].concat()
}

/// A store of one document, whatever it is.
fn holding(place: &Place, bytes: Vec<u8>) -> Store {
    let backend = MemoryBackend::new();
    backend
        .put(place, Duration::ZERO, &mut |_| Ok(Change::to(bytes.clone())))
        .expect("a backend in memory takes anything");
    Store::new(Arc::new(backend))
}

/// The key and the device of the corpus.
fn asked() -> (Key, Fingerprint) {
    let hard = [("model", "Test Chip 1".to_string()), ("cores", "2".to_string())];
    let device = Fingerprint::new(hard, [("driver", "1.0".to_string())]);
    (Key::new("matmul", "matmul:m=1,n=64,k=64,f32;bucket=exact".into()), device)
}

/// Looks a key up in a store that holds these bytes in its place, and checks what is believed.
fn looked_up(bytes: Vec<u8>) -> String {
    let (key, device) = asked();
    let place = Place::of(&key, &device.slug()).expect("a plain place");
    let store = holding(&place, bytes);
    let checked = store.check(&store.entries()[0]);
    match store.lookup(&key, &device) {
        Match::Exact(result) | Match::Near(result) => {
            assert_eq!((&result.op, &result.key, &result.device), (&key.op, &key.text, &device.hard));
            holds_together(&result);
            BELIEVED.into()
        }
        Match::Foreign(..) => panic!("there is no other device"),
        // A record without editions answers nothing; a newer program's is left alone; everything else is set aside.
        Match::Miss => match checked {
            Checked::Whole(record) => format!("{} editions", record.editions.len()),
            Checked::Newer(_) => "newer".into(),
            Checked::Damaged(why) | Checked::Misplaced(why) => {
                assert!(super::is_short(&why) && super::is_seen(&why), "{why:?}");
                assert!(store.entries().is_empty(), "it was not set aside: {why}");
                why
            }
            Checked::Unreadable(why) => panic!("memory can be read: {why}"),
            Checked::Gone => panic!("it was there"),
        },
    }
}

/// What is asked of every record that is believed: sound, and the same after it was kept once more.
fn holds_together(record: &Record) {
    for edition in &record.editions {
        let winner = &edition.verdict.winner;
        let won = edition.trials.iter().find(|t| t.candidate == *winner && t.is_right());
        assert!(won.and_then(|t| t.median_us()).is_some_and(|us| us > 0.0 && us.is_finite()), "{winner:?}");
        for candidate in edition.trials.iter().map(|t| &t.candidate) {
            assert!(is_variant(&candidate.variant), "{candidate:?}");
            assert!(candidate.config.0.iter().all(|(axis, value)| is_axis(axis) && is_value(value)), "{candidate:?}");
        }
    }
    let store = Store::memory();
    store.merge(record.clone()).expect("what was read can be kept");
    let bundle = Bundle::of(&store, |_| true);
    assert_eq!((bundle.len(), bundle.left_out), (1, 0));
    assert_eq!(Bundle::parse(&bundle.to_bytes()).expect("what was written can be read"), bundle);
}

/// A record's file as it is.
pub(crate) fn file(bytes: &[u8]) -> String {
    let answer = looked_up(bytes.to_vec());
    assert!(answer != BELIEVED || sealed_body(bytes).is_some(), "damage was believed");
    answer
}

/// A record's body under a checksum that fits.
pub(crate) fn record(bytes: &[u8]) -> String {
    looked_up(seal(Kind::Record.word(), bytes))
}

/// A bundle as it is.
pub(crate) fn bundle(bytes: &[u8]) -> String {
    parsed(bytes)
}

/// A bundle's lines under a header that fits.
pub(crate) fn lines(bytes: &[u8]) -> String {
    let count = bytes.iter().filter(|b| **b == b'\n').count();
    let sum = blake3::hash(bytes).to_hex();
    let header =
        format!("{{\"format\":\"warplap-bundle\",\"version\":1,\"count\":{count},\"checksum\":\"blake3:{sum}\"}}\n");
    parsed(&[header.as_bytes(), bytes].concat())
}

fn parsed(bytes: &[u8]) -> String {
    let bundle = match Bundle::parse(bytes) {
        Ok(bundle) => bundle,
        Err(e) => {
            assert!(super::is_short(&e.to_string()) && super::is_seen(&e.to_string()), "{e:?}");
            return e.to_string();
        }
    };
    assert_eq!(bundle.records().count(), bundle.len());
    let again = Bundle::parse(&bundle.to_bytes()).expect("what was written can be read");
    assert_eq!(again.to_bytes(), bundle.to_bytes());
    bundle.records().for_each(|record| holds_together(&record));
    let store = Store::memory();
    let imported = bundle.put_into(&store).expect("a sound bundle is taken");
    assert_eq!(imported.added, bundle.len());
    assert_eq!(bundle.put_into(&store).expect("and taken again").unchanged, bundle.len());
    let kept = Bundle::of(&store, |_| true);
    assert!(kept.records().flat_map(|r| r.editions).all(|e| e.origin != store.id()));
    format!("{} records", bundle.len())
}

/// Signatures beside a bundle: nobody here has the key, so nothing that differs can be its.
pub(crate) fn signed(bytes: &[u8]) -> String {
    const BUNDLE: &[u8] = include_bytes!("../../../corpus/bundle/three-records");
    const ORIGINAL: &[u8] = include_bytes!("../../../corpus/signed/a-signature");
    const KEY: &str = "RWSqunL6Tt3bfVxL97U3kuy1sUCPJIkxhvgSSOif+lM4iUE14okZhZyP";
    let key: PublicKey = KEY.parse().expect("the key of the corpus");
    let signatures = match MinisignSignature::parse_all(bytes) {
        Ok(signatures) => signatures,
        Err(e) => {
            assert!(super::is_short(&e.to_string()) && super::is_seen(&e.to_string()), "{e:?}");
            return e.to_string();
        }
    };
    let text: String = signatures.iter().map(|s| s.to_string()).collect();
    assert_eq!(MinisignSignature::parse_all(text.as_bytes()).expect("what was written can be read"), signatures);
    let original = MinisignSignature::parse_all(ORIGINAL).expect("the signature of the corpus").remove(0);
    let file = Hashed::of(BUNDLE);
    let good: Vec<&MinisignSignature> = signatures.iter().filter(|s| s.is_of(&key, &file)).collect();
    assert!(good.iter().all(|s| s.comment() == original.comment()), "forged");
    let mut trusted = Trusted::default();
    trusted.add(&key, "");
    assert_eq!(Bundle::signed(BUNDLE, &signatures, &trusted).is_ok(), !good.is_empty());
    format!("{} of {} signatures", good.len(), signatures.len())
}

/// A bundle that is read record by record: what it gives is sound, whatever its header and index say.
pub(crate) fn reader(bytes: &[u8]) -> String {
    let path = folder().join("bundle");
    std::fs::write(&path, bytes).expect("a file of our own");
    match Reader::open(&path).and_then(|reader| Ok((reader.places()?, reader))) {
        Err(e) => {
            assert!(super::is_short(&e.to_string()) && super::is_seen(&e.to_string()), "{e:?}");
            e.to_string()
        }
        Ok((places, reader)) => {
            for (place, _) in &places {
                let document = reader.document(place, &[]).expect("it was read before");
                assert!(document.is_none_or(|bytes| sealed_body(&bytes).is_some()));
            }
            format!("{} records", places.len())
        }
    }
}

/// A note under a checksum that fits: on a device, whom the store trusts, and a key that was missed.
pub(crate) fn note(bytes: &[u8]) -> String {
    let (key, device) = asked();
    let document = seal(Kind::Note.word(), bytes);
    let place = Place::note(&device.slug(), "ceilings").expect("a plain name");
    let result = holding(&place, document.clone()).note(&device.slug(), "ceilings");
    if let Some(value) = &result {
        let store = Store::memory();
        store.put_note(&device.slug(), "ceilings", value).expect("what was read can be kept");
        assert_eq!(store.note(&device.slug(), "ceilings").as_ref(), Some(value));
    }
    let place = Place::note("store", "trusted").expect("a plain name");
    let trusted = holding(&place, document).trusted();
    let hash = format!("matmul/{}", key.hash());
    let place = Place::new(Kind::Miss, &device.slug(), &hash).expect("a plain place");
    let misses = holding(&place, seal(Kind::Miss.word(), bytes)).misses();
    assert!(misses.iter().all(|missed| missed.key().hash() == key.hash()));
    format!("{} {} {}", result.is_some(), super::said(trusted), misses.len())
}

thread_local! {
    static FOLDER: RefCell<Option<tempfile::TempDir>> = const { RefCell::new(None) };
}

/// A folder for the files of this process, in memory where the system has such a place.
pub(super) fn folder() -> PathBuf {
    FOLDER.with_borrow_mut(|folder| {
        let made = || tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a folder");
        folder.get_or_insert_with(made).path().to_path_buf()
    })
}

/// The file that says who a store is.
pub(crate) fn identity(bytes: &[u8]) -> String {
    let root = folder().join("store");
    let known = || Store::directory(&root).expect("a folder of our own").id().to_string();
    known();
    std::fs::write(root.join("store.json"), bytes).expect("a file of our own");
    let id = known();
    assert!(id.len() == 16 && id.bytes().all(|b| b.is_ascii_hexdigit()), "{id:?}");
    assert_eq!(id, known(), "it changes from one opening to the next");
    for aside in Store::directory(&root).expect("a folder of our own").set_aside() {
        std::fs::remove_file(aside.path).expect("a file of our own");
    }
    if sealed_body(bytes).is_some() { "sealed" } else { "damaged" }.into()
}

/// A file system without locks.
struct Lockless;

impl Hook for Lockless {
    fn before(&self, step: Step, _: &std::path::Path) -> std::io::Result<()> {
        if step == Step::Lock { Err(std::io::Error::from_raw_os_error(95)) } else { Ok(()) }
    }
}

/// What somebody wrote into the lease of a key: whoever waits for it comes to an end.
pub(crate) fn lease(bytes: &[u8]) -> String {
    let (key, device) = asked();
    let root = folder().join("leased");
    let store = Store::directory_on(&root, Files::with_hook(Arc::new(Lockless))).expect("a folder of our own");
    let held = store.try_lock(&key, &device, Duration::ZERO).expect("nobody has it");
    let path = lease_below(&root).expect("a lease is a file");
    drop(held);
    std::fs::write(&path, bytes).expect("a file of our own");
    let taken = store.try_lock(&key, &device, Duration::ZERO).is_some();
    let _ = std::fs::remove_file(&path);
    if taken { "taken over" } else { "left alone" }.into()
}

fn lease_below(folder: &std::path::Path) -> Option<PathBuf> {
    let inside = std::fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path());
    inside.into_iter().find_map(|path| match path.is_dir() {
        true => lease_below(&path),
        false => path.extension().is_some_and(|e| e == "lease").then_some(path),
    })
}

/// A public key.
pub(crate) fn key(bytes: &[u8]) -> String {
    let Ok(text) = std::str::from_utf8(bytes) else { return "no text".into() };
    let read = text.parse::<PublicKey>();
    if let Ok(key) = &read {
        assert_eq!(key.to_string().parse::<PublicKey>().expect("what was written can be read"), *key);
    }
    super::said(read)
}
