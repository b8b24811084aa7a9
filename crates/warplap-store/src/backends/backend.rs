//! A backend: the small seam under the store. Documents stand on it by device, kind and name; it knows nothing of what is
//! in them. Whoever implements this trait, in this crate or another one, has a store:
//! [`Store::new`](crate::Store::new).

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use crate::locks::holder::Holder;
use crate::locks::lock::Flight;
use crate::names::{Kind, Place};
use crate::{SetAside, StoreError};

/// Makes the next document of what is there now. An error leaves everything as it is. It may be called again when
/// somebody else wrote in between, and it must not use the backend.
pub type Next<'a> = dyn FnMut(ReadResult) -> Result<Change, StoreError> + 'a;

/// A place where documents are kept. One backend is used by many threads, and by many processes where it outlives one.
pub trait StoreBackend: Send + Sync {
    /// The id of this backend, which stays with it for its life: 16 hexadecimal digits. What is measured here carries it.
    fn id(&self) -> &str;

    /// Where it is, for people: a directory, `memory`, an address without its password.
    fn title(&self) -> String;

    /// The document of a place. An error says that this attempt failed, nothing about the document.
    fn get(&self, at: &Place) -> Result<ReadResult, StoreError>;

    /// The one way to write, compare and swap: `next` sees what is there and says what comes in its place, and nobody
    /// else writes to the place in between. When it returns without an error the document is durable, whole or not at
    /// all. Waits for other writers of the place, no longer than `wait`.
    fn put(&self, at: &Place, wait: Duration, next: &mut Next<'_>) -> Result<(), StoreError>;

    /// Removes a document; `false` when there was none.
    fn delete(&self, at: &Place) -> Result<bool, StoreError>;

    /// What was written since a mark (everything with `None`), and the mark to ask with next time. It may tell of a
    /// document twice, but it never leaves one out. What was removed is not told.
    fn since(&self, kind: Kind, mark: Option<&Mark>) -> Result<(Vec<Listed>, Mark), StoreError>;

    /// The right to work on a place, alone. It ends when it is dropped or its holder dies, and it keeps nobody from
    /// reading or writing. Waits no longer than `wait` (as long as it takes with `None`); `Ok(None)`: somebody else has
    /// it.
    fn lease(&self, at: &Place, wait: Option<Duration>) -> Result<Option<Flight>, StoreError>;

    /// Who has the right to work on a place now, as far as it is known.
    fn holder(&self, _at: &Place) -> Option<Holder> {
        None
    }

    /// As [`StoreBackend::put`] for several places, which come in their order; `next` is told which one. Worth having where
    /// many documents are made durable in one go.
    fn put_many(
        &self,
        places: &[Place],
        wait: Duration,
        next: &mut dyn FnMut(usize, ReadResult) -> Result<Change, StoreError>,
    ) -> Vec<Result<(), StoreError>> {
        let one = |(n, at): (usize, &Place)| self.put(at, wait, &mut |result| next(n, result));
        places.iter().enumerate().map(one).collect()
    }

    /// Puts a document where there is none; it need not be durable. Worth having where that is cheaper than a put.
    fn add(&self, at: &Place, document: &dyn Fn() -> Vec<u8>) -> Result<(), StoreError> {
        self.put(at, Duration::from_secs(1), &mut |result| {
            Ok(if result == ReadResult::Nothing { Change::to(document()) } else { Change::default() })
        })
    }

    /// The places of other devices with the same kind and name. Worth having where there is a quicker way than a
    /// listing.
    fn elsewhere(&self, at: &Place) -> Result<Vec<Listed>, StoreError> {
        let (mut all, _) = self.since(at.kind(), None)?;
        all.retain(|l| l.place.name() == at.name() && l.place.device() != at.device());
        Ok(all)
    }

    /// The file of a place, where it is one.
    fn path(&self, _at: &Place) -> Option<PathBuf> {
        None
    }

    /// Documents that were set aside and are still there.
    fn set_aside(&self) -> Vec<SetAside> {
        Vec::new()
    }

    /// Removes what was set aside, and what killed writers left behind; how many. Younger than `age` stay.
    fn sweep(&self, _age: Duration) -> usize {
        0
    }
}

/// What stands at a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadResult {
    /// Nothing.
    Nothing,
    /// A document, as it was put.
    Bytes(Vec<u8>),
    /// Something that nobody put there this way (a link, a stranger's file, more than [`Kind::limit`] bytes), and what.
    Unfit(String),
}

/// What is to be done with a place. By default nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// What is there is damaged, and why: it is to be kept out of the way for people to look at, or else removed.
    pub set_aside: Option<String>,
    /// The document that comes in its place.
    pub put: Option<Vec<u8>>,
}

impl Change {
    /// A new document in place of what is there.
    pub fn to(bytes: Vec<u8>) -> Change {
        Change { put: Some(bytes), ..Change::default() }
    }
}

/// A document in a listing, which opens none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Where it stands.
    pub place: Place,
    /// Its size.
    pub bytes: u64,
    /// When it was last written.
    pub modified: SystemTime,
}

/// How far a listing went, in the backend's own words. It may be kept, and is good for the backend that gave it alone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Mark(pub String);

impl std::fmt::Display for Mark {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}
