//! Whose records are taken in, and in whose name: origin and time are the importer's, bundles carry signatures.

mod support;

use support::*;
use warplap_store::bundle::{Bundle, BundleError, Claims};
use warplap_store::minisign::MinisignSignature;
use warplap_store::trusted::Take;
use warplap_store::{Match, SecretKey, Store, StoreError};

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
        Match::Exact(r) => r.current(&device(1), store.id()).unwrap().verdict.winner.config.int("mc"),
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

/// A store that trusts these keys.
fn trusting(keys: &[&SecretKey]) -> Store {
    let store = Store::memory();
    store.trust(|t| keys.iter().for_each(|key| t.add(&key.public(), "a friend"))).unwrap();
    store
}

fn signed(bytes: &[u8], keys: &[&SecretKey], store: &Store) -> Result<Bundle, BundleError> {
    let signatures: Vec<MinisignSignature> = keys.iter().map(|key| Bundle::sign(bytes, key).unwrap()).collect();
    Bundle::signed(bytes, &signatures, &store.trusted().unwrap())
}

fn claiming(serial: Option<u64>, expires: Option<u64>, at: u64) -> Vec<u8> {
    let mut bundle = bundle("origin0000000001", at);
    bundle.claims = Claims { name: "all".into(), serial, expires };
    bundle.to_bytes()
}

fn answers(store: &Store) -> bool {
    matches!(store.lookup(&key(1), &device(1)), Match::Exact(_))
}

#[test]
fn a_store_that_asks_for_signatures_takes_those_of_trusted_keys_and_no_others() {
    let (friend, stranger) = (SecretKey::generate().unwrap(), SecretKey::generate().unwrap());
    let plain = bundle("origin0000000001", 5);
    let bytes = plain.to_bytes();
    let dir = temp();
    let store = Store::directory(&dir.path().join("s")).unwrap();
    // Nothing is asked for: what nobody signed is taken, and a signature that is there must be good.
    assert!(plain.signers().is_empty() && plain.put_into(&store).is_ok());
    assert!(matches!(signed(&bytes, &[&stranger], &store), Err(BundleError::Stranger { .. })));
    store
        .trust(|t| {
            t.required = true;
            t.add(&friend.public(), "a friend");
        })
        .unwrap();
    let store = Store::directory(&dir.path().join("s")).unwrap();
    assert!(matches!(plain.put_into(&store), Err(StoreError::Unsigned { .. })));
    assert!(matches!(signed(&bytes, &[&stranger], &store), Err(BundleError::Stranger { .. })));
    let good = signed(&bytes, &[&stranger, &friend], &store).unwrap();
    assert_eq!(good.signers().iter().collect::<Vec<_>>(), [&friend.public()]);
    assert!(matches!(good.clone().merge(plain.clone()).put_into(&store), Err(StoreError::Unsigned { .. })));
    // It was there unsigned before; now somebody vouches for it.
    assert_eq!(good.put_into(&store).unwrap().joined, 1);
    assert_eq!(good.put_into(&store).unwrap().unchanged, 1);
    let there = store.read(&key(1), &device(1).slug()).unwrap();
    assert_eq!(there.editions[0].vouched.iter().collect::<Vec<_>>(), [&friend.public().origin()]);
    // Whom it trusts and who vouched is not part of what it exports.
    let exported = String::from_utf8(Bundle::of(&store, |_| true).to_bytes()).unwrap();
    assert!(!exported.contains("a friend") && !exported.contains("vouched"));
    // A list that cannot be read trusts nobody, and nothing from elsewhere answers.
    assert!(answers(&store));
    let list = files_below(dir.path()).into_iter().find(|p| p.ends_with("trusted.json")).unwrap();
    std::fs::write(&list, "{}").unwrap();
    assert!(good.put_into(&store).is_err() && !answers(&store));
}

