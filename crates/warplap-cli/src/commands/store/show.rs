//! `warplap store show`: one record as it is kept, every trial of it. `warplap explain` reads it aloud.

use clap::Args;
use serde_json::json;
use warplap::core::store::{Checked, Store};

use crate::console::Console;
use crate::failure::{Exit, Failure};

/// Arguments of `store show`.
#[derive(Args)]
pub(crate) struct Show {
    /// The beginning of a hash, or a problem
    #[arg(value_name = "RECORD")]
    record: String,
}

impl Show {
    pub(crate) fn run(&self, store: &Store, console: &Console) -> Result<Exit, Failure> {
        for entry in super::named(store, &self.record)? {
            let record = match store.check(&entry) {
                Checked::Whole(record) => record,
                other => return Err(Failure::NoAnswer(format!("{}: {other:?}", entry.path.display()))),
            };
            if console.json {
                console.line(&json!(record))?;
                continue;
            }
            let text = serde_json::to_string_pretty(&record).map_err(|e| Failure::NoAnswer(e.to_string()))?;
            console.say(text)?;
        }
        Ok(Exit::Ok)
    }
}
