//! `warplap store import`: bundles come in. All are read and checked before the first record is taken over.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;
use warplap::core::store::bundle::{Bundle, Imported};
use warplap::core::store::{Store, StoreError};

use crate::console::Console;
use crate::failure::{Exit, Failure};
use crate::machine::kept;
use crate::units;

/// Arguments of `store import`.
#[derive(Args)]
pub(crate) struct Import {
    /// Bundles to read
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
}

impl Import {
    pub(crate) fn run(&self, root: Option<&Path>, console: &Console) -> Result<Exit, Failure> {
        let mut all = Bundle::default();
        for file in &self.files {
            all = all.merge(read(file)?);
        }
        put(&all, &kept(root, true)?, console)
    }
}

/// Reads a bundle; the sentence names the file.
pub(super) fn read(file: &Path) -> Result<Bundle, Failure> {
    let bad =
        |e| Failure::input(format!("FILE is '{}': {e}: expected a bundle of warplap store export", file.display()));
    Bundle::read(file).map_err(bad)
}

/// Puts a bundle into a store and says what that did.
pub(super) fn put(bundle: &Bundle, store: &Store, console: &Console) -> Result<Exit, Failure> {
    let stopped = |e: StoreError| match e {
        StoreError::Unsigned { .. } | StoreError::Untrusted { .. } => Failure::input(e),
        e => {
            Failure::NoAnswer(format!("{e}; what was taken over by then stays, and importing again goes on from there"))
        }
    };
    let Imported { added, joined, unchanged, refused } = bundle.put_into(store).map_err(stopped)?;
    for why in &refused {
        console.warn(why);
    }
    if console.json {
        let refused = refused.len();
        console.line(&json!({"added": added, "joined": joined, "unchanged": unchanged, "refused": refused}))?;
    } else {
        let records = units::some(bundle.len(), "record", "records");
        console
            .say(format!("{records}: {added} added, {joined} joined, {unchanged} known already → {}", store.place()))?;
    }
    Ok(Exit::Ok)
}
