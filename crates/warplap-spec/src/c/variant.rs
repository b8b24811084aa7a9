//! A C kernel as variants: the user's own over its space, and the reference beside it.

use std::sync::Arc;

use warplap::Cpu;
use warplap::core::arg::Arg;
use warplap::core::candidate::SourceHash;
use warplap::core::rejection::Rejection;
use warplap::core::space::{Config, Space};
use warplap::core::variant::{Fit, Kernel, Variant};

use super::call::Loaded;
use crate::op::{KernelFile, KernelProblem};
use crate::spec::Spec;

/// The user's kernel.
pub(crate) struct OwnC(pub(crate) Arc<Spec>);

/// The reference the spec names.
pub(crate) struct PlainC(pub(crate) Arc<Spec>);

fn fit(own: &Arc<Spec>, problem: &KernelProblem, fits: Fit) -> Fit {
    match *problem == KernelProblem::new(own) {
        true => fits,
        false => Fit::aside("it belongs to another spec file"),
    }
}

impl Variant<KernelFile, Cpu> for OwnC {
    fn id(&self) -> &str {
        self.0.entry()
    }

    fn source(&self) -> SourceHash {
        self.0.hash("own")
    }

    fn fit(&self, problem: &KernelProblem, _: &Cpu) -> Fit {
        fit(&self.0, problem, Fit::HIGH)
    }

    fn space(&self, _: &KernelProblem, _: &Cpu) -> Space {
        self.0.space.clone()
    }

    fn compile(&self, _: &KernelProblem, config: &Config, _: &Cpu) -> Result<(), Rejection> {
        self.0.workshop()?.own(&self.0, config).map(drop)
    }

    fn build(&self, _: &KernelProblem, config: &Config, _: &Cpu) -> Result<Box<dyn Kernel<Cpu>>, Rejection> {
        let path = self.0.workshop()?.own(&self.0, config)?;
        Ok(Box::new(Built { loaded: Arc::new(Loaded::open(&path)?), spec: self.0.clone() }))
    }
}

impl Variant<KernelFile, Cpu> for PlainC {
    fn id(&self) -> &str {
        Spec::REFERENCE
    }

    fn source(&self) -> SourceHash {
        self.0.hash("reference")
    }

    fn fit(&self, problem: &KernelProblem, _: &Cpu) -> Fit {
        fit(&self.0, problem, Fit::LOW)
    }

    fn space(&self, _: &KernelProblem, _: &Cpu) -> Space {
        Space::single()
    }

    fn compile(&self, _: &KernelProblem, _: &Config, _: &Cpu) -> Result<(), Rejection> {
        self.0.workshop()?.reference(&self.0).map(drop)
    }

    fn build(&self, _: &KernelProblem, _: &Config, _: &Cpu) -> Result<Box<dyn Kernel<Cpu>>, Rejection> {
        let loaded = self.0.workshop()?.reference(&self.0)?;
        Ok(Box::new(Built { loaded, spec: self.0.clone() }))
    }
}

struct Built {
    loaded: Arc<Loaded>,
    spec: Arc<Spec>,
}

impl Kernel<Cpu> for Built {
    fn launch(&self, args: &mut [Arg<'_, Cpu>], _: &()) -> Result<(), Rejection> {
        // SAFETY: the catalog hands out kernels that refuse other arguments than the signature's.
        unsafe { self.loaded.call(&self.spec, args) }
    }
}
