//! The machine a command works with: the device, the store, and the word to stop.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use warplap::Stop;
use warplap::any::{AnyDevice, Wanted};
use warplap::core::store::{self, DirectoryStore, MemoryStore, Store, StoreError};

use crate::console::Console;
use crate::failure::{Exit, Failure};

/// A device and a store.
pub(crate) struct Machine {
    pub(crate) device: AnyDevice,
    pub(crate) store: Arc<dyn Store>,
}

impl Machine {
    /// This machine, with the store at `root` or the usual one. A store that cannot be used becomes one in memory, with
    /// a warning: the answer is still given.
    pub(crate) fn open(root: Option<&Path>, wanted: Wanted) -> Result<Machine, Failure> {
        // The library has warned through `tracing` where it had to.
        let opened = store::open_or_memory(root);
        let kept = root.map(Path::to_path_buf).or_else(store::default_root).filter(|_| opened.warning.is_none());
        let device = device(wanted, kept.as_deref())?;
        Ok(Machine { device, store: opened.store })
    }

    /// As [`Machine::open`], for commands that only read: where there is no directory, none is made.
    pub(crate) fn open_to_read(root: Option<&Path>, wanted: Wanted) -> Result<Machine, Failure> {
        let there = root.map(Path::to_path_buf).or_else(store::default_root).is_some_and(|r| r.exists());
        if there || root.is_some_and(|r| r.symlink_metadata().is_ok()) {
            return Machine::open(root, wanted);
        }
        Ok(Machine { device: device(wanted, None)?, store: Arc::new(MemoryStore::new()) })
    }
}

/// The device that was asked for; one that is not there is bad input.
pub(crate) fn device(wanted: Wanted, directory: Option<&Path>) -> Result<AnyDevice, Failure> {
    AnyDevice::open(wanted, directory).map_err(|e| {
        Failure::input(format!("--device {wanted}: {e}: expected a device that is there (warplap devices lists them)"))
    })
}

/// The directory store for commands about the store itself; one that is refused is bad input. Where the usual directory
/// was never made there is an empty store in memory; a named one must be there, unless it is to be written.
pub(crate) fn directory(root: Option<&Path>, writes: bool) -> Result<Arc<dyn Store>, Failure> {
    let path: PathBuf = root.map(Path::to_path_buf).or_else(store::default_root).ok_or(StoreError::NoHome)?;
    if !writes && path.symlink_metadata().is_err() {
        return match root {
            Some(_) => {
                Err(Failure::input(format!("--store is '{}': expected a directory that exists", path.display())))
            }
            None => Ok(Arc::new(MemoryStore::new())),
        };
    }
    let open = DirectoryStore::open(&path);
    let opened = open.map_err(|e| Failure::input(format!("--store: {e}: expected a directory of yours alone")))?;
    Ok(Arc::new(opened))
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
