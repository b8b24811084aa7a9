//! Building on a device: a source comes in; a function in the device's context goes out, compiled or from the
//! artifacts.

use warplap_core::rejection::Rejection;

use super::{Cuda, locked};
use crate::compile::own::OwnSource;
use crate::compile::{Cubin, Source};
use crate::driver::{Function, Module};

impl Cuda {
    /// Compiles a source for this chip into the artifacts, unless it is there; loads nothing.
    pub fn compile(&self, source: &Source) -> Result<(), Rejection> {
        self.workshop.cubin(source, &self.chip.arch(), &self.workers).map(drop)
    }

    /// Compiles a source for this chip (or takes it from the artifacts) and loads it. What is loaded is not read again:
    /// a server builds the same kernel for hundreds of sizes and matrices.
    pub fn build(&self, source: &Source) -> Result<Function, Rejection> {
        let arch = self.chip.arch();
        let loaded = locked(&self.modules).get(&self.workshop.digest(source, &arch)?).cloned();
        if let Some(module) = loaded {
            return module.function(source.entry).map_err(|e| e.rejection());
        }
        let (digest, cubin) = self.workshop.cubin(source, &arch, &self.workers)?;
        self.load(digest, &cubin, source.entry)
    }

    /// As [`Cuda::compile`], for a kernel that came with a user's spec.
    pub fn compile_own(&self, source: &OwnSource) -> Result<(), Rejection> {
        self.workshop.own_cubin(source, &self.chip.arch(), &self.workers).map(drop)
    }

    /// As [`Cuda::build`], for a kernel that came with a user's spec.
    pub fn build_own(&self, source: &OwnSource) -> Result<Function, Rejection> {
        let (digest, cubin) = self.workshop.own_cubin(source, &self.chip.arch(), &self.workers)?;
        self.load(digest, &cubin, &source.entry)
    }

    /// As [`Cuda::build_own`], with contents for globals of the module (constant memory), by name. Nobody else shares
    /// the module: its globals are this kernel's alone.
    pub fn build_own_with(&self, source: &OwnSource, globals: &[(&str, &[u8])]) -> Result<Function, Rejection> {
        if globals.is_empty() {
            return self.build_own(source);
        }
        let (_, cubin) = self.workshop.own_cubin(source, &self.chip.arch(), &self.workers)?;
        let module = Module::load(&self.context, &cubin.image).map_err(|e| e.rejection())?;
        for (name, bytes) in globals {
            let refused = |reason: String| Rejection::DoesNotBuild { reason };
            let result = module.global(name).map_err(|e| e.rejection())?;
            let (address, room) = result.ok_or_else(|| {
                refused(format!("the module has no global '{name}': expected __constant__ memory of that name"))
            })?;
            if bytes.len() > room {
                let inputs = bytes.len();
                return Err(refused(format!("the global '{name}' holds {room} bytes: expected room for {inputs}")));
            }
            // SAFETY: the global holds at least as many bytes (checked), and the module is alive.
            unsafe { self.queue.copy_in(address, bytes) }.map_err(|e| e.rejection())?;
        }
        module.function(&source.entry).map_err(|e| e.rejection())
    }

    fn load(&self, digest: String, cubin: &Cubin, entry: &str) -> Result<Function, Rejection> {
        let loaded = locked(&self.modules).get(&digest).cloned();
        let module = match loaded {
            Some(module) => module,
            None => {
                let module = Module::load(&self.context, &cubin.image).map_err(|e| e.rejection())?;
                locked(&self.modules).entry(digest).or_insert(module).clone()
            }
        };
        module.function(entry).map_err(|e| e.rejection())
    }
}
