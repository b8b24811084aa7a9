//! Searches of a Python program's own: a name and a callable that makes one come in; the engine asks it who is tried
//! next and tells it what became of them.

use std::collections::HashSet;

use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use warplap::core::candidate::{Candidate, Outcome, Trial};
use warplap::core::search::{self, Arm, Brief, NAMES, Search};

use crate::api::watch::interrupt;
use crate::call::failure::bad;
use crate::foreign::{config, settings};

/// One variant's part of a search: a sequence of settings, the default first.
#[pyclass(frozen, name = "Arm")]
pub(crate) struct PyArm(Arm);

#[pymethods]
impl PyArm {
    /// The variant's name.
    #[getter]
    fn variant(&self) -> &str {
        &self.0.variant
    }

    /// How eagerly it should be raced: high, medium or low.
    #[getter]
    fn priority(&self) -> &'static str {
        self.0.priority.word()
    }

    /// Its axes with their values. Not every combination need be legal.
    #[getter]
    fn axes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let axes = PyDict::new(py);
        for axis in self.0.space.axes() {
            let values = PyList::empty(py);
            for value in axis.values() {
                values.append(crate::foreign::object(py, value)?)?;
            }
            axes.set_item(axis.name(), values)?;
        }
        Ok(axes)
    }

    fn __len__(&self) -> usize {
        usize::try_from(self.0.len()).unwrap_or(usize::MAX)
    }

    /// One of its settings.
    fn __getitem__<'py>(&self, py: Python<'py>, at: isize) -> PyResult<Bound<'py, PyDict>> {
        let len = self.__len__() as isize;
        let place = if at < 0 { at + len } else { at };
        let answer = u64::try_from(place).ok().and_then(|n| self.0.space.at(self.0.nth(n)?));
        settings(py, &answer.ok_or_else(|| PyIndexError::new_err(format!("{at} of {len} settings")))?)
    }

    /// Whether it may propose a setting.
    fn __contains__(&self, setting: &Bound<'_, PyDict>) -> PyResult<bool> {
        Ok(self.0.holds(&config(setting)?))
    }
}

/// A search in Python: `ask(at_most)` gives pairs of a variant and a setting, `tell(variant, setting, us, why)` hears
/// what became of one.
struct PythonSearch {
    search: Py<PyAny>,
    arms: Vec<Arm>,
    asked: HashSet<Candidate>,
}

impl PythonSearch {
    fn next(&mut self, py: Python<'_>, at_most: usize) -> PyResult<Vec<Candidate>> {
        let passed = self.search.bind(py).call_method1("ask", (at_most,))?;
        let mut candidates = Vec::new();
        for pair in passed.try_iter()? {
            let (variant, setting) = pair?.extract::<(String, Bound<'_, PyDict>)>()?;
            let config = config(&setting)?;
            let known = || bad(format!("search: asked for {variant}[{config}], which is no candidate"));
            let arm = self.arms.iter().find(|a| a.variant == variant && a.holds(&config)).ok_or_else(known)?;
            let candidate = arm.candidate(config);
            // Nobody is raced twice, however often it is asked for.
            if candidates.len() < at_most && self.asked.insert(candidate.clone()) {
                candidates.push(candidate);
            }
        }
        Ok(candidates)
    }
}

impl Search for PythonSearch {
    fn ask(&mut self, at_most: usize) -> Vec<Candidate> {
        Python::attach(|py| {
            self.next(py, at_most).unwrap_or_else(|error| {
                // Raised when the race has been put away properly; nobody else is asked for.
                interrupt(error);
                Vec::new()
            })
        })
    }

    fn tell(&mut self, trial: &Trial) {
        let why = match &trial.outcome {
            Outcome::Rejected(rejection) => Some(rejection.to_string()),
            Outcome::Measured(_) => None,
        };
        let key = |py: Python<'_>| -> PyResult<()> {
            let (variant, setting) = (&trial.candidate.variant, settings(py, &trial.candidate.config)?);
            self.search.bind(py).call_method1("tell", (variant, setting, trial.cost(), why))?;
            Ok(())
        };
        if let Err(error) = Python::attach(key) {
            interrupt(error);
        }
    }
}

/// Adds a search to this process, to be asked for by its name. `make(arms, seed, donors)` gives an object with `ask`
/// and `tell`; donors are pairs of a variant and a setting that won elsewhere, best first.
#[pyfunction]
pub(crate) fn register_search(name: &str, make: Py<PyAny>) -> PyResult<()> {
    if NAMES.contains(&name) {
        return Err(bad(format!("name: '{name}' is a search there is, expected a name of your own")));
    }
    search::register(name, move |arms: Vec<Arm>, brief: &Brief| {
        let made = Python::attach(|py| {
            let own = arms.iter().map(|arm| Bound::new(py, PyArm(arm.clone()))).collect::<PyResult<Vec<_>>>()?;
            let donor = |c: &Candidate| Ok((c.variant.clone(), settings(py, &c.config)?));
            let donors = brief.priors.iter().map(donor).collect::<PyResult<Vec<_>>>()?;
            make.bind(py).call1((own, brief.seed, donors)).map(Bound::unbind)
        });
        match made {
            Ok(search) => Box::new(PythonSearch { search, arms, asked: HashSet::new() }),
            Err(error) => {
                interrupt(error);
                Box::new(Nobody)
            }
        }
    });
    Ok(())
}

/// A search that asks for nobody.
struct Nobody;

impl Search for Nobody {
    fn ask(&mut self, _: usize) -> Vec<Candidate> {
        Vec::new()
    }

    fn tell(&mut self, _: &Trial) {}
}
