//! The machine a command works with: the device, the store, and the word to stop.

use std::path::Path;
use std::sync::Arc;

use warplap::Stop;
use warplap::any::{AnyDevice, Wanted};
use warplap::core::store::{self, Address, Store, StoreError};

use crate::console::Console;
use crate::failure::{Exit, Failure};

/// A device and a store.
pub(crate) struct Machine {
    pub(crate) device: AnyDevice,
    pub(crate) store: Store,
}

impl Machine {
    /// This machine, with the store at `root` (a directory or a URL) or the usual one. A store that cannot be used
    /// becomes one in memory, with a warning: the answer is still given. A URL that nobody understands is bad input.
    pub(crate) fn open(root: Option<&Path>, wanted: Wanted) -> Result<Machine, Failure> {
        let address = root.map_or_else(store::default_address, Address::of).ok();
        // The library has warned through `tracing` where it had to.
        let opened = store::open_as_named(root).map_err(|e| unreadable(root, &e))?;
        let kept = address.as_ref().and_then(Address::near).filter(|_| opened.warning.is_none());
        Ok(Machine { device: device(wanted, kept.as_deref())?, store: opened.store })
    }

    /// As [`Machine::open`], for commands that only read: where there is no directory, none is made.
    pub(crate) fn open_to_read(root: Option<&Path>, wanted: Wanted) -> Result<Machine, Failure> {
        let address = root.map_or_else(store::default_address, Address::of);
        let unmade = |path: &Path| !path.exists() && (root.is_none() || path.symlink_metadata().is_err());
        let nowhere = match &address {
            Ok(address) => address.directory().is_some_and(unmade),
            Err(e) => matches!(e, StoreError::NoHome),
        };
        if !nowhere {
            return Machine::open(root, wanted);
        }
        Ok(Machine { device: device(wanted, None)?, store: Store::memory() })
    }
}

/// The device that was asked for; one that is not there is bad input.
pub(crate) fn device(wanted: Wanted, directory: Option<&Path>) -> Result<AnyDevice, Failure> {
    AnyDevice::open(wanted, directory).map_err(|e| {
        Failure::input(format!("--device {wanted}: {e}: expected a device that is there (warplap devices lists them)"))
    })
}

/// Where `--store` says; a URL that nobody understands is bad input.
fn named(root: &Path) -> Result<Address, Failure> {
    Address::of(root).map_err(|e| unreadable(Some(root), &e))
}

/// The sentence about an address, by where it was said.
fn unreadable(root: Option<&Path>, e: &StoreError) -> Failure {
    let place = if root.is_some() { "--store" } else { "WARPLAP_STORE" };
    let expected = if e.to_string().contains("expected") { "" } else { ": expected a directory or a URL" };
    Failure::input(format!("{place}: {e}{expected}"))
}

/// The store for commands about the store itself; one that is refused is bad input. Where the usual directory was never
/// made there is an empty store in memory; a named one must be there, unless it is to be written.
pub(crate) fn kept(root: Option<&Path>, writes: bool) -> Result<Store, Failure> {
    let address = match root {
        Some(root) => named(root)?,
        None => store::default_address()?,
    };
    if let Some(path) = address.directory().filter(|path| !writes && path.symlink_metadata().is_err()) {
        return match root {
            Some(_) => {
                Err(Failure::input(format!("--store is '{}': expected a directory that exists", path.display())))
            }
            None => Ok(Store::memory()),
        };
    }
    address.open().map_err(|e| match e {
        StoreError::Backend { .. } => Failure::input(format!("--store: {e}")),
        StoreError::Invalid(_) | StoreError::UnknownScheme { .. } => unreadable(root, &e),
        e => Failure::input(format!("--store: {e}: expected a directory of yours alone")),
    })
}

/// Listens to Ctrl-C: the first says stop, the second ends the process at once.
pub(crate) fn listen(console: &Arc<Console>) -> Stop {
    let stop = Stop::default();
    let (said, console) = (stop.clone(), console.clone());
    let handler = move || {
        if said.said() {
            std::process::exit(i32::from(Exit::Interrupted.number()));
        }
        said.say();
        console.log("stopping: what was measured is kept (Ctrl-C again ends at once)");
    };
    if let Err(e) = ctrlc::set_handler(handler) {
        tracing::debug!("Ctrl-C ends at once: {e}");
    }
    stop
}
