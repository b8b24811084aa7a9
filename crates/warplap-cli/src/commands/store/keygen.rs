//! `warplap store keygen`: a new key to sign bundles with. The secret half is a file, the public half is a word.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;
use warplap::core::store::SecretKey;

use crate::console::Console;
use crate::failure::{Exit, Failure};
use crate::kept;

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
        let (public, minisign) = (key.public().to_string(), key.public().minisign());
        let mut beside = self.file.as_os_str().to_owned();
        beside.push(".pub");
        kept::write(beside.as_ref(), key.public().minisign_file().as_bytes(), "FILE.pub")?;
        if console.json {
            console.line(&json!({"file": self.file.display().to_string(), "key": public, "minisign": minisign}))?;
        } else {
            let file = self.file.display();
            console.log(format_args!(
                "keep {file} to yourself; others trust this (for minisign: {minisign}, {file}.pub):"
            ));
            console.say(public)?;
        }
        Ok(Exit::Ok)
    }
}
