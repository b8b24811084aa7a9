//! Reaching the far store: an address comes in from the command line or the environment; an open session goes out, or one
//! sentence why not.

use std::path::{Path, PathBuf};
use std::time::Duration;

use warplap::core::environment;
use warplap::core::store::{SecretKey, Store};
use warplap_fleet::{Address, FarError, KEY_FILE, Session};

use crate::failure::Failure;

/// How long somebody who asks for the far store itself waits until it answers.
const CONNECTING: Duration = Duration::from_secs(10);

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

/// The URL of a far store, where one is named: by `--store`, or `WARPLAP_STORE`.
fn named(root: Option<&Path>) -> Option<String> {
    let text = match root {
        Some(root) => root.to_str().map(str::to_string),
        None => environment::var("WARPLAP_STORE").and_then(|text| text.into_string().ok()),
    };
    text.filter(|text| is_url(text))
}

fn is_url(text: &str) -> bool {
    text.starts_with("postgres://") || text.starts_with("postgresql://")
}

/// Whether the store that is named has a far side.
pub(super) fn is_far(root: Option<&Path>) -> bool {
    named(root).is_some()
}

/// Opens the far store that is named: by an argument, `--store`, or `WARPLAP_STORE`.
pub(super) fn reach(url: Option<&str>, root: Option<&Path>) -> Result<Reached, Failure> {
    let Some(url) = url.map_or_else(|| named(root), |url| Some(url.to_string()).filter(|url| is_url(url))) else {
        let expected = "expected postgres://user@host/database as URL, in --store or in WARPLAP_STORE";
        return Err(Failure::input(format!("no far store is named: {expected}")));
    };
    let address = Address::read(&url).map_err(|e| Failure::input(format!("URL: {e}")))?;
    let folder = warplap_fleet::near_of(&address)?;
    let near = Store::directory(&folder)?;
    let title = address.title().to_string();
    let session = Session::open_within(&address, CONNECTING).map_err(|e| said(&title, &e))?;
    let key = Some(folder.join(KEY_FILE)).filter(|path| path.exists());
    let own = match key.map(|path| SecretKey::read(&path)).transpose() {
        Ok(key) => key.map(|key| key.public().origin()).unwrap_or_default(),
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
