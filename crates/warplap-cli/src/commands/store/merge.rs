//! `warplap store merge`: bundles and other stores' directories into this store, or into one bundle file.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;
use warplap::core::store::Address;
use warplap::core::store::bundle::Bundle;
use warplap::core::store::trusted::{Take, Trusted};

use super::import;
use crate::console::Console;
use crate::failure::{Exit, Failure};
use crate::kept;
use crate::machine;
use crate::units;

/// Arguments of `store merge`.
#[derive(Args)]
pub(crate) struct Merge {
    /// Bundles, or directories or URLs of other stores
    #[arg(value_name = "FROM", required = true)]
    from: Vec<PathBuf>,
    /// Write one bundle instead, and leave this store alone
    #[arg(long, value_name = "FILE")]
    into: Option<PathBuf>,
}

impl Merge {
    pub(crate) fn run(&self, root: Option<&Path>, console: &Console) -> Result<Exit, Failure> {
        let store = self.into.is_none().then(|| machine::kept(root, true)).transpose()?;
        let trusted = store.as_ref().map_or_else(|| Ok(Trusted::default()), |store| store.trusted())?;
        let mut bundles = Vec::new();
        for from in &self.from {
            let is_store = Address::of(from).is_ok_and(|a| a.directory().is_none_or(Path::is_dir));
            bundles.push(match is_store {
                true => Bundle::of(&machine::kept(Some(from), false)?, |_| true),
                // Into a bundle that nobody has signed anything goes.
                false => import::read(from, &[], store.is_none(), &trusted)?,
            });
        }
        if let Some(store) = store {
            return import::put(&bundles, &store, Take::default(), console);
        }
        let Some(into) = &self.into else { return Ok(Exit::Ok) };
        let all = bundles.into_iter().fold(Bundle::default(), Bundle::merge);
        kept::write(into, &all.to_bytes(), "--into")?;
        let file = into.display().to_string();
        if console.json {
            console.line(&json!({"file": file, "records": all.len()}))?;
        } else {
            console.say(format!("{} written to {file}", units::some(all.len(), "record", "records")))?;
        }
        Ok(Exit::Ok)
    }
}
