//! `warplap store rm`: removes records by name. Every name is looked up before the first record goes.

use clap::Args;
use serde_json::json;
use warplap::core::store::{Entry, Store};

use crate::console::Console;
use crate::failure::{Exit, Failure};

/// Arguments of `store rm`.
#[derive(Args)]
pub(crate) struct Rm {
    /// Beginnings of hashes, or problems
    #[arg(value_name = "RECORD", required = true)]
    records: Vec<String>,
}

impl Rm {
    pub(crate) fn run(&self, store: &Store, console: &Console) -> Result<Exit, Failure> {
        let mut going: Vec<Entry> = Vec::new();
        for name in &self.records {
            going.extend(super::named(store, name)?);
        }
        going.sort();
        going.dedup();
        for entry in &going {
            let removed = store.remove(entry)?;
            if console.json {
                console.line(
                    &json!({"hash": entry.hash, "op": entry.op, "device": entry.device_slug, "removed": removed}),
                )?;
            } else {
                let what = if removed { "removed" } else { "was gone already:" };
                console.say(format!("{what} {} {} {}", entry.op, entry.hash, entry.device_slug))?;
            }
        }
        Ok(Exit::Ok)
    }
}
