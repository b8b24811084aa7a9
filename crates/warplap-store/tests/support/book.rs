//! A backend as another crate would write it: a table in one process, with versions in place of locks. Nothing in it is
//! taken from core but the trait and its words.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant, SystemTime};

use warplap_store::{Change, Flight, Kind, Listed, Mark, Next, Place, ReadResult, StoreBackend, StoreError};

#[derive(Default)]
pub struct Book {
    pages: Mutex<HashMap<Place, Page>>,
    count: Mutex<u64>,
    leased: Arc<(Mutex<HashSet<Place>>, Condvar)>,
    /// Why documents were set aside.
    pub torn: Mutex<BTreeSet<String>>,
    /// How often a writer was second and had to look again.
    pub again: AtomicUsize,
    /// Nothing can be reached while this is set.
    pub down: AtomicBool,
}

struct Page {
    bytes: Vec<u8>,
    version: u64,
    modified: SystemTime,
}

/// Ends its lease when it is dropped, by whatever.
struct Lease(Arc<(Mutex<HashSet<Place>>, Condvar)>, Place);

impl Drop for Lease {
    fn drop(&mut self) {
        self.0.0.lock().unwrap().remove(&self.1);
        self.0.1.notify_all();
    }
}

impl Book {
    fn pages(&self) -> Result<MutexGuard<'_, HashMap<Place, Page>>, StoreError> {
        if self.down.load(Ordering::SeqCst) {
            return Err(StoreError::Backend { title: self.title(), why: "nobody answers".into() });
        }
        Ok(self.pages.lock().unwrap())
    }

    /// Overwrites bytes of a document, as a failing disk would.
    pub fn damage(&self, at: &Place) {
        self.pages.lock().unwrap().get_mut(at).unwrap().bytes[80] ^= 1;
    }
}

impl StoreBackend for Book {
    fn id(&self) -> &str {
        "b00b00b00b00b00b"
    }

    fn title(&self) -> String {
        "book://here".into()
    }

    fn get(&self, at: &Place) -> Result<ReadResult, StoreError> {
        Ok(self.pages()?.get(at).map_or(ReadResult::Nothing, |page| ReadResult::Bytes(page.bytes.clone())))
    }

    fn put(&self, at: &Place, wait: Duration, next: &mut Next<'_>) -> Result<(), StoreError> {
        let until = Instant::now() + wait;
        while Instant::now() < until {
            let (result, before) = match self.pages()?.get(at) {
                Some(page) => (ReadResult::Bytes(page.bytes.clone()), Some(page.version)),
                None => (ReadResult::Nothing, None),
            };
            let Change { set_aside, put } = next(result)?;
            let mut pages = self.pages()?;
            if pages.get(at).map(|page| page.version) != before {
                self.again.fetch_add(1, Ordering::SeqCst);
                continue;
            }
            if let Some(why) = set_aside {
                self.torn.lock().unwrap().insert(why);
                pages.remove(at);
            }
            if let Some(bytes) = put {
                assert!(bytes.len() as u64 <= at.kind().limit());
                let mut count = self.count.lock().unwrap();
                *count += 1;
                pages.insert(at.clone(), Page { bytes, version: *count, modified: SystemTime::now() });
            }
            return Ok(());
        }
        Err(StoreError::Busy { path: at.to_string().into() })
    }

    fn delete(&self, at: &Place) -> Result<bool, StoreError> {
        Ok(self.pages()?.remove(at).is_some())
    }

    fn since(&self, kind: Kind, mark: Option<&Mark>) -> Result<(Vec<Listed>, Mark), StoreError> {
        let pages = self.pages()?;
        let after: u64 = mark.map_or(0, |mark| mark.0.strip_prefix("page ").unwrap().parse().unwrap());
        let new = pages.iter().filter(|(at, page)| at.kind() == kind && page.version > after);
        let listed = |(at, page): (&Place, &Page)| Listed {
            place: at.clone(),
            bytes: page.bytes.len() as u64,
            modified: page.modified,
        };
        Ok((new.map(listed).collect(), Mark(format!("page {}", self.count.lock().unwrap()))))
    }

    fn lease(&self, at: &Place, wait: Option<Duration>) -> Result<Option<Flight>, StoreError> {
        drop(self.pages()?);
        let until = Instant::now() + wait.unwrap_or(Duration::from_secs(3600));
        let mut leased = self.leased.0.lock().unwrap();
        while !leased.insert(at.clone()) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            leased = self.leased.1.wait_timeout(leased, left).unwrap().0;
        }
        Ok(Some(Flight::over(Lease(self.leased.clone(), at.clone()))))
    }
}
