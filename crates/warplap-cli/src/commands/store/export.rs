//! `warplap store export`: records into one bundle file, to be imported elsewhere.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;
use warplap::core::store::bundle::Bundle;
use warplap::core::store::{Entry, SecretKey, Store};

use crate::console::Console;
use crate::failure::{Exit, Failure};
use crate::kept;
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
    /// Sign it with the key of `store keygen`
    #[arg(long, value_name = "KEYFILE")]
    sign: Option<PathBuf>,
}

impl Export {
    pub(crate) fn run(&self, store: &Store, console: &Console) -> Result<Exit, Failure> {
        let op = suite::operation(self.op.as_deref())?;
        let wanted = |e: &Entry| {
            op.is_none_or(|op| e.op == op.name) && self.device.as_ref().is_none_or(|d| e.device_slug.contains(d))
        };
        let refused = |e| Failure::input(format!("--sign: {e}"));
        let key = self.sign.as_deref().map(SecretKey::read).transpose().map_err(refused)?;
        let bundle = Bundle::of(store, wanted);
        let bytes = key.as_ref().map_or_else(|| bundle.to_bytes(), |key| bundle.to_signed_bytes(key));
        kept::write(&self.file, &bytes, "FILE")?;
        if bundle.left_out > 0 {
            console.warn(format_args!("{} damaged or newer records were left out", bundle.left_out));
        }
        let (file, signer) = (self.file.display().to_string(), key.map(|key| key.public().to_string()));
        if console.json {
            let (records, left_out) = (bundle.len(), bundle.left_out);
            console.line(&json!({"file": file, "records": records, "left_out": left_out, "signed_by": signer}))?;
        } else {
            let signed = signer.map(|key| format!(", signed by {key}")).unwrap_or_default();
            console.say(format!("{} written to {file}{signed}", units::some(bundle.len(), "record", "records")))?;
        }
        Ok(Exit::Ok)
    }
}
