//! Libraries of torch that are in the process already: torch and a library's name come in; the library goes out.

use std::ffi::c_int;
use std::path::Path;

use libloading::os::unix::{Library, RTLD_LAZY};
use pyo3::prelude::*;

/// Open what is loaded already, and nothing else.
const RTLD_NOLOAD: c_int = if cfg!(target_os = "macos") { 0x10 } else { 4 };

/// A library of the torch that was imported, if it is loaded.
pub(crate) fn of_torch(torch: &Bound<'_, PyModule>, name: &str) -> Option<Library> {
    let folder: String = torch.getattr("__path__").ok()?.get_item(0).ok()?.extract().ok()?;
    let ending = if cfg!(target_os = "macos") { "dylib" } else { "so" };
    let path = Path::new(&folder).join("lib").join(format!("lib{name}.{ending}"));
    // SAFETY: the library is in the process already: its initialisers have run.
    unsafe { Library::open(Some(path), RTLD_LAZY | RTLD_NOLOAD).ok() }
}
