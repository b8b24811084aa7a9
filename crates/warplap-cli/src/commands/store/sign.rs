//! `warplap store sign`: one more signature beside a bundle, for stores that ask for several.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;
use warplap::core::store::SecretKey;
use warplap::core::store::bundle::{Bundle, MAX_BUNDLE};
use warplap::core::store::minisign::{MAX_SIGNATURES, MinisignSignature};
use warplap::core::user_files;

use crate::console::Console;
use crate::failure::{Exit, Failure};
use crate::kept;

/// Arguments of `store sign`.
#[derive(Args)]
pub(crate) struct Sign {
    /// The bundle
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The key of `store keygen`
    #[arg(value_name = "KEYFILE")]
    key: PathBuf,
}

impl Sign {
    pub(crate) fn run(&self, console: &Console) -> Result<Exit, Failure> {
        let key = SecretKey::read(&self.key).map_err(|e| Failure::input(format!("KEYFILE: {e}")))?;
        let bad = |e: std::io::Error| Failure::input(format!("FILE {}: {e}", self.file.display()));
        let bytes = user_files::bytes(&self.file, MAX_BUNDLE).map_err(bad)?;
        Bundle::parse(&bytes)?;
        let (path, mine) = (beside(&self.file), Bundle::sign(&bytes, &key)?);
        let there = user_files::text(&path, MAX_SIGNATURES).unwrap_or_default();
        if !there.is_empty() {
            MinisignSignature::parse_all(there.as_bytes())
                .map_err(|e| Failure::input(format!("{}: {e}", path.display())))?;
        }
        kept::write(&path, format!("{there}{mine}").as_bytes(), "FILE.minisig")?;
        let (file, signer) = (path.display().to_string(), key.public().to_string());
        if console.json {
            console.line(&json!({"file": file, "signed_by": signer}))?;
        } else {
            console.say(format!("signed by {signer} → {file}"))?;
        }
        Ok(Exit::Ok)
    }
}

/// Where the signatures of a bundle stand.
pub(super) fn beside(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".minisig");
    name.into()
}
