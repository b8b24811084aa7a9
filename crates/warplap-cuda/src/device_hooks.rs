//! What workers are told of CUDA: how the device is opened in one, who compiles, and what is the matter after a
//! failure.

use std::path::Path;
use std::time::Instant;

use warplap_core::device::Device;
use warplap_worker::{Compile, CompileOrder, Fault, Hosted, Service};

use crate::compile::nvrtc::Compiler;
use crate::device::Cuda;
use crate::error::CudaError;

/// One operation a worker can prove candidates of.
pub type Ground = warplap_worker::Ground<Cuda>;

/// Serves as a worker and never returns, if this process was started as one; else returns at once and lets this program
/// be started as a worker later. To be called at the top of `main`, before anything is printed or started.
pub fn serve_if_asked(grounds: &[Ground]) {
    warplap_worker::serve_if_asked(&[Service::of(grounds)]);
}

impl Hosted for Cuda {
    type Compiler = Compiler;

    fn kind() -> &'static str {
        Self::KIND
    }

    fn host(ordinal: i32, artifacts: Option<&Path>) -> Result<Self, String> {
        let device = Cuda::open(ordinal).map_err(|e| e.to_string())?.without_sandbox();
        Ok(match artifacts {
            Some(directory) => device.with_artifacts(directory),
            None => device,
        })
    }

    fn find_compiler() -> Result<Compiler, String> {
        Compiler::find().map_err(|e| e.to_string())
    }

    fn health(&self) -> Result<(), Fault> {
        self.context_health().map_err(|e| Fault { class: e.class(), reason: e.to_string() })
    }
}

impl Compile for Compiler {
    fn compile(&self, order: &CompileOrder, deadline: Instant) -> Result<(Vec<u8>, String), String> {
        let headers: Vec<(&str, &str)> = order.headers.iter().map(|(n, t)| (n.as_str(), t.as_str())).collect();
        Compiler::compile(self, &order.name, &order.text, &headers, &order.options, deadline).map_err(|e| match e {
            CudaError::Compile(why) => why,
            other => other.to_string(),
        })
    }
}
