//! A store on a backend that core does not know: what holds on the road, and by the rules of keeping, holds there too.
//! The backend itself is `warplap-store/tests/support/book.rs`; the rules of its `rules.rs` run on it as well.
#![allow(
    unreachable_pub,
    dead_code,
    unused_imports,
    reason = "the rooms of another test program, not all of them used"
)]

#[path = "road/fake/mod.rs"]
mod fake;
#[path = "../../warplap-store/tests/support/mod.rs"]
mod store_support;
#[path = "road/support.rs"]
mod support;

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;

use fake::{Fake, Row, problem, row};
use store_support::book::Book;
use store_support::{device, edition, key};
use support::{fate, launch, mode, on, settings, tune, tuner};
use warplap_core::engine::How;
use warplap_core::quarantine;
use warplap_core::rejection::Rejection;
use warplap_core::sandbox::{Passed, SandboxRequest};
use warplap_core::settings::Mode;
use warplap_core::store::bundle::Bundle;
use warplap_core::store::{Mark, Match, Merged, Opener, Place, Store, StoreBackend, StoreError, care, register};
use warplap_core::variant::Fit;

fn rows() -> [Row; 3] {
    [row("reference", 9e-3).fit(Fit::LOW), row("a", 1e-3), row("b", 3e-3)]
}

fn book() -> (Arc<Book>, Store) {
    let book = Arc::new(Book::default());
    (book.clone(), Store::new(book))
}

#[test]
fn what_one_tuned_is_a_hit_for_another_and_measures_nothing() {
    let (book, store) = book();
    let first = tune(&tuner(&rows(), &store, settings()), &problem(64));
    assert_eq!((first.from_store, first.edition.verdict.winner.variant.as_str()), (false, "a"));
    assert_eq!(first.edition.origin, "b00b00b00b00b00b");
    let now = rows();
    let another = tuner(&now, &Store::new(book), settings());
    let second = tune(&another, &problem(64));
    assert!(second.from_store && second.edition == first.edition);
    assert_eq!((another.device().counts()[1], now[2].count.builds()), (0, 0));
    let chosen = tuner(&rows(), &store, mode(Mode::Replay)).choose(&problem(64)).unwrap();
    assert_eq!((chosen.candidate.variant.as_str(), chosen.how), ("a", How::Stored));
    // Another chip is told whose it is; what is missed is remembered until it is tuned.
    let other = on(Fake::named("Other chip", "1.0"), &rows(), &store, mode(Mode::Record));
    assert!(matches!(other.choose(&problem(64)).unwrap().how, How::Foreign(_) | How::Default(_)));
    assert_eq!(store.misses().len(), 1);
    tune(&on(Fake::named("Other chip", "1.0"), &rows(), &store, settings()), &problem(64));
    assert_eq!((store.misses().len(), store.entries().len()), (0, 2));
}

#[test]
fn of_two_threads_that_want_a_key_one_races() {
    let (book, _) = book();
    let (rows, start) = (rows(), Barrier::new(2));
    let tuned = std::thread::scope(|scope| {
        let one = || {
            // Two stores, as in two programs: the lease alone is between them.
            let tuner = tuner(&rows, &Store::new(book.clone()), settings());
            start.wait();
            tune(&tuner, &problem(64)).from_store
        };
        let both = [scope.spawn(one), scope.spawn(one)];
        both.map(|thread| thread.join().unwrap())
    });
    assert_eq!(tuned.iter().filter(|from_store| **from_store).count(), 1, "{tuned:?}");
    assert_eq!(rows[2].count.builds(), 1);
}

#[test]
fn a_lease_ends_with_its_holder() {
    let (book, store) = book();
    let held = store.lock(&key(1), &device(1));
    assert!(held.is_shared());
    assert!(store.try_lock(&key(1), &device(1), Duration::from_millis(20)).is_none());
    assert!(store.try_lock(&key(1), &device(2), Duration::ZERO).is_some());
    drop(held);
    let died = std::thread::spawn(move || {
        let _held = Store::new(book).lock(&key(1), &device(1));
        std::panic::resume_unwind(Box::new("the holder is gone"));
    });
    assert!(died.join().is_err());
    assert!(store.try_lock(&key(1), &device(1), Duration::ZERO).is_some());
}

