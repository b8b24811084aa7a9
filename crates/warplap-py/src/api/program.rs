//! The program `warplap`, carried by this module: arguments come in, the exit code goes out.

use std::ffi::OsString;

use pyo3::prelude::*;

/// Runs the program. The interpreter's lock is given up: Ctrl-C is the program's own to hear.
#[pyfunction]
pub(crate) fn program(py: Python<'_>, arguments: Vec<OsString>) -> u8 {
    py.detach(|| warplap_cli::run(arguments))
}
