//! Whose records are taken in, and in whose name: origin and time are the importer's, bundles carry signatures.

mod store_support;

use store_support::*;
use warplap_core::store::bundle::{Bundle, BundleError};
use warplap_core::store::{Match, SecretKey, Store, StoreError};

const YEAR_9999: u64 = 253_402_300_799;

fn now() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs()
}

fn bundle(origin: &str, at: u64) -> Bundle {
    Bundle::of_records([record(&key(1), &device(1), edition(origin, at, 7))])
}

#[test]
fn a_bundle_that_speaks_in_this_stores_name_from_the_year_9999_does_not_win() {
    let store = Store::memory();
    assert_eq!(bundle(store.id(), YEAR_9999).put_into(&store).unwrap().added, 1);
    let there = store.read(&key(1), &device(1).slug()).unwrap();
    assert!(there.editions[0].origin != store.id() && there.editions[0].tuned_at <= now(), "{there:?}");
    // Taken in once more it brings nothing, though time goes on.
    std::thread::sleep(std::time::Duration::from_millis(1100));
    assert_eq!(bundle(store.id(), YEAR_9999).put_into(&store).unwrap().unchanged, 1);
    // What is measured here afterwards answers, and stays.
    store.put(&key(1), &device(1), edition(store.id(), now(), 1), "").unwrap();
    let answers = |store: &Store| match store.lookup(&key(1), &device(1)) {
        Match::Exact(r) => r.current(&device(1).soft_id(), store.id()).unwrap().verdict.winner.config.int("mc"),
        other => panic!("{other:?}"),
    };
    assert_eq!(answers(&store), Some(1));
    bundle(store.id(), YEAR_9999).put_into(&store).unwrap();
    bundle("another0another0", YEAR_9999).put_into(&store).unwrap();
    assert_eq!(answers(&store), Some(1));
    store.put(&key(1), &device(1), edition(store.id(), now(), 2), "").unwrap();
    assert_eq!(answers(&store), Some(2), "tuned again");
}

#[test]
fn ones_own_bundle_comes_back_as_somebody_elses() {
    let store = Store::memory();
    store.put(&key(1), &device(1), edition(store.id(), 5, 1), "").unwrap();
    let own = Bundle::of(&store, |_| true);
    assert_eq!(own.put_into(&store).unwrap().unchanged, 1);
    for entry in store.entries() {
        store.remove(&entry).unwrap();
    }
    assert_eq!(own.put_into(&store).unwrap().added, 1);
    let back = store.read(&key(1), &device(1).slug()).unwrap();
    assert!(back.editions[0].origin != store.id() && back.editions[0].tuned_at == 5);
    assert_eq!(own.put_into(&store).unwrap().unchanged, 1);
}

#[test]
fn a_store_that_asks_for_signatures_takes_those_of_trusted_keys_and_no_others() {
    let (friend, stranger) = (SecretKey::generate().unwrap(), SecretKey::generate().unwrap());
    let plain = bundle("origin0000000001", 5);
    let signed = |key: &SecretKey| Bundle::parse(&plain.to_signed_bytes(key)).unwrap();
    let dir = temp();
    let store = Store::directory(&dir.path().join("s")).unwrap();
    // Nothing is asked for: everything is taken, and a signature is known for what it is.
    assert_eq!(signed(&stranger).signers().unwrap().iter().collect::<Vec<_>>(), [&stranger.public()]);
    assert!(plain.signers().is_none() && plain.put_into(&store).is_ok());
    store
        .trust(|t| {
            t.required = true;
            t.keys.insert(friend.public().to_string(), "a friend".into());
        })
        .unwrap();
    let store = Store::directory(&dir.path().join("s")).unwrap();
    let refused = |bundle: &Bundle| matches!(bundle.put_into(&store), Err(StoreError::Unsigned { .. }));
    assert!(refused(&plain) && refused(&signed(&stranger)));
    assert!(refused(&signed(&friend).merge(plain.clone())) && refused(&signed(&friend).merge(signed(&stranger))));
    assert_eq!(signed(&friend).put_into(&store).unwrap().unchanged, 1);
    assert!(signed(&friend).merge(signed(&friend)).put_into(&store).is_ok());
    // Whom it trusts is not part of what it exports.
    assert!(!String::from_utf8(Bundle::of(&store, |_| true).to_bytes()).unwrap().contains("a friend"));
    // A list that cannot be read trusts nobody.
    let list = files_below(dir.path()).into_iter().find(|p| p.ends_with("trusted.json")).unwrap();
    std::fs::write(&list, "{}").unwrap();
    assert!(signed(&friend).put_into(&store).is_err());
}

#[test]
fn a_signed_bundle_that_was_changed_is_refused_whoever_asks() {
    let key = SecretKey::generate().unwrap();
    let bytes = bundle("origin0000000001", 5).to_signed_bytes(&key);
    let text = String::from_utf8(bytes.clone()).unwrap();
    let (head, body) = text.split_once('\n').unwrap();
    let mut header: serde_json::Value = serde_json::from_str(head).unwrap();
    // Another body with a right checksum, under the old signature.
    let other = body.replace("0.1.0", "0.1.1");
    header["checksum"] = format!("blake3:{}", blake3::hash(other.as_bytes()).to_hex()).into();
    let forged = Bundle::parse(format!("{header}\n{other}").as_bytes());
    assert!(matches!(forged, Err(BundleError::Forged { .. })), "{forged:?}");
    // Another's name on it.
    let mut header: serde_json::Value = serde_json::from_str(head).unwrap();
    header["signed"]["key"] = SecretKey::generate().unwrap().public().to_string().into();
    assert!(matches!(Bundle::parse(format!("{header}\n{body}").as_bytes()), Err(BundleError::Forged { .. })));
    for at in 0..head.len() {
        let mut bad = bytes.clone();
        bad[at] ^= 1;
        assert!(Bundle::parse(&bad).is_err(), "byte {at} of the header");
    }
    assert_eq!(Bundle::parse(&bytes).unwrap().len(), 1);
}