#[test]
fn nobody_can_claim_in_a_record_that_somebody_vouched_for_it() {
    let friend = SecretKey::generate().unwrap();
    let store = trusting(&[&friend]);
    let mut claims = edition("origin0000000001", 5, 7);
    claims.vouched.insert(friend.public().origin());
    let record = record(&key(1), &device(1), claims);
    let bytes = Bundle::of_records([record.clone()]).to_bytes();
    Bundle::parse(&bytes).unwrap().put_into(&store).unwrap();
    store.merge(record).unwrap();
    assert!(store.read(&key(1), &device(1).slug()).unwrap().editions[0].vouched.is_empty());
}

#[test]
fn a_changed_bundle_is_refused_wherever_it_was_changed() {
    let (friend, other) = (SecretKey::generate().unwrap(), SecretKey::generate().unwrap());
    let store = trusting(&[&friend]);
    let trusted = store.trusted().unwrap();
    let bytes = claiming(Some(3), Some(now() + 1000), 5);
    let signature = Bundle::sign(&bytes, &friend).unwrap();
    let taken = |bytes: &[u8], signature: &[u8]| {
        let all = MinisignSignature::parse_all(signature).ok();
        all.is_some_and(|all| Bundle::signed(bytes, &all, &trusted).is_ok())
    };
    let text = signature.to_string().into_bytes();
    assert!(taken(&bytes, &text));
    let (mut tried, mut accepted) = (0, 0);
    // Every bit of the header, and one of each byte behind it.
    let head = bytes.iter().position(|b| *b == b'\n').unwrap();
    for bit in (0..head * 8).chain((head..bytes.len()).map(|byte| byte * 8 + byte % 8)) {
        let mut bad = bytes.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        tried += 1;
        accepted += usize::from(taken(&bad, &text));
    }
    // Every bit of the signature's file, but those of the comment that nobody signed and of the id, which is a hint.
    let line = text.iter().position(|b| *b == b'\n').unwrap();
    for bit in (line + 16) * 8..text.len() * 8 {
        let mut bad = text.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        tried += 1;
        accepted += usize::from(taken(&bytes, &bad));
    }
    assert_eq!(accepted, 0, "of {tried}");
    say(std::io::stderr(), format!("{accepted} of {tried} flipped bits were accepted"));
    // Another's signature, and another bundle's.
    assert!(!taken(&bytes, Bundle::sign(&bytes, &other).unwrap().to_string().as_bytes()));
    let second = claiming(Some(4), None, 5);
    assert!(matches!(
        Bundle::signed(&second, &[signature], &trusted),
        Err(BundleError::Forged { key }) if key == friend.public().to_string()
    ));
}

#[test]
fn a_bundle_may_not_go_back_and_not_outlive_itself() {
    let friend = SecretKey::generate().unwrap();
    let store = trusting(&[&friend]);
    let put = |serial, expires, take| {
        signed(&claiming(serial, expires, 5), &[&friend], &store).unwrap().put_into_as(&store, take)
    };
    let usual = Take::default();
    put(Some(7), None, usual).unwrap();
    put(Some(7), Some(now() + 100), usual).unwrap();
    for older in [Some(6), Some(0), None] {
        let said = put(older, None, usual).unwrap_err().to_string();
        assert!(said.contains("7 was taken before") && said.contains("--allow-older"), "{said}");
    }
    put(Some(6), None, Take { older: true }).unwrap();
    assert!(put(Some(6), None, usual).is_err(), "what was allowed once is not allowed for ever");
    put(Some(8), None, usual).unwrap();
    for expired in [now() - 10, 1] {
        let said = put(Some(9), Some(expired), Take { older: true }).unwrap_err().to_string();
        assert!(said.contains("expired"), "{said}");
    }
    // A bundle of another name has a row of its own, and what nobody signed moves nobody's.
    let mut other = Bundle::parse(&claiming(Some(1), None, 5)).unwrap();
    other.put_into(&store).unwrap();
    other.claims = Claims { name: "gemm".into(), serial: Some(1), expires: None };
    signed(&other.to_bytes(), &[&friend], &store).unwrap().put_into(&store).unwrap();
    other.claims = Claims { name: "all".into(), serial: Some(u64::MAX), expires: None };
    Bundle::parse(&other.to_bytes()).unwrap().put_into(&store).unwrap();
    put(Some(9), None, usual).unwrap();
}

