//! The road by hand: tuning, explaining and benchmarking problems given as texts. What is known goes back as JSON,
//! which the package turns into tables.

use std::sync::OnceLock;

use pyo3::prelude::*;
use serde_json::{Value, json};
use tracing::subscriber::{NoSubscriber, with_default};
use warplap::any::{AnyTuner, operation, problem};
use warplap::core::device::Device;
use warplap::core::engine::{How, Tuned};
use warplap::core::store::Store;
use warplap::core::variant::Fit;
use warplap::ops::registry::{self, Known, Visitor};
use warplap::{Cpu, Cuda, Mode, Settings, Stop};

use crate::api::watch::{Watch, ended};
use crate::call::dispatcher;
use crate::call::failure::bad;
use crate::call::state::{self, State, refresh};
use crate::launch::gpu;

/// How a tuner over an operation's own variants and the foreign ones is opened, on the CPU or on a GPU.
type OpenTuner = fn(&State, Option<usize>, Store, Settings) -> PyResult<Box<dyn AnyTuner>>;

/// The operations of the registry by name.
struct Tuners(Vec<(&'static str, OpenTuner)>);

impl Visitor for Tuners {
    fn visit<O: Known>(&mut self) {
        self.0.push((O::NAME, |state, gpu, store, settings| {
            Ok(match gpu {
                None => Box::new(dispatcher::tuner::<O, Cpu>(state.device.clone(), store, settings)),
                Some(ordinal) => Box::new(dispatcher::tuner::<O, Cuda>(gpu::device(ordinal)?, store, settings)),
            })
        }));
    }
}

/// A problem text in its one form, and a tuner of its operation on the CPU or on a GPU.
fn open(
    state: &State,
    text: &str,
    gpu: Option<usize>,
    store: Store,
    settings: Settings,
) -> PyResult<(Box<dyn AnyTuner>, String)> {
    let (op, text) = problem(text, None).map_err(bad)?;
    Ok((open_operation(state, op.name, gpu, store, settings)?, text))
}

/// A tuner of an operation on the CPU or on a GPU.
pub(crate) fn open_operation(
    state: &State,
    op: &str,
    gpu: Option<usize>,
    store: Store,
    settings: Settings,
) -> PyResult<Box<dyn AnyTuner>> {
    static TUNERS: OnceLock<Tuners> = OnceLock::new();
    let doors = TUNERS.get_or_init(|| {
        let mut doors = Tuners(Vec::new());
        registry::each(&mut doors);
        doors
    });
    let unknown = || bad(format!("the operation {op} is not in the registry"));
    let (_, open) = doors.0.iter().find(|(name, _)| *name == op).ok_or_else(unknown)?;
    open(state, gpu, store, settings)
}

fn settings(state: &State, gpu: Option<usize>, budget: Option<f64>, again: bool) -> PyResult<Settings> {
    let usual = if gpu.is_some() { state.gpu_settings() } else { state.settings.clone() };
    let mut settings = Settings { again, stop: Stop::default(), ..usual };
    settings.budget.seconds = budget_of(budget)?.unwrap_or(settings.budget.seconds);
    Ok(settings)
}

/// A budget that was given, checked.
pub(crate) fn budget_of(budget: Option<f64>) -> PyResult<Option<f64>> {
    match budget.filter(|s| !s.is_finite() || *s <= 0.0) {
        Some(seconds) => Err(bad(format!("budget: is {seconds}, expected seconds above 0"))),
        None => Ok(budget),
    }
}

/// What was tuned, as JSON.
pub(crate) fn tuned(tuned: &Tuned) -> Value {
    json!({
        "key": tuned.key.text,
        "problem": tuned.problem,
        "edition": tuned.edition,
        "measured_at": tuned.measured_at,
        "from_store": tuned.from_store,
        "warning": tuned.warning,
        "note": tuned.note,
    })
}

/// Tunes a problem's key, or answers from the store. `tell` hears what happens.
#[pyfunction]
#[pyo3(signature = (problem, *, budget=None, again=false, tell=None, gpu=None))]
pub(crate) fn tune(
    py: Python<'_>,
    problem: &str,
    budget: Option<f64>,
    again: bool,
    tell: Option<Py<PyAny>>,
    gpu: Option<usize>,
) -> PyResult<String> {
    let state = state::state();
    let settings = settings(&state, gpu, budget, again)?;
    let watch = Watch { stop: settings.stop.clone(), tell };
    let (tuner, text) = open(&state, problem, gpu, state.store.clone(), settings)?;
    let outcome = py.detach(|| tuner.tune(&text, &watch));
    refresh();
    Ok(tuned(&ended(outcome)?).to_string())
}

/// Races every variant of a problem with a fresh mind and keeps nothing.
#[pyfunction]
#[pyo3(signature = (problem, *, budget=None, tell=None, gpu=None))]
pub(crate) fn bench(
    py: Python<'_>,
    problem: &str,
    budget: Option<f64>,
    tell: Option<Py<PyAny>>,
    gpu: Option<usize>,
) -> PyResult<String> {
    let state = state::state();
    let mut settings = settings(&state, gpu, budget, true)?;
    settings.yardsticks = true;
    let watch = Watch { stop: settings.stop.clone(), tell };
    let store = Store::memory();
    // Ceilings that were measured before are not measured again.
    let slug = match gpu {
        Some(ordinal) => gpu::device(ordinal)?.fingerprint().slug(),
        None => state.device.fingerprint().slug(),
    };
    if let Some(note) = state.store.note(&slug, "ceilings") {
        let _ = store.put_note(&slug, "ceilings", &note);
    }
    let (tuner, text) = open(&state, problem, gpu, store, settings)?;
    let outcome = py.detach(|| tuner.tune(&text, &watch));
    let mut answer = tuned(&ended(outcome)?);
    answer["variants"] = variants(&*tuner, &text)?;
    Ok(answer.to_string())
}

/// What is known about a problem: who would run it now and why, and the record behind it. Measures nothing.
#[pyfunction]
#[pyo3(signature = (problem, *, gpu=None))]
pub(crate) fn explain(py: Python<'_>, problem: &str, gpu: Option<usize>) -> PyResult<String> {
    let state = state::state();
    let settings = settings(&state, gpu, None, false)?;
    let (tuner, text) = open(&state, problem, gpu, state.store.clone(), settings.clone())?;
    // Who answers where nothing is measured. Who only asks is not warned, and the first call that is answered so will be.
    let mode = state::present_mode();
    let aside = Store::new(state.store.backend().clone());
    let without_measuring = Settings { mode: if mode == Mode::Off { mode } else { Mode::Replay }, ..settings };
    let (replays, _) = open(&state, problem, gpu, aside, without_measuring)?;
    let quietly = |choose: &dyn Fn() -> _| with_default(NoSubscriber::default(), choose);
    let (answer, answers) = py.detach(|| (tuner.find(&text), quietly(&|| replays.choose(&text))));
    let (chosen, chosen_how) = answers.map_err(crate::call::failure::raise)?;
    let answer = answer.map_err(crate::call::failure::raise)?;
    let word = |how: &How| match how {
        How::Raced => "raced".to_string(),
        How::Stored => "stored".to_string(),
        How::Stale => "stale".to_string(),
        How::Foreign(slug) => format!("foreign: {slug}"),
        How::Default(why) => format!("default: {why}"),
    };
    Ok(json!({
        "problem": text,
        "key": answer.key.text,
        "how": answer.how.as_ref().map(word),
        "mode": mode.name(),
        "proved": answer.proved,
        "met_the_host": answer.met_the_host,
        "answers": {"variant": chosen.variant, "config": chosen.config, "how": word(&chosen_how)},
        "matched": answer.matched,
        "measured_at": answer.measured_at,
        "edition": answer.edition,
        "newcomers": answer.newcomers,
        "variants": variants(&*tuner, &text)?,
    })
    .to_string())
}

fn variants(tuner: &dyn AnyTuner, problem: &str) -> PyResult<Value> {
    let standing = tuner.variants(Some(problem)).map_err(crate::call::failure::raise)?;
    let row = |s: &warplap::any::VariantStatus| {
        let (fits, why) = match &s.fit {
            Some(Fit::Fits(priority)) => (true, priority.word().to_string()),
            Some(Fit::Aside(reason)) => (false, reason.clone()),
            None => (true, String::new()),
        };
        json!({"variant": s.id, "fits": fits, "why": why, "configs": s.configs, "library": s.library,
               "reference": s.reference})
    };
    Ok(standing.iter().map(row).collect())
}

/// A problem text in its one form, checked.
#[pyfunction]
pub(crate) fn read_problem(text: &str) -> PyResult<String> {
    problem(text, None).map(|(_, text)| text).map_err(bad)
}

/// The name of an operation or one of its aliases, as problem texts have it.
#[pyfunction]
pub(crate) fn read_operation(name: &str) -> PyResult<&'static str> {
    operation(name).map(|op| op.name).map_err(bad)
}

/// Who the device is: its hard and soft fingerprint, as JSON.
#[pyfunction]
pub(crate) fn device() -> String {
    let state = state::state();
    let print = state.device.fingerprint();
    json!({"hard": print.hard, "soft": print.versions()}).to_string()
}
