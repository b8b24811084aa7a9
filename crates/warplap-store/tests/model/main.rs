//! Random sequences of operations on every backend and every store there is, each against a model that is a plain map.
//!
//! 256 sequences each, or as many as `PROPTEST_CASES` says. What fails is shrunk to the shortest sequence that still
//! does.

#[path = "../support/mod.rs"]
mod support;

mod backend;
mod store;

use std::path::PathBuf;
use std::sync::Arc;

use support::book::Book;
use support::{Faulty, temp};
use warplap_store::files::{Files, Step};
use warplap_store::{DirectoryBackend, MemoryBackend, StoreBackend};

/// A backend that can be opened again.
enum Made {
    /// Ends with its process: opening it again is having it still.
    Kept(Arc<dyn StoreBackend>),
    Directory {
        _folder: tempfile::TempDir,
        root: PathBuf,
        /// Whether its file system has no locks.
        lockless: bool,
    },
}

impl Made {
    /// One of every implementation.
    fn all() -> Vec<Made> {
        let directory = |lockless| {
            let folder = temp();
            Made::Directory { root: folder.path().join("store"), _folder: folder, lockless }
        };
        let (memory, book) = (Arc::new(MemoryBackend::new()), Arc::new(Book::default()));
        vec![Made::Kept(memory), Made::Kept(book), directory(false), directory(true)]
    }

    fn open(&self) -> Arc<dyn StoreBackend> {
        match self {
            Made::Kept(backend) => backend.clone(),
            Made::Directory { root, lockless, .. } => {
                let without = || Files::with_hook(Arc::new(Faulty::each(Step::Lock, 95)));
                let files = if *lockless { without() } else { Files::default() };
                Arc::new(DirectoryBackend::open_with(root, files).unwrap())
            }
        }
    }

    /// Whether what was set aside can be looked at.
    fn keeps_aside(&self) -> bool {
        matches!(self, Made::Directory { .. })
    }
}
