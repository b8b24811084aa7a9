//! Reaching the far store: an address comes in from the command line or the environment; an open session goes out, or one
//! sentence why not.

use std::path::{Path, PathBuf};

use warplap::core::store::{SecretKey, Store};
use warplap_fleet::sealed::origin;
use warplap_fleet::{Address, FarError, KEY_FILE, Session};

use crate::failure::Failure;

/// A far store, and the near one in front of it.
pub(super) struct Reached {
    pub(super) session: Session,
    pub(super) near: Store,
    pub(super) folder: PathBuf,
    pub(super) url: String,
    pub(super) title: String,
    /// The name this store publishes under; empty where it has not joined.
    pub(super) own: String,
}

/// Opens the far store that is named: by an argument, `--store`, or `WARPLAP_STORE`.
pub(super) fn reach(url: Option<&str>, root: Option<&Path>) -> Result<Reached, Failure> {
    let named = url.map(str::to_string).or_else(|| root.and_then(Path::to_str).map(str::to_string));
    let named = named.or_else(|| std::env::var("WARPLAP_STORE").ok());
    let is_url = |text: &String| text.starts_with("postgres://") || text.starts_with("postgresql://");
    let Some(url) = named.filter(is_url) else {
        let expected = "expected postgres://user@host/database as URL, in --store or in WARPLAP_STORE";
        return Err(Failure::input(format!("no far store is named: {expected}")));
    };
    let address = Address::read(&url).map_err(|e| Failure::input(format!("URL: {e}")))?;
    let folder = warplap_fleet::near_of(&address)?;
    let near = Store::directory(&folder)?;
    let title = address.title().to_string();
    let session = Session::open(&address).map_err(|e| said(&title, &e))?;
    let key = Some(folder.join(KEY_FILE)).filter(|path| path.exists());
    let own = match key.map(|path| SecretKey::read(&path)).transpose() {
        Ok(key) => key.map(|key| origin(&key.public())).unwrap_or_default(),
        Err(e) => return Err(Failure::input(e)),
    };
    Ok(Reached { session, near, folder, url, title, own })
}

/// A sentence about a far store that did not answer.
pub(super) fn said(title: &str, error: &FarError) -> Failure {
    Failure::NoAnswer(format!("{title}: {error}"))
}

impl Reached {
    /// Asks something of the tables.
    pub(super) fn ask<T>(
        &mut self,
        question: impl FnOnce(&mut Session) -> Result<T, postgres::Error>,
    ) -> Result<T, Failure> {
        question(&mut self.session).map_err(|e| said(&self.title, &FarError::of(&e)))
    }
}
