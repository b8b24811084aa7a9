//! CUDA kernels on a GPU: a config becomes a plan (host arithmetic alone), the plan a compiled function, and that a variant.

use std::ffi::c_void;
use std::sync::Arc;

use warplap::Cuda;
use warplap::core::candidate::SourceHash;
use warplap::core::rejection::Rejection;
use warplap::core::space::{Config, Expr, Space, Value};
use warplap::core::variant::{Fit, Kernel, Needs, Variant};
use warplap::cuda::{Function, LaunchShape, OwnSource, Stream};

use crate::argument::{Argument, Element, Role};
use crate::op::{KernelArgs, KernelFile, KernelProblem};
use crate::spec::{Launch, Spec};

/// The sizes of one launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) shared: u32,
    /// Blocks of a cluster; zeros where the spec names none.
    pub(crate) cluster: [u32; 3],
}

impl Plan {
    /// Works the launch expressions of a spec out for a config.
    pub(crate) fn of(spec: &Spec, config: &Config) -> Result<Plan, Rejection> {
        let refused = |reason: String| Rejection::DoesNotBuild { reason };
        let Some(Launch { grid, block, shared, cluster }) = &spec.launch else {
            return Err(refused("the spec states no launch".into()));
        };
        let size = |expr: &Expr, least: u32| -> Result<u32, Rejection> {
            let value = expr.eval(|name| spec.value(config, name)).map_err(|e| refused(e.to_string()))?;
            let whole = match value {
                Value::Int(i) => u32::try_from(i).ok(),
                Value::Float(x) if x.0.fract() == 0.0 && x.0 >= 0.0 && x.0 < f64::from(u32::MAX) => Some(x.0 as u32),
                _ => None,
            };
            let wrong =
                || refused(format!("'{}' gives {value}: a launch takes whole numbers from {least}", expr.text()));
            whole.filter(|w| *w >= least).ok_or_else(wrong)
        };
        let three = |parts: &[Expr]| -> Result<[u32; 3], Rejection> {
            let mut all = [1; 3];
            for (to, part) in all.iter_mut().zip(parts) {
                *to = size(part, 1)?;
            }
            Ok(all)
        };
        let shared = shared.as_ref().map_or(Ok(0), |s| size(s, 0))?;
        let grid = three(grid)?;
        let cluster = if cluster.is_empty() { [0; 3] } else { three(cluster)? };
        if let Some((blocks, size)) = grid.iter().zip(cluster).find(|(blocks, size)| **blocks % (*size).max(1) != 0) {
            return Err(refused(format!("a grid of {blocks} blocks cannot be cut into clusters of {size}")));
        }
        Ok(Plan { grid, block: three(block)?, shared, cluster })
    }

    /// Threads of one block.
    pub(crate) fn threads(&self) -> u64 {
        self.block.iter().map(|b| u64::from(*b)).product()
    }
}

/// The user's kernel on a GPU.
pub(crate) struct OwnCuda(pub(crate) Arc<Spec>);

impl OwnCuda {
    fn source_of(&self, config: &Config) -> OwnSource {
        let spec = &self.0;
        let mut options = spec.code.flags.clone();
        options.extend(spec.defines(config).into_iter().map(|(name, value)| format!("-D{name}={value}")));
        OwnSource { entry: spec.code.entry.clone(), text: spec.code.text.clone(), options }
    }
}

impl Variant<KernelFile, Cuda> for OwnCuda {
    fn id(&self) -> &str {
        self.0.entry()
    }

    fn source(&self) -> SourceHash {
        SourceHash::of(&["cuda", self.0.identity()])
    }

    fn fit(&self, problem: &KernelProblem, _: &Cuda) -> Fit {
        match *problem == KernelProblem::new(&self.0) {
            true => Fit::HIGH,
            false => Fit::aside("it belongs to another spec file"),
        }
    }

    fn space(&self, _: &KernelProblem, _: &Cuda) -> Space {
        self.0.space.clone()
    }

    fn needs(&self, _: &KernelProblem, config: &Config) -> Needs {
        let plan = Plan::of(&self.0, config);
        plan.map_or(Needs::default(), |plan| Needs {
            threads: plan.threads(),
            shared_memory: u64::from(plan.shared),
            ..Needs::default()
        })
    }

    fn compile(&self, _: &KernelProblem, config: &Config, cuda: &Cuda) -> Result<(), Rejection> {
        cuda.compile_own(&self.source_of(config))
    }

    fn build(
        &self,
        _: &KernelProblem,
        config: &Config,
        cuda: &Cuda,
    ) -> Result<Box<dyn Kernel<KernelFile, Cuda>>, Rejection> {
        let Plan { grid, block, shared, cluster } = Plan::of(&self.0, config)?;
        let function = cuda.build_own(&self.source_of(config))?;
        function.allow_shared(shared).map_err(|e| e.rejection())?;
        let threads = block.iter().product();
        let shape = LaunchShape { grid, threads, shared, cluster, ..LaunchShape::default() };
        Ok(Box::new(Built { spec: self.0.clone(), function, shape, block }))
    }
}

struct Built {
    spec: Arc<Spec>,
    function: Function,
    shape: LaunchShape,
    block: [u32; 3],
}

/// A number as a kernel's parameter: its bytes, eight at the most.
pub(crate) fn parameter(argument: &Argument) -> u64 {
    let number = match &argument.value {
        Some(Value::Int(i)) => *i as f64,
        Some(Value::Float(x)) => x.0,
        Some(Value::Bool(b)) => f64::from(u8::from(*b)),
        _ => 0.0,
    };
    match (argument.element, &argument.value) {
        (Element::I64, Some(Value::Int(i))) => *i as u64,
        (Element::I64, _) => number as i64 as u64,
        (Element::Stored(warplap::DType::I32), _) => u64::from(number as i32 as u32),
        (Element::Stored(warplap::DType::F32), _) => u64::from((number as f32).to_bits()),
        _ => number.to_bits(),
    }
}

