//! Failures: what the library says comes in; the Python exception that fits it goes out.

use pyo3::exceptions::{PyOSError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use warplap::Error;
use warplap::core::rejection::Rejection;
use warplap::core::sanitize_text::message;

/// The exception for an error: bad input is a `ValueError`, everything else a `RuntimeError`.
pub(crate) fn raise(error: Error) -> PyErr {
    match error {
        Error::Problem(_) | Error::Argument { .. } | Error::Unknown(_) => bad(error),
        _ => PyRuntimeError::new_err(error.to_string()),
    }
}

/// The exception for bad input, whatever it quotes.
pub(crate) fn bad(error: impl std::fmt::Display) -> PyErr {
    PyValueError::new_err(message(&error.to_string()).into_owned())
}

/// The exception for a launch that failed.
pub(crate) fn rejected(rejection: &Rejection) -> PyErr {
    PyRuntimeError::new_err(rejection.to_string())
}

/// The exception for a store that said no.
pub(crate) fn store(error: impl std::fmt::Display) -> PyErr {
    PyOSError::new_err(message(&error.to_string()).into_owned())
}
