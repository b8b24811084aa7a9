//! Many machines tune together. A store in PostgreSQL stands far behind the near one in a directory: the near one answers
//! everything, the far one is asked on a miss and told of what is new. Placement and retries belong to an engine that
//! people run already.
//!
//! [`register`] lets every store of the process be opened as `postgres://user@host/database`.

pub mod bundle_backend;
pub mod engine;
mod far;
pub mod gpu_lock;
pub mod jobs;
#[cfg(feature = "objects")]
mod objects;

use std::sync::Arc;

use warplap_core::store::{self, Opener, Store, StoreError};

pub use far::{Address, FarError, KEY_FILE, Postgres, Session};
pub use far::{address, cards, follow, roster, sealed, session, tables, wants};

/// The tables of a fleet.
pub const SCHEMA_SQL: &str = include_str!("far/sql/schema.sql");
/// Keeps whoever may only read from the locks that tuners take turns by.
pub const GUARDS_SQL: &str = include_str!("far/sql/guards.sql");

/// Lets stores be opened by `postgres:`, `postgresql:` and `bundle:` URLs, in this process from now on.
pub fn register() {
    let bundle = Opener { open: bundle_backend::open, near: |_| store::near_root() };
    let far = Opener { open, near };
    for (scheme, opener) in [("postgres", far), ("postgresql", far), (bundle_backend::SCHEME, bundle)] {
        // It is refused for schemes of the core's own alone.
        let _ = store::register(scheme, opener);
    }
}

/// The store of a URL: near in a directory, far in PostgreSQL. Nothing is connected yet.
pub fn open(url: &str) -> Result<Store, StoreError> {
    let address = Address::read(url).map_err(StoreError::Invalid)?;
    let directory = near_of(&address)?;
    let near = Store::directory(&directory)?;
    let far = Postgres::behind(near.clone(), address, Some(directory));
    Ok(near.with_far(Arc::new(far)))
}

fn near(url: &str) -> Option<std::path::PathBuf> {
    near_of(&Address::read(url).ok()?).ok()
}

/// The directory of the near store of an address.
pub fn near_of(address: &Address) -> Result<std::path::PathBuf, StoreError> {
    match &address.near {
        Some(path) => {
            std::path::absolute(path).map_err(|e| StoreError::Invalid(format!("near={}: {e}", path.display())))
        }
        None => store::near_root().ok_or(StoreError::NoHome),
    }
}
