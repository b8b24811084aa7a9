//! A CUDA kernel as variants: the user's own over its space, and the reference beside it.

use std::ffi::c_void;
use std::sync::Arc;

use warplap::Cuda;
use warplap::core::arg::Arg;
use warplap::core::candidate::SourceHash;
use warplap::core::rejection::Rejection;
use warplap::core::resources::Resources;
use warplap::core::space::{Config, Space};
use warplap::core::variant::{Fit, Kernel, Needs, Variant};
use warplap::cuda::{Function, LaunchShape, OwnSource, Stream};

use super::sizes::{LaunchSizes, parameter};
use crate::argument::Role;
use crate::op::{KernelFile, KernelProblem};
use crate::spec::{Code, Reference, Spec};

/// The user's kernel on a GPU.
pub(crate) struct OwnCuda(pub(crate) Arc<Spec>);

/// The reference on a GPU.
pub(crate) struct PlainCuda(pub(crate) Arc<Spec>);

impl OwnCuda {
    fn source_of(&self, config: &Config) -> OwnSource {
        source_of(&self.0, &self.0.code, config)
    }

    fn built(&self, config: &Config, cuda: &Cuda) -> Result<Built, Rejection> {
        Built::new(&self.0, &self.source_of(config), LaunchSizes::of(&self.0, config)?, cuda)
    }
}

impl PlainCuda {
    /// The kernel the spec names, which knows the constants alone, or the kernel itself at its default config.
    fn source_of(&self) -> OwnSource {
        match &self.0.reference {
            Reference::Cuda(code, _) => source_of(&self.0, code, &Config::new()),
            _ => source_of(&self.0, &self.0.code, &self.0.default_config()),
        }
    }

    pub(super) fn built(&self, cuda: &Cuda) -> Result<Built, Rejection> {
        Built::new(&self.0, &self.source_of(), LaunchSizes::of_reference(&self.0)?, cuda)
    }
}

fn source_of(spec: &Spec, code: &Code, config: &Config) -> OwnSource {
    let mut options = code.flags.clone();
    options.extend(spec.defines(config).into_iter().map(|(name, value)| format!("-D{name}={value}")));
    OwnSource { entry: code.entry.clone(), text: code.text.clone(), headers: spec.headers.clone(), options }
}

fn fit(own: &Arc<Spec>, problem: &KernelProblem, fits: Fit) -> Fit {
    match *problem == KernelProblem::new(own) {
        true => fits,
        false => Fit::aside("it belongs to another spec file"),
    }
}

fn needs(sizes: Result<LaunchSizes, Rejection>) -> Needs {
    sizes.map_or(Needs::default(), |sizes| Needs {
        threads: sizes.threads(),
        shared_memory: u64::from(sizes.shared),
        ..Needs::default()
    })
}

impl Variant<KernelFile, Cuda> for OwnCuda {
    fn id(&self) -> &str {
        self.0.entry()
    }

    fn source(&self) -> SourceHash {
        SourceHash::of(&["cuda", self.0.identity()])
    }

    fn fit(&self, problem: &KernelProblem, _: &Cuda) -> Fit {
        fit(&self.0, problem, Fit::HIGH)
    }

    fn space(&self, _: &KernelProblem, _: &Cuda) -> Space {
        self.0.space.clone()
    }

    fn needs(&self, _: &KernelProblem, config: &Config) -> Needs {
        needs(LaunchSizes::of(&self.0, config))
    }

    fn compile(&self, _: &KernelProblem, config: &Config, cuda: &Cuda) -> Result<(), Rejection> {
        cuda.compile_own(&self.source_of(config))
    }

    fn build(&self, _: &KernelProblem, config: &Config, cuda: &Cuda) -> Result<Box<dyn Kernel<Cuda>>, Rejection> {
        Ok(Box::new(self.built(config, cuda)?))
    }
}

impl Variant<KernelFile, Cuda> for PlainCuda {
    fn id(&self) -> &str {
        Spec::REFERENCE
    }

    fn source(&self) -> SourceHash {
        SourceHash::of(&["cuda reference", self.0.identity()])
    }

    fn fit(&self, problem: &KernelProblem, _: &Cuda) -> Fit {
        fit(&self.0, problem, Fit::LOW)
    }

    fn space(&self, _: &KernelProblem, _: &Cuda) -> Space {
        Space::single()
    }

    fn needs(&self, _: &KernelProblem, _: &Config) -> Needs {
        needs(LaunchSizes::of_reference(&self.0))
    }

    fn compile(&self, _: &KernelProblem, _: &Config, cuda: &Cuda) -> Result<(), Rejection> {
        cuda.compile_own(&self.source_of())
    }

    fn build(&self, _: &KernelProblem, _: &Config, cuda: &Cuda) -> Result<Box<dyn Kernel<Cuda>>, Rejection> {
        Ok(Box::new(self.built(cuda)?))
    }
}

/// A compiled kernel with its launch.
pub(super) struct Built {
    spec: Arc<Spec>,
    function: Function,
    shape: LaunchShape,
    block: [u32; 3],
    resources: Option<Resources>,
}

impl Built {
    fn new(spec: &Arc<Spec>, source: &OwnSource, sizes: LaunchSizes, cuda: &Cuda) -> Result<Built, Rejection> {
        let LaunchSizes { grid, block, shared, cluster } = sizes;
        let constants = spec.constant_memory();
        let globals: Vec<(&str, &[u8])> = constants.iter().map(|(name, bytes)| (*name, &bytes[..])).collect();
        let function = cuda.build_own_with(source, &globals)?;
        function.allow_shared(shared).map_err(|e| e.rejection())?;
        let threads = block.iter().product();
        let shape = LaunchShape { grid, threads, shared, cluster, ..LaunchShape::default() };
        let resources = function.resources(&shape, cuda.chip().resident_threads());
        Ok(Built { spec: spec.clone(), function, shape, block, resources })
    }
}

impl Kernel<Cuda> for Built {
    fn launch(&self, args: &mut [Arg<'_, Cuda>], queue: &Stream) -> Result<(), Rejection> {
        let mut values: Vec<u64> = Vec::with_capacity(args.len());
        for (argument, arg) in self.spec.parameters().zip(args) {
            values.push(match argument.role {
                Role::Scalar => {
                    argument.check(arg.scalar()?)?;
                    parameter(argument)
                }
                Role::Out | Role::InOut => arg.write()?.address(),
                Role::In | Role::Constant => arg.read()?.address(),
            });
        }
        let pointers: Vec<*const c_void> = values.iter().map(|v| (&raw const *v).cast()).collect();
        // SAFETY: one value for each of the entry's parameters as the spec states them, in order, each at the start of
        // eight bytes in little-endian order. The catalog hands out kernels that refuse other arguments than the
        // signature's, and `Right` checks its own; the views borrow their buffers.
        unsafe { self.function.launch_in(&self.shape, self.block, &pointers, queue) }.map_err(|e| e.rejection())
    }

    fn resources(&self) -> Option<Resources> {
        self.resources
    }
}
