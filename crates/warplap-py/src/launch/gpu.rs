//! NVIDIA GPUs: an ordinal comes in; the one device of the process goes out.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use pyo3::exceptions::PyNotImplementedError;
use pyo3::prelude::*;
use warplap::Cuda;
use warplap::core::device::Device;
use warplap::core::dtype::DType;
use warplap::core::store::default_root;

use crate::call::failure::bad;
use crate::tensor::kernel_argument::LaunchDevice;

/// Devices with a higher ordinal are not looked for.
pub(crate) const DEVICES: usize = 16;

/// The program in which candidates prove themselves, and its arguments: this interpreter with this package.
static WORKER: OnceLock<(PathBuf, Vec<String>)> = OnceLock::new();

/// Libraries of the host program that race on a GPU, with their versions.
static LIBRARIES: Mutex<Vec<(String, String)>> = Mutex::new(Vec::new());

/// Says which libraries race on GPUs that are opened from now on.
pub(crate) fn race_beside(libraries: &[(String, String)]) {
    // Threads of the host, behind a stroke, are nothing to a GPU.
    let plain = |(name, version): &(String, String)| (name.clone(), version.split('/').next().unwrap_or("").into());
    LIBRARIES.lock().unwrap_or_else(PoisonError::into_inner).extend(libraries.iter().map(plain));
}

/// Says which program serves as the worker.
#[pyfunction]
pub(crate) fn set_worker(program: PathBuf, arguments: Vec<String>) {
    let _ = WORKER.set((program, arguments));
}

/// Serves as a worker and never returns, if this process was started as one.
#[pyfunction]
pub(crate) fn serve_if_asked(py: Python<'_>) {
    py.detach(|| warplap::worker::Worker::new().with_ground(warplap_spec::ground()).serve_if_asked());
}

/// Multiplies elements on a GPU in their own place with an f32 that lies there too. The addresses are the caller's word:
/// so many elements of the type, which this stream alone uses.
#[pyfunction]
pub(crate) fn times(py: Python<'_>, address: u64, dtype: &str, len: u64, by: u64, gpu: usize) -> PyResult<()> {
    let device = device(gpu)?;
    let dtype: DType = dtype.parse().map_err(|_| bad(format!("dtype: is {dtype}, expected a float")))?;
    let queue = device.current(py);
    // SAFETY: the caller's word.
    let launch = || unsafe { device.times((address, dtype, len), by, &queue) };
    let done = if device.busy(&queue).is_some() { device.beside_capture(launch) } else { launch() };
    done.map_err(|e| PyNotImplementedError::new_err(e.to_string()))
}

/// The devices of the process: one context each, whatever the store or the mode.
pub(crate) fn device(ordinal: usize) -> PyResult<Arc<Cuda>> {
    static OPENED: [OnceLock<Result<Arc<Cuda>, String>>; DEVICES] = [const { OnceLock::new() }; DEVICES];
    let opened = OPENED.get(ordinal).ok_or_else(|| missing(ordinal))?.get_or_init(|| {
        let mut device = Cuda::open(ordinal as i32).map_err(|e| e.to_string())?;
        if let Some((program, arguments)) =
            WORKER.get().filter(|_| warplap::core::environment::var("WARPLAP_WORKER").is_none())
        {
            device = device.with_worker(program, arguments);
        }
        for (name, version) in LIBRARIES.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            device = device.with_library(name, version);
        }
        Ok(Arc::new(match default_root() {
            Some(root) => device.with_artifacts(&root),
            None => device,
        }))
    });
    opened.clone().map_err(PyNotImplementedError::new_err)
}

/// No such GPU.
pub(crate) fn missing(ordinal: usize) -> PyErr {
    bad(format!("device: is cuda:{ordinal}, expected one below {DEVICES}"))
}