#[test]
fn what_came_under_a_revoked_key_answers_no_more() {
    let (one, two) = (SecretKey::generate().unwrap(), SecretKey::generate().unwrap());
    let store = trusting(&[&one, &two]);
    let bytes = claiming(None, None, 5);
    signed(&bytes, &[&one], &store).unwrap().put_into(&store).unwrap();
    assert!(answers(&store));
    store.trust(|t| t.revoke(&one.public())).unwrap();
    assert!(!answers(&store));
    assert!(matches!(signed(&bytes, &[&one], &store), Err(BundleError::Revoked { .. })));
    // Somebody else vouches for the same.
    assert_eq!(signed(&bytes, &[&one, &two], &store).unwrap().put_into(&store).unwrap().joined, 1);
    assert!(answers(&store));
    store.trust(|t| t.revoke(&two.public())).unwrap();
    assert!(!answers(&store));
    // What a revoked key's owner measured is his by its origin too.
    store.merge(record(&key(2), &device(1), edition(&two.public().origin(), 5, 1))).unwrap();
    assert_eq!(store.lookup(&key(2), &device(1)), Match::Miss);
    // What was measured here stands, and a key can be trusted again.
    store.put(&key(1), &device(1), edition(store.id(), 6, 1), "").unwrap();
    assert!(answers(&store));
    store.trust(|t| t.add(&two.public(), "again")).unwrap();
    assert!(matches!(store.lookup(&key(2), &device(1)), Match::Exact(_)));
}

#[test]
fn a_threshold_asks_for_several_of_the_trusted_keys() {
    let keys: Vec<SecretKey> = (0..3).map(|_| SecretKey::generate().unwrap()).collect();
    let store = trusting(&[&keys[0], &keys[1]]);
    store.trust(|t| t.threshold = Some(2)).unwrap();
    let bytes = claiming(None, None, 5);
    let put = |with: &[&SecretKey]| signed(&bytes, with, &store).unwrap().put_into(&store);
    let said = put(&[&keys[0]]).unwrap_err().to_string();
    assert!(said.contains("1 of the 2"), "{said}");
    assert!(put(&[&keys[0], &keys[0]]).is_err() && put(&[&keys[0], &keys[2]]).is_err());
    assert!(put(&[&keys[1], &keys[2], &keys[0]]).is_ok());
}

#[test]
fn artifacts_come_out_of_bundles_that_a_trusted_key_signed_and_of_no_others() {
    let friend = SecretKey::generate().unwrap();
    let mut made = bundle("origin0000000001", 5);
    made.carry(&"ab".repeat(32), vec![1, 2, 3]).unwrap();
    assert!(made.carry("../../x", vec![]).is_err());
    let bytes = made.to_bytes();
    let plain = Bundle::parse(&bytes).unwrap();
    assert_eq!((plain.carried(), plain.artifacts()), (1, None));
    let good = signed(&bytes, &[&friend], &trusting(&[&friend])).unwrap();
    assert_eq!(good.artifacts().unwrap()[&"ab".repeat(32)], [1, 2, 3]);
    assert_eq!(good.to_bytes(), bytes);
}

#[test]
fn signing_and_checking_take_less_than_a_hundredth_of_a_second() {
    let key = SecretKey::generate().unwrap();
    let bytes = claiming(Some(1), None, 5);
    let trusted = trusting(&[&key]).trusted().unwrap();
    let (mut signing, mut checking) = (Vec::new(), Vec::new());
    for _ in 0..200 {
        let begun = std::time::Instant::now();
        let signature = Bundle::sign(&bytes, &key).unwrap();
        signing.push(begun.elapsed());
        let begun = std::time::Instant::now();
        assert!(Bundle::signed(&bytes, &[signature], &trusted).is_ok());
        checking.push(begun.elapsed());
    }
    signing.sort();
    checking.sort();
    let line =
        format!("a bundle of {} bytes: sign {:?}, check and read {:?}", bytes.len(), signing[100], checking[100]);
    say(std::io::stderr(), line.clone());
    assert!(signing[100].as_millis() < 10 && checking[100].as_millis() < 10, "{line}");
}
