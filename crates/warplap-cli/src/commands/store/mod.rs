//! `warplap store`: the records themselves, one file a verb.

mod export;
mod import;
mod keygen;
mod ls;
mod merge;
pub(super) mod proving;
mod prune;
mod quarantine;
mod rm;
mod show;
mod sign;
mod stats;
mod trust;
mod verify;

use std::path::Path;
use std::sync::Arc;

use clap::Subcommand;
use warplap::any::Wanted;
use warplap::core::record::Record;
use warplap::core::store::{Checked, Entry};

use crate::console::Console;
use crate::failure::{Exit, Failure};
use crate::machine::kept;

/// The verbs.
#[derive(Subcommand)]
pub(crate) enum Store {
    /// List records
    Ls(ls::Ls),
    /// Print one record, every trial of it
    Show(show::Show),
    /// Check every file; exit 1 when one is damaged
    Verify {
        /// Then prove every winner from elsewhere here; exit 1 when one fails
        #[arg(long)]
        prove: bool,
        /// Where to prove: auto, cpu, cuda or cuda:N
        #[arg(long, value_name = "DEVICE", default_value = "auto", requires = "prove")]
        device: Wanted,
    },
    /// Remove old, stale or damaged records
    Prune(prune::Prune),
    /// List candidates that crashed, hung or were wrong and are not tried again; let them go
    Quarantine(quarantine::Quarantine),
    /// Remove records by hash or problem
    Rm(rm::Rm),
    /// Write records into one bundle file
    Export(export::StoreExport),
    /// Take over the records of bundle files
    Import(import::Import),
    /// Merge bundles and other stores into this one, or into one bundle
    Merge(merge::Merge),
    /// Make a key to sign bundles with
    Keygen(keygen::Keygen),
    /// Add a signature to those beside a bundle
    Sign(sign::Sign),
    /// Say whose bundles this store takes
    Trust(trust::Trust),
    /// Count records, bytes and misses
    Stats,
}

impl Store {
    pub(crate) fn run(&self, root: Option<&Path>, console: &Arc<Console>) -> Result<Exit, Failure> {
        let read = || kept(root, false);
        match self {
            Store::Ls(ls) => ls.run(&read()?, console),
            Store::Show(show) => show.run(&read()?, console),
            Store::Verify { prove, device } => match verify::run(&read()?, console)? {
                Exit::Ok if *prove => proving::run(root, *device, None, console),
                exit => Ok(exit),
            },
            Store::Prune(prune) => prune.run(&read()?, console),
            Store::Quarantine(quarantine) => quarantine.run(&read()?, console),
            Store::Rm(rm) => rm.run(&read()?, console),
            Store::Export(export) => export.run(&read()?, root, console),
            Store::Import(import) => import.run(root, console),
            Store::Merge(merge) => merge.run(root, console),
            Store::Keygen(keygen) => keygen.run(console),
            Store::Sign(sign) => sign.run(console),
            Store::Trust(trust) => trust.run(&kept(root, true)?, console),
            Store::Stats => stats::run(&read()?, console),
        }
    }
}

/// The entries a user names: by the beginning of a hash, or by a problem.
fn named(store: &warplap::core::store::Store, name: &str) -> Result<Vec<Entry>, Failure> {
    let entries = store.entries();
    if name.contains(':') {
        let problem = crate::suite::asked(name, None)?;
        let of_op = entries.into_iter().filter(|e| e.op == problem.op());
        let result: Vec<Entry> =
            of_op.filter(|e| record(store, e).is_some_and(|r| r.problem == problem.problem)).collect();
        return if result.is_empty() {
            Err(Failure::NoAnswer(format!("no record is of {}", problem.problem)))
        } else {
            Ok(result)
        };
    }
    if name.len() < 4 || !name.bytes().all(|b| b.is_ascii_hexdigit()) {
        let expected = "a problem, or at least 4 hexadecimal digits of a hash that `store ls` shows";
        return Err(Failure::input(format!("RECORD is '{name}': expected {expected}")));
    }
    let result: Vec<Entry> = entries.into_iter().filter(|e| e.hash.starts_with(&name.to_lowercase())).collect();
    let hashes: std::collections::BTreeSet<&str> = result.iter().map(|e| e.hash.as_str()).collect();
    match hashes.len() {
        0 => Err(Failure::NoAnswer(format!("no record's hash begins with {name}"))),
        1 => Ok(result),
        n => Err(Failure::input(format!("RECORD is '{name}': {n} hashes begin so, expected more digits"))),
    }
}

/// A record where it is whole.
fn record(store: &warplap::core::store::Store, entry: &Entry) -> Option<Record> {
    match store.check(entry) {
        Checked::Whole(record) => Some(*record),
        _ => None,
    }
}
