//! A user's kernel from a spec file, tuned on a GPU by the road of every operation. The file's name comes in; what was
//! found goes out as JSON.

use std::path::PathBuf;

use pyo3::prelude::*;
use warplap::any::AnyDevice;
use warplap::{Mode, Settings, Stop};
use warplap_spec::Spec;

use crate::api::watch::{Watch, ended};
use crate::call::failure::bad;
use crate::call::state::state;
use crate::launch::gpu;

/// Tunes the kernel of a spec file on a GPU, or answers from the store.
#[pyfunction]
#[pyo3(signature = (path, *, gpu=0, budget=None, again=false))]
pub(crate) fn tune_spec(
    py: Python<'_>,
    path: PathBuf,
    gpu: usize,
    budget: Option<f64>,
    again: bool,
) -> PyResult<String> {
    let device = AnyDevice::Cuda(gpu::device(gpu)?);
    let state = state();
    let stop = Stop::default();
    let mut settings = Settings { mode: Mode::Tune, again, stop: stop.clone(), ..state.gpu_settings() };
    settings.budget.seconds = budget.unwrap_or(settings.budget.seconds);
    let watch = Watch { stop, tell: None };
    let wrong = |e: warplap_spec::SpecError| bad(e);
    py.detach(|| {
        let spec = Spec::load(&path).map_err(wrong)?;
        spec.ready_on(&device).map_err(wrong)?;
        let tuner = spec.open(&device, state.store.clone(), settings).map_err(wrong)?;
        let answer = ended(tuner.ensure(&spec.problem(), &watch))?;
        Ok(crate::api::tuning::tuned(&answer).to_string())
    })
}
