//! Containment: a variant comes in; one none of whose answers is a panic goes out.

use std::sync::Arc;

use crate::candidate::SourceHash;
use crate::candidates::variant::{Fit, Kernel, Needs, Variant};
use crate::device::Device;
use crate::model::arg::Arg;
use crate::model::op::Op;
use crate::model::roofline::Ceilings;
use crate::model::slot::Outline;
use crate::prove::panics::{caught, contained};
use crate::rejection::Rejection;
use crate::resources::Resources;
use crate::space::{Axis, Config, Space};

/// A variant none of whose answers is a panic: the form in which a catalog holds them all.
pub(crate) struct PanicGuard<O: Op, D: Device>(pub(crate) Arc<dyn Variant<O, D>>);

impl<O: Op, D: Device> PanicGuard<O, D> {
    fn ask<T>(&self, what: &str, f: impl FnOnce() -> T) -> Result<T, String> {
        caught(f).map_err(|reason| {
            tracing::warn!("variant {}: {what} panicked: {reason}", self.0.id());
            format!("its {what} panicked: {reason}")
        })
    }
}

impl<O: Op, D: Device> Variant<O, D> for PanicGuard<O, D> {
    fn id(&self) -> &str {
        self.0.id()
    }

    fn source(&self) -> SourceHash {
        self.ask("source", || self.0.source()).unwrap_or_else(|_| SourceHash::of(&["panicked"]))
    }

    fn fit(&self, problem: &O::Problem, device: &D) -> Fit {
        self.ask("fit", || self.0.fit(problem, device)).unwrap_or_else(Fit::Aside)
    }

    fn space(&self, problem: &O::Problem, device: &D) -> Space {
        // An axis with no values leaves no legal config.
        self.ask("space", || self.0.space(problem, device))
            .unwrap_or_else(|_| Space::single().axis(Axis::choices("panicked", &[])))
    }

    fn needs(&self, problem: &O::Problem, config: &Config) -> Needs {
        // What cannot say what it needs asks for more than there is.
        let too_much = |_| Needs { threads: u64::MAX, ..Needs::default() };
        self.ask("needs", || self.0.needs(problem, config)).unwrap_or_else(too_much)
    }

    fn floor(&self, problem: &O::Problem, config: &Config, ceilings: &Ceilings) -> Option<f64> {
        self.ask("floor", || self.0.floor(problem, config, ceilings)).ok().flatten()
    }

    fn compile(&self, problem: &O::Problem, config: &Config, device: &D) -> Result<(), Rejection> {
        contained(|| self.0.compile(problem, config, device))
    }

    fn build(&self, problem: &O::Problem, config: &Config, device: &D) -> Result<Box<dyn Kernel<D>>, Rejection> {
        contained(|| {
            let (inner, outline) = (self.0.build(problem, config, device)?, O::signature(problem).outline());
            Ok(Box::new(Held { outline, workspace: inner.workspace(), inner }) as Box<dyn Kernel<D>>)
        })
    }

    fn is_library(&self) -> bool {
        self.ask("is_library", || self.0.is_library()).unwrap_or(false)
    }

    fn is_usual(&self) -> bool {
        self.ask("is_usual", || self.0.is_usual()).unwrap_or(false)
    }
}

/// A kernel that is held to its problem's signature: other arguments are refused before it sees them.
struct Held<D: Device> {
    outline: Outline,
    workspace: u64,
    inner: Box<dyn Kernel<D>>,
}

impl<D: Device> Kernel<D> for Held<D> {
    #[inline]
    fn launch(&self, args: &mut [Arg<'_, D>], queue: &D::Queue) -> Result<(), Rejection> {
        if !self.outline.fits(args) {
            return Err(unfit());
        }
        self.inner.launch(args, queue)
    }

    // Not `prove`: whoever is in a catalog is proved on the race's memory, not by itself.

    fn writes(&self) -> bool {
        self.inner.writes()
    }

    fn workspace(&self) -> u64 {
        self.workspace
    }

    fn resources(&self) -> Option<Resources> {
        self.inner.resources()
    }
}

#[cold]
fn unfit() -> Rejection {
    Rejection::LaunchFailed { reason: "the arguments are not those of the problem it was built for".into() }
}
