//! A C kernel as variants: the user's own over its space, and the reference beside it, on whichever device its library
//! can be run.

use std::path::Path;
use std::sync::Arc;

use warplap::Cpu;
use warplap::core::arg::Arg;
use warplap::core::candidate::SourceHash;
use warplap::core::device::Device;
use warplap::core::rejection::Rejection;
use warplap::core::space::{Config, Space};
use warplap::core::variant::{Fit, Kernel, Variant};

use super::apart::{self, Apart};
use super::call::Loaded;
use super::remote::Remote;
use crate::op::{KernelFile, KernelProblem};
use crate::spec::Spec;

/// The user's kernel.
pub(crate) struct OwnC(pub(crate) Arc<Spec>);

/// The reference the spec names.
pub(crate) struct PlainC(pub(crate) Arc<Spec>);

/// A device on which libraries are run.
pub(crate) trait Runs: Device {
    /// The kernel of a library.
    fn run(spec: &Arc<Spec>, library: &Path) -> Result<Box<dyn Kernel<Self>>, Rejection>;
}

impl Runs for Apart {
    fn run(spec: &Arc<Spec>, library: &Path) -> Result<Box<dyn Kernel<Self>>, Rejection> {
        Ok(Box::new(Remote::new(spec, spec.workshop()?.cell(library)?)))
    }
}

/// In this very process, after one call in another: from then on whatever it does it does here.
impl Runs for Cpu {
    fn run(spec: &Arc<Spec>, library: &Path) -> Result<Box<dyn Kernel<Self>>, Rejection> {
        let workshop = spec.workshop()?;
        apart::answer(spec, workshop.cell(library)?, &spec.draw(&mut fastrand::Rng::with_seed(7)))?;
        workshop.checked(library)?;
        Ok(Box::new(Here { loaded: Loaded::open(library)?, spec: spec.clone() }))
    }
}

fn fit(own: &Arc<Spec>, problem: &KernelProblem, fits: Fit) -> Fit {
    match *problem == KernelProblem::new(own) {
        true => fits,
        false => Fit::aside("it belongs to another spec file"),
    }
}

impl<D: Runs> Variant<KernelFile, D> for OwnC {
    fn id(&self) -> &str {
        self.0.entry()
    }

    fn source(&self) -> SourceHash {
        self.0.hash("own")
    }

    fn fit(&self, problem: &KernelProblem, _: &D) -> Fit {
        fit(&self.0, problem, Fit::HIGH)
    }

    fn space(&self, _: &KernelProblem, _: &D) -> Space {
        self.0.space.clone()
    }

    fn compile(&self, _: &KernelProblem, config: &Config, _: &D) -> Result<(), Rejection> {
        self.0.workshop()?.own(&self.0, config).map(drop)
    }

    fn build(&self, _: &KernelProblem, config: &Config, _: &D) -> Result<Box<dyn Kernel<D>>, Rejection> {
        D::run(&self.0, &self.0.workshop()?.own(&self.0, config)?)
    }
}

impl<D: Runs> Variant<KernelFile, D> for PlainC {
    fn id(&self) -> &str {
        Spec::REFERENCE
    }

    fn source(&self) -> SourceHash {
        self.0.hash("reference")
    }

    fn fit(&self, problem: &KernelProblem, _: &D) -> Fit {
        fit(&self.0, problem, Fit::LOW)
    }

    fn space(&self, _: &KernelProblem, _: &D) -> Space {
        Space::single()
    }

    fn compile(&self, _: &KernelProblem, _: &Config, _: &D) -> Result<(), Rejection> {
        self.0.workshop()?.reference(&self.0).map(drop)
    }

    fn build(&self, _: &KernelProblem, _: &Config, _: &D) -> Result<Box<dyn Kernel<D>>, Rejection> {
        D::run(&self.0, &self.0.workshop()?.reference(&self.0)?)
    }
}

/// A kernel in this process.
struct Here {
    loaded: Loaded,
    spec: Arc<Spec>,
}

impl Kernel<Cpu> for Here {
    fn launch(&self, args: &mut [Arg<'_, Cpu>], _: &()) -> Result<(), Rejection> {
        // SAFETY: the catalog hands out kernels that refuse other arguments than the signature's.
        unsafe { self.loaded.call(&self.spec, args) }
    }
}