impl Kernel<KernelFile, Cuda> for Built {
    fn launch(&self, args: KernelArgs<'_, Cuda>, queue: &Stream) -> Result<(), Rejection> {
        let spec = &self.spec;
        let refused = || Rejection::LaunchFailed { reason: "the buffers are not those of the spec".into() };
        if (args.output.dtype(), args.output.len()) != spec.output() {
            return Err(refused());
        }
        let mut inputs = args.inputs.iter();
        let mut values: Vec<u64> = Vec::with_capacity(spec.arguments.len());
        for (argument, start) in spec.arguments.iter().zip(spec.outputs()) {
            values.push(match argument.role {
                Role::Scalar => parameter(argument),
                Role::Out => args.output.address() + (start.unwrap_or(0) * argument.dtype().bytes()) as u64,
                Role::In | Role::InOut => {
                    let view = inputs.next().filter(|v| v.len() == argument.len() && v.dtype() == argument.dtype());
                    view.ok_or_else(refused)?.address()
                }
            });
        }
        let pointers: Vec<*const c_void> = values.iter().map(|v| (&raw const *v).cast()).collect();
        // SAFETY: one value for each of the entry's parameters as the spec states them, in order, each at the start of
        // eight bytes in little-endian order; the buffers were checked to have the spec's lengths, and the views borrow them.
        unsafe { self.function.launch_in(&self.shape, self.block, &pointers, queue) }.map_err(|e| e.rejection())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::argument::Fill;
    use warplap::DType;

    fn spec(launch: &str) -> (tempfile::TempDir, Result<Arc<Spec>, crate::SpecError>) {
        let folder = tempfile::tempdir().unwrap();
        let text = format!(
            "source = \"k.cu\"\nentry = \"k\"\n[constants]\nN = 1000\n[axes]\nblock_size_x = [128, 256]\nTILE = [1, 3]\n\
             [[arguments]]\nname = \"y\"\nrole = \"out\"\ndtype = \"f32\"\nshape = \"N\"\n\
             [reference]\nsource = \"r.c\"\nentry = \"r\"\n{launch}"
        );
        std::fs::write(folder.path().join("k.toml"), text).unwrap();
        std::fs::write(folder.path().join("k.cu"), "__global__ void k(float *y) {}").unwrap();
        std::fs::write(folder.path().join("r.c"), "void r(float *y) {}").unwrap();
        let spec = Spec::load(&folder.path().join("k.toml"));
        (folder, spec)
    }

    #[test]
    fn the_launch_is_worked_out_from_axes_and_constants() {
        let (_folder, spec) = spec(
            "[launch]\ngrid = [\"ceil(N / (block_size_x * TILE))\", 2]\nblock = [\"block_size_x\"]\nshared = \"4 * block_size_x\"",
        );
        let config = Config::new().with("block_size_x", 128).with("TILE", 3);
        let plan = Plan::of(&spec.unwrap(), &config).unwrap();
        assert_eq!(plan, Plan { grid: [3, 2, 1], block: [128, 1, 1], shared: 512, cluster: [0; 3] });
        assert_eq!(plan.threads(), 128);
    }

    #[test]
    fn a_launch_that_is_no_whole_number_is_a_rejection_and_an_unknown_name_an_error_with_its_line() {
        let (_folder, good) = spec("[launch]\ngrid = \"N / TILE\"\nblock = 1");
        let config = Config::new().with("block_size_x", 128).with("TILE", 3);
        let said = Plan::of(&good.unwrap(), &config).unwrap_err().to_string();
        assert!(said.contains("N / TILE"), "{said}");
        let said = spec("[launch]\ngrid = \"M\"\nblock = 1").1.unwrap_err().to_string();
        assert!(said.contains("k.toml:17") && said.contains("'M'"), "{said}");
        let said = spec("").1.unwrap_err().to_string();
        assert!(said.contains("expected grid and block"), "{said}");
    }

    #[test]
    fn a_grid_is_cut_into_whole_clusters_or_the_config_is_rejected() {
        let (_folder, spec) = spec("[launch]\ngrid = [\"2 * TILE\", 4]\nblock = 1\ncluster = [2, \"TILE\"]");
        let (spec, config) = (spec.unwrap(), Config::new().with("block_size_x", 128));
        let plan = |tile| Plan::of(&spec, &config.clone().with("TILE", tile));
        assert_eq!(plan(1).unwrap().cluster, [2, 1, 1]);
        assert!(plan(3).unwrap_err().to_string().contains("4 blocks cannot be cut into clusters of 3"));
    }

    #[test]
    fn numbers_are_parameters_of_their_own_width() {
        let scalar = |element, value| {
            let (name, shape, fill) = ("n".to_string(), Vec::new(), Fill::Zeros);
            parameter(&Argument { name, element, role: Role::Scalar, shape, fill, value: Some(value) })
        };
        assert_eq!(scalar(Element::Stored(DType::I32), Value::Int(-1)), 0xffff_ffff);
        assert_eq!(scalar(Element::I64, Value::Int(-1)), u64::MAX);
        assert_eq!(scalar(Element::Stored(DType::F32), Value::from(1.0)), u64::from(1f32.to_bits()));
        assert_eq!(scalar(Element::Stored(DType::F64), Value::Int(2)), 2f64.to_bits());
    }
}
