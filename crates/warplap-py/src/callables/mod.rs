//! Races of Python callables: candidates on a caller's own arguments come in; who won goes out. They are variants like
//! all others and go by the road of all others.

mod kernel;
mod problem;

use std::sync::Arc;

use pyo3::exceptions::{PyKeyboardInterrupt, PyRuntimeError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use serde_json::json;
use warplap::core::candidate::Candidate;
use warplap::core::engine::{How, TuningEngine};
use warplap::core::rejection::Rejection;
use warplap::core::settings::Counts;
use warplap::{Mode, Settings, Stop};

use crate::api::tuning::{budget_of, tuned};
use crate::api::watch::{Watch, ended, interrupt};
use crate::call::failure::bad;
use crate::call::state::{State, state};
use crate::launch::gpu;
use crate::tensor::kernel_argument::LaunchDevice;
use problem::Callables;

/// Lists longer than this are searched: then all the time that passes counts.
const LISTED: usize = 48;

/// What Python does with a candidate, by its number.
struct PythonHooks {
    /// Gives what runs it once on the race's own copies of the arguments.
    ready: Py<PyAny>,
    /// Runs it on poisoned copies and says how near it came: a word, a reason, a share of the allowed error and
    /// seconds.
    prove: Py<PyAny>,
    /// Runs it elsewhere first: nothing, or a word, a reason and a number.
    trial: Option<Py<PyAny>>,
    /// Said on Ctrl-C.
    stop: Stop,
}

impl PythonHooks {
    /// Asks Python, and ends the race on Ctrl-C.
    fn ask<T>(&self, f: impl for<'py> FnOnce(Python<'py>) -> PyResult<T>) -> Result<T, Rejection> {
        Python::attach(|py| {
            let answer = py.check_signals().and_then(|()| f(py));
            answer.map_err(|error| {
                let reason = error.to_string();
                if error.is_instance_of::<PyKeyboardInterrupt>(py) {
                    interrupt(error);
                    self.stop.say();
                }
                Rejection::LaunchFailed { reason }
            })
        })
    }
}

/// What a word of Python's stands for.
fn rejection(word: &str, reason: String, number: f64) -> Rejection {
    match word {
        "wrong_answer" => Rejection::WrongAnswer { error: number, allowed: 1.0, reason },
        "does_not_build" => Rejection::DoesNotBuild { reason },
        "over_limits" => Rejection::OverLimits { reason },
        "crashed" => Rejection::Crashed { reason },
        "timed_out" => Rejection::TimedOut { seconds: number },
        _ => Rejection::LaunchFailed { reason },
    }
}

/// How a key is raced, if at all.
struct RaceOptions {
    budget: Option<f64>,
    measure: bool,
    again: bool,
}

/// Who is the fastest right one of the candidates (a name, settings and source each): from the store, or by a race,
/// with what is known of the key. `ready(i)` gives what runs the i-th on the race's arguments; `prove(i)` judges it,
/// and `trial(i)` tries it out elsewhere. With `measure` false nothing is raced and an unknown key is None.
#[pyfunction]
#[pyo3(signature = (op, key, candidates, ready, prove, trial=None, *, gpu=None, budget=None, measure=true, again=false))]
#[expect(clippy::too_many_arguments, reason = "a Python function with named arguments")]
pub(crate) fn race(
    py: Python<'_>,
    op: &str,
    key: &str,
    candidates: Vec<(String, Bound<'_, PyDict>, String)>,
    ready: Py<PyAny>,
    prove: Py<PyAny>,
    trial: Option<Py<PyAny>>,
    gpu: Option<usize>,
    budget: Option<f64>,
    measure: bool,
    again: bool,
) -> PyResult<Option<(usize, String)>> {
    if candidates.is_empty() {
        return Err(bad("candidates: there is none, expected one or more"));
    }
    let stop = Stop::default();
    let hooks = Arc::new(PythonHooks { ready, prove, trial, stop: stop.clone() });
    let races = Callables::new(op, key, &candidates, hooks)?;
    let (state, asked) = (state(), RaceOptions { budget, measure, again });
    match gpu {
        None => {
            let settings = settings(&state, state.settings.clone(), &races, &asked, stop)?;
            go(py, TuningEngine::new(state.device.clone(), state.store.clone(), settings), &races, &asked)
        }
        Some(ordinal) => {
            let settings = settings(&state, state.gpu_settings(), &races, &asked, stop)?;
            go(py, TuningEngine::new(gpu::device(ordinal)?, state.store.clone(), settings), &races, &asked)
        }
    }
}

/// The settings of whoever the store says won a key by the host's clock, known here or not. Nothing is raced, and
/// nothing is believed: it is for those who cannot list everyone.
#[pyfunction]
pub(crate) fn kept(py: Python<'_>, op: &str, key: &str) -> PyResult<Option<String>> {
    let stop = Stop::default();
    let nobody = || py.None();
    let hooks = Arc::new(PythonHooks { ready: nobody(), prove: nobody(), trial: None, stop: stop.clone() });
    let races = Callables::new(op, key, &[], hooks)?;
    let (state, asked) = (state(), RaceOptions { budget: None, measure: false, again: false });
    let settings = settings(&state, state.settings.clone(), &races, &asked, stop)?;
    let road = TuningEngine::new(state.device.clone(), state.store.clone(), settings);
    let answer = py.detach(|| road.find(&races)).edition;
    Ok(answer.map(|edition| json!(edition.verdict.winner.config).to_string()))
}

fn settings(state: &State, usual: Settings, races: &Callables, asked: &RaceOptions, stop: Stop) -> PyResult<Settings> {
    let mut settings = Settings { mode: Mode::Tune, again: asked.again, stop, ..usual };
    settings.budget.seconds = budget_of(asked.budget)?.unwrap_or(state.settings.budget.seconds);
    // Compilers, and a worker that starts, may take longer than any budget: everyone on a short list has a turn all the
    // same.
    settings.budget.counts = if races.len() > LISTED { Counts::Wall } else { Counts::Races };
    Ok(settings)
}

fn go<D: LaunchDevice>(
    py: Python<'_>,
    road: TuningEngine<D>,
    races: &Callables,
    asked: &RaceOptions,
) -> PyResult<Option<(usize, String)>> {
    let place = |winner: &Candidate| {
        let gone = || PyRuntimeError::new_err(format!("{winner}: the store names one that is not listed"));
        races.number(winner).ok_or_else(gone)
    };
    if !asked.measure {
        let answer = py.detach(|| road.find(races));
        let Some(edition) = answer.edition.filter(|_| answer.proved && answer.how == Some(How::Stored)) else {
            return Ok(None);
        };
        let Some(winner) = races.number(&edition.verdict.winner) else { return Ok(None) };
        let known = json!({"key": answer.key.text, "problem": races.problem(), "edition": edition, "from_store": true});
        return Ok(Some((winner, known.to_string())));
    }
    let watch = Watch { stop: races.stop().clone(), tell: None };
    let outcome = ended(py.detach(|| road.ensure(races, &watch)))?;
    Ok(Some((place(&outcome.edition.verdict.winner)?, tuned(&outcome).to_string())))
}