#[test]
fn writers_of_one_key_lose_nothing_of_each_other() {
    let (book, store) = book();
    std::thread::scope(|scope| {
        for writer in 0..8 {
            let store = &store;
            scope.spawn(move || {
                for n in 0..20 {
                    store.put(&key(1), &device(1), edition(&format!("writer{writer}"), n as u64, n), "").unwrap();
                }
            });
        }
    });
    let record = store.read(&key(1), &device(1).slug()).unwrap();
    assert_eq!(record.editions.len(), 8);
    assert!(
        record.editions.iter().all(|e| e.tuned_at == 19),
        "looked again {} times",
        book.again.load(Ordering::SeqCst)
    );
    assert!(care::verify(&store).is_clean());
}

#[test]
fn who_crashed_in_a_worker_stays_in_quarantine_until_somebody_lets_it_go() {
    fn bad_crashes(request: &SandboxRequest) -> Option<Result<Passed, Rejection>> {
        Some(match request.candidate.variant.as_str() {
            "b" => Err(Rejection::Crashed { reason: "signal 11".into() }),
            _ => Ok(Passed { error: 0.25, seconds: 1e-3 }),
        })
    }
    let (_, store) = book();
    let with_worker = || {
        let fake = Fake::new();
        *fake.worker.lock().unwrap() = Some(bad_crashes);
        fake
    };
    let first = tune(&on(with_worker(), &rows(), &store, settings()), &problem(50)).edition;
    assert_eq!(fate(&first, "b"), "crashed");
    let second = tune(&on(with_worker(), &rows(), &store, settings()), &problem(60)).edition;
    assert!(second.skipped.iter().any(|s| s.variant == "b" && s.reason.contains("in quarantine")));
    for (slug, held) in quarantine::all(&store) {
        assert_eq!(held.candidate.variant, "b");
        assert!(quarantine::clear(&store, &slug, &held).unwrap());
        assert!(!quarantine::clear(&store, &slug, &held).unwrap());
    }
    assert!(quarantine::all(&store).is_empty());
    let third = tune(&on(with_worker(), &rows(), &store, settings()), &problem(70)).edition;
    assert_eq!(fate(&third, "b"), "crashed");
}

#[test]
fn a_listing_since_a_mark_tells_what_was_written_after_it() {
    let dir = store_support::temp();
    for store in [book().1, Store::memory(), Store::directory(&dir.path().join("store")).unwrap()] {
        let put = |n: u64, at| store.put(&key(n), &device(1), edition(store.id(), at, 1), "").unwrap();
        (0..3).for_each(|n| put(n, 1));
        let (all, mark) = store.since(None).unwrap();
        assert_eq!(all.len(), 3);
        // A mark is a text that may be kept.
        let mark = Mark(mark.to_string());
        store.put_note(&device(1).slug(), "n", &serde_json::json!(1)).unwrap();
        put(1, 2);
        put(7, 1);
        let (new, next) = store.since(Some(&mark)).unwrap();
        for n in [1, 7] {
            assert!(new.iter().any(|e| e.hash == key(n).hash()), "{n} on {}", store.place());
        }
        // A directory tells the last minutes again; the others are exact.
        let exact = new.iter().all(|e| e.path.as_os_str().is_empty());
        assert!(!exact || (new.len() == 2 && store.since(Some(&next)).unwrap().0.is_empty()), "{}", store.place());
        assert!(store.remove(&new[0]).unwrap());
        assert!(!store.remove(&new[0]).unwrap());
        let gone = &new[0].hash;
        assert!(store.since(Some(&mark)).unwrap().0.iter().chain(&store.entries()).all(|e| e.hash != *gone));
    }
    let directory = Store::directory(&dir.path().join("store")).unwrap();
    assert!(matches!(directory.since(Some(&Mark("page 3".into()))), Err(StoreError::Invalid(_))));
}

