//! `warplap store export`: records into one bundle file, to be imported elsewhere.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;
use warplap::core::store::bundle::Bundle;
use warplap::core::store::{Entry, Store};

use crate::console::Console;
use crate::failure::{Exit, Failure};
use crate::suite;
use crate::units;

/// Arguments of `store export`.
#[derive(Args)]
pub(crate) struct Export {
    /// The bundle to write
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Of this operation alone
    #[arg(long, value_name = "OP")]
    op: Option<String>,
    /// Of devices whose folder name contains this
    #[arg(long, value_name = "TEXT")]
    device: Option<String>,
}

impl Export {
    pub(crate) fn run(&self, store: &Store, console: &Console) -> Result<Exit, Failure> {
        let op = suite::operation(self.op.as_deref())?;
        let wanted = |e: &Entry| {
            op.is_none_or(|op| e.op == op.name) && self.device.as_ref().is_none_or(|d| e.device_slug.contains(d))
        };
        let bundle = Bundle::of(store, wanted);
        bundle
            .write(&self.file)
            .map_err(|e| Failure::input(format!("FILE: {e}: expected a file that can be written")))?;
        if bundle.left_out > 0 {
            console.warn(format_args!("{} damaged or newer records were left out", bundle.left_out));
        }
        let file = self.file.display().to_string();
        if console.json {
            console.line(&json!({"file": file, "records": bundle.len(), "left_out": bundle.left_out}))?;
        } else {
            console.say(format!("{} written to {file}", units::some(bundle.len(), "record", "records")))?;
        }
        Ok(Exit::Ok)
    }
}
