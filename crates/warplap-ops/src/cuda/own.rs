//! A twin as a variant: what `warplap_core::variant::Variant` asks for, answered from the plan.

use std::marker::PhantomData;

use warplap_core::candidate::SourceHash;
use warplap_core::op::Op;
use warplap_core::rejection::Rejection;
use warplap_core::space::{Config, Space};
use warplap_core::variant::{Fit, Kernel, Needs, Variant};
use warplap_cuda::{Chip, Cuda, Stream};

use super::launch::Loaded;
use super::plan::Twin;

/// An operation whose own kernels take the addresses of N buffers.
pub(crate) trait OnCuda<const N: usize>: Op {
    /// The addresses in the order the plans name them, after checking that the buffers hold what the problem that the
    /// kernel was built for spans: the kernels rely on it.
    fn addresses(built: &Self::Problem, args: &Self::Args<'_, Cuda>) -> Result<[u64; N], Rejection>;
}

/// A twin as a variant.
pub(crate) struct Own<O, T, const N: usize> {
    twin: T,
    op: PhantomData<fn() -> O>,
}

impl<O: OnCuda<N>, T: Twin<O::Problem>, const N: usize> Own<O, T, N> {
    /// The variant of a twin.
    pub(crate) fn new(twin: T) -> Self {
        Own { twin, op: PhantomData }
    }
}

impl<O: OnCuda<N>, T: Twin<O::Problem>, const N: usize> Variant<O, Cuda> for Own<O, T, N> {
    fn id(&self) -> &str {
        self.twin.id()
    }

    fn source(&self) -> SourceHash {
        let [kernel, twin] = self.twin.texts();
        let headers = [warplap_cuda::HOPPER, warplap_cuda::AMPERE, warplap_cuda::ELEMENT, warplap_cuda::EPILOGUE];
        let headers = headers.map(|(_, text)| text).concat();
        SourceHash::of(&[kernel, twin, include_str!("plan.rs"), include_str!("launch.rs"), &headers])
    }

    fn fit(&self, p: &O::Problem, cuda: &Cuda) -> Fit {
        self.twin.fit(p, cuda.chip())
    }

    fn space(&self, p: &O::Problem, cuda: &Cuda) -> Space {
        self.twin.space(p, cuda.chip())
    }

    fn needs(&self, p: &O::Problem, config: &Config) -> Needs {
        // The chip decides the depth of the pipeline, and a plan that does not fit is refused when it is made.
        let plan = self.twin.plan(p, config, &Chip::h200());
        plan.map_or(Needs::default(), |plan| Needs {
            threads: u64::from(plan.threads),
            workspace: 4 * plan.scratch().words,
            ..Needs::default()
        })
    }

    fn compile(&self, p: &O::Problem, config: &Config, cuda: &Cuda) -> Result<(), Rejection> {
        cuda.compile(&self.twin.plan(p, config, cuda.chip())?.source)
    }

    fn build(&self, p: &O::Problem, config: &Config, cuda: &Cuda) -> Result<Box<dyn Kernel<O, Cuda>>, Rejection> {
        let loaded = Loaded::new(self.twin.plan(p, config, cuda.chip())?, cuda)?;
        Ok(Box::new(Built::<O, N> { problem: p.clone(), loaded }))
    }
}

struct Built<O: Op, const N: usize> {
    problem: O::Problem,
    loaded: Loaded<N>,
}

impl<O: OnCuda<N>, const N: usize> Kernel<O, Cuda> for Built<O, N> {
    fn launch(&self, args: O::Args<'_, Cuda>, queue: &Stream) -> Result<(), Rejection> {
        let at = O::addresses(&self.problem, &args)?;
        // SAFETY: the plan is the twin's, which lists the entry's parameters; the buffers were checked to hold what the
        // problem spans, and the views borrow them.
        unsafe { self.loaded.launch(&at, queue) }
    }

    fn workspace(&self) -> u64 {
        self.loaded.workspace()
    }
}