#[test]
fn damage_is_set_aside_and_only_its_key_is_raced_again() {
    let (book, store) = book();
    let first = tuner(&rows(), &store, settings());
    let hurt = tune(&first, &problem(64)).key;
    tune(&first, &problem(32));
    let slug = store.entries()[0].device_slug.clone();
    book.damage(&Place::of(&hurt, &slug).unwrap());
    assert_eq!(care::verify(&store).damaged.len(), 1);
    let now = tuner(&rows(), &store, settings());
    assert_eq!(now.choose(&problem(32)).unwrap().how, How::Stored);
    assert_eq!(now.choose(&problem(64)).unwrap().how, How::Raced);
    assert_eq!(book.torn.lock().unwrap().len(), 1);
    assert!(care::verify(&store).is_clean());
    book.damage(&Place::of(&hurt, &slug).unwrap());
    assert_eq!(store.merge(first.record(&problem(32)).unwrap()).unwrap(), Merged::Unchanged);
    assert!(matches!(tuner(&rows(), &store, mode(Mode::Replay)).choose(&problem(64)).unwrap().how, How::Default(_)));
    assert_eq!(store.entries().len(), 1);
}

#[test]
fn a_bundle_goes_from_a_directory_there_and_back_unchanged() {
    let dir = store_support::temp();
    let (from, there) = (Store::directory(&dir.path().join("a")).unwrap(), book().1);
    for n in 0..70 {
        from.put(&key(n), &device(1), edition(from.id(), 1, 1), "").unwrap();
    }
    let bundle = Bundle::of(&from, |_| true);
    assert_eq!(bundle.put_into(&there).unwrap().added, 70);
    assert_eq!(bundle.put_into(&there).unwrap().unchanged, 70);
    assert_eq!(Bundle::of(&there, |_| true).to_bytes(), bundle.to_bytes());
}

#[test]
fn a_shelf_that_is_down_costs_warnings_and_nothing_else() {
    let (book, store) = book();
    tune(&tuner(&rows(), &store, settings()), &problem(64));
    book.down.store(true, Ordering::SeqCst);
    let tuner = tuner(&rows(), &store, settings());
    let tuned = tune(&tuner, &problem(64));
    assert!(!tuned.from_store && tuned.warning.is_some_and(|w| w.contains("nobody answers")));
    assert!(launch(&tuner, &problem(64)).unwrap());
    assert!(!store.lock(&key(1), &device(1)).is_shared());
    assert_eq!(store.lookup(&key(1), &device(1)), Match::Miss);
    store.miss(&key(1), &device(1), "");
    assert!(store.entries().is_empty() && store.notes().is_empty() && store.since(None).is_err());
    book.down.store(false, Ordering::SeqCst);
    assert_eq!(store.entries().len(), 1);
}

#[test]
fn a_registered_scheme_opens_it_by_its_url() {
    static BOOKS: Mutex<Option<HashMap<String, Arc<Book>>>> = Mutex::new(None);
    fn open(url: &str) -> Result<Arc<dyn StoreBackend>, StoreError> {
        let refused = || StoreError::Backend { title: url.into(), why: "expected book://NAME".into() };
        let name = url.strip_prefix("book://").ok_or_else(refused)?.to_string();
        Ok(BOOKS.lock().unwrap().get_or_insert_default().entry(name).or_default().clone())
    }
    assert!(matches!(Store::open("book://one"), Err(StoreError::UnknownScheme { .. })));
    register("book", Opener { open: |url| open(url).map(Store::new), near: |_| None }).unwrap();
    let (one, again, other) =
        (Store::open("book://one").unwrap(), Store::open("book://one").unwrap(), Store::open("book://two").unwrap());
    one.put(&key(1), &device(1), edition(one.id(), 1, 1), "").unwrap();
    assert!(matches!(again.lookup(&key(1), &device(1)), Match::Exact(_)));
    assert_eq!(other.lookup(&key(1), &device(1)), Match::Miss);
    assert_eq!(Store::open("book:").unwrap_err().to_string(), "book:: expected book://NAME");
    let unknown = Store::open("shelf://x").unwrap_err().to_string();
    assert!(unknown.contains("file:, memory:, book:"), "{unknown}");
}
