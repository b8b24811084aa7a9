//! `warplap store keygen`: a new key to sign bundles with. The secret half is a file, the public half is a word.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;
use warplap::core::store::SecretKey;

use crate::console::Console;
use crate::failure::{Exit, Failure};

/// Arguments of `store keygen`.
#[derive(Args)]
pub(crate) struct Keygen {
    /// Where to keep the secret key: a new file that you alone may read
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

impl Keygen {
    pub(crate) fn run(&self, console: &Console) -> Result<Exit, Failure> {
        let bad = |e| Failure::input(format!("FILE: {e}"));
        let key = SecretKey::generate().map_err(bad)?;
        key.write(&self.file).map_err(bad)?;
        let public = key.public().to_string();
        if console.json {
            console.line(&json!({"file": self.file.display().to_string(), "key": public}))?;
        } else {
            console.log(format_args!("keep {} to yourself; others trust this:", self.file.display()));
            console.say(public)?;
        }
        Ok(Exit::Ok)
    }
}
