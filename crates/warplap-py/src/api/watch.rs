//! Watching a race: its events go to a Python callable, and Ctrl-C stops it with everything measured so far kept.

use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;
use warplap::core::progress::{Event, Observer};
use warplap::{Error, Stop};

/// The exception that ended a race, to be raised when it has been put away properly.
static INTERRUPTED: Mutex<Option<PyErr>> = Mutex::new(None);

/// Remembers why the race under way is to end.
pub(crate) fn interrupt(error: PyErr) {
    *INTERRUPTED.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
}

/// Why the last race was ended, if it was.
pub(crate) fn interrupted() -> Option<PyErr> {
    INTERRUPTED.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// An observer that asks Python for signals, and tells a callable what happens.
pub(crate) struct Watch {
    pub(crate) stop: Stop,
    pub(crate) tell: Option<Py<PyAny>>,
}

/// The progress line of a terminal; it is erased when this is dropped.
#[derive(Default)]
pub(crate) struct Line(Option<Py<PyAny>>);

impl Line {
    /// A line where somebody looks at one.
    pub(crate) fn new(py: Python<'_>) -> Line {
        let line = || py.import("warplap.tuner.progress")?.call_method0("line");
        // A race goes on whether it is seen or not.
        Line(line().ok().filter(|line| !line.is_none()).map(Bound::unbind))
    }

    /// Who hears of the race.
    pub(crate) fn tell(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.0.as_ref()?.getattr(py, "tell").ok()
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if let Some(line) = &self.0 {
            let _ = Python::try_attach(|py| line.call_method0(py, "close").map(drop));
        }
    }
}

impl Watch {
    fn say(&self, py: Python<'_>, event: &Event<'_>) -> PyResult<()> {
        py.check_signals()?;
        let Some(tell) = &self.tell else { return Ok(()) };
        let tell = tell.bind(py);
        match event {
            Event::Started { problem, candidates } => tell.call1(("started", *problem, *candidates)),
            Event::Proved(candidate) => tell.call1(("proved", candidate.to_string(), py.None())),
            Event::Tried(trial) => tell.call1(("tried", trial.candidate.to_string(), trial.median_us())),
            Event::Racing(lanes) => tell.call1(("racing", py.None(), *lanes)),
            Event::Leader(candidate, us) => tell.call1(("leader", candidate.to_string(), *us)),
            Event::Waiting(holder) => tell.call1(("waiting", *holder, py.None())),
            _ => return Ok(()),
        }
        .map(drop)
    }
}

impl Observer for Watch {
    fn event(&self, event: &Event<'_>) {
        let said = Python::try_attach(|py| self.say(py, event));
        if let Some(Err(error)) = said {
            interrupt(error);
            self.stop.say();
        }
    }
}

/// What a race gave, or the exception that ended it.
pub(crate) fn ended<T>(outcome: Result<T, Error>) -> PyResult<T> {
    match interrupted() {
        Some(error) => Err(error),
        None => outcome.map_err(crate::call::failure::raise),
    }
}
