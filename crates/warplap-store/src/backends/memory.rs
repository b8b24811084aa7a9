//! The backend in memory: the same rules without a directory. The fall-back where none can be used, and for tests.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use crate::StoreError;
use crate::backends::backend::{Change, Listed, Mark, Next, ReadResult, StoreBackend};
use crate::backends::whole::fresh;
use crate::locks::lock::Flight;
use crate::names::{Kind, Place, shorten};

/// A backend that ends with its process.
pub struct MemoryBackend {
    id: String,
    documents: Mutex<Documents>,
}

#[derive(Default)]
struct Documents {
    by_place: BTreeMap<Place, Document>,
    /// How many were ever put.
    count: u64,
}

struct Document {
    bytes: Vec<u8>,
    modified: SystemTime,
    /// The how-manieth put this was.
    number: u64,
}

impl MemoryBackend {
    /// An empty backend.
    pub fn new() -> Self {
        MemoryBackend { id: format!("{:016x}", fresh()), documents: Mutex::default() }
    }

    fn documents(&self) -> MutexGuard<'_, Documents> {
        self.documents.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for MemoryBackend {
    fn default() -> Self {
        Self::new()
    }
}

impl StoreBackend for MemoryBackend {
    fn id(&self) -> &str {
        &self.id
    }

    fn title(&self) -> String {
        "memory".into()
    }

    fn get(&self, at: &Place) -> Result<ReadResult, StoreError> {
        Ok(self.documents().document(at))
    }

    fn put(&self, at: &Place, _: Duration, next: &mut Next<'_>) -> Result<(), StoreError> {
        let mut documents = self.documents();
        let Change { set_aside, put } = next(documents.document(at))?;
        if set_aside.is_some() {
            documents.by_place.remove(at);
        }
        if let Some(bytes) = put {
            documents.count += 1;
            let document = Document { bytes, modified: SystemTime::now(), number: documents.count };
            documents.by_place.insert(at.clone(), document);
        }
        Ok(())
    }

    fn delete(&self, at: &Place) -> Result<bool, StoreError> {
        Ok(self.documents().by_place.remove(at).is_some())
    }

    fn since(&self, kind: Kind, mark: Option<&Mark>) -> Result<(Vec<Listed>, Mark), StoreError> {
        let no_mark = |mark: &Mark| StoreError::Invalid(format!("'{}' is no mark of a memory", shorten(&mark.0)));
        let after = mark.map_or(Ok(0), |mark| mark.0.parse::<u64>().map_err(|_| no_mark(mark)))?;
        let documents = self.documents();
        let new = documents.by_place.iter().filter(|(place, d)| place.kind() == kind && d.number > after);
        let listed = new.map(|(place, document)| Listed {
            place: place.clone(),
            bytes: document.bytes.len() as u64,
            modified: document.modified,
        });
        Ok((listed.collect(), Mark(documents.count.to_string())))
    }

    fn lease(&self, at: &Place, wait: Option<Duration>) -> Result<Option<Flight>, StoreError> {
        Ok(Flight::local(&format!("{}/{at}", self.id), wait.map(|wait| Instant::now() + wait)))
    }
}

impl Documents {
    fn document(&self, at: &Place) -> ReadResult {
        self.by_place.get(at).map_or(ReadResult::Nothing, |document| ReadResult::Bytes(document.bytes.clone()))
    }
}
