//! From plan to kernel: compiled and loaded, its tensor maps kept by the addresses they were made for.

use std::ffi::c_void;
use std::sync::{Mutex, PoisonError};

use warplap_core::candidate::SourceHash;
use warplap_core::rejection::Rejection;
use warplap_core::space::{Config, Space};
use warplap_core::variant::{Fit, Kernel, Needs, Variant};
use warplap_cuda::{Cuda, Function, LaunchShape, Stream, TensorMap};

use super::plan::{Argument, Grid, Plan, Side, Twin};
use crate::gemm::{Gemm, GemmArgs, GemmProblem};

/// Sets of tensor maps kept for launches to come: a timed rotation has a few, a program one.
const KEPT: usize = 64;

/// A twin as a variant.
pub(super) struct Own<T>(pub(super) T);

impl<T: Twin> Variant<Gemm, Cuda> for Own<T> {
    fn id(&self) -> &str {
        self.0.id()
    }

    fn source(&self) -> SourceHash {
        let [kernel, twin] = self.0.texts();
        SourceHash::of(&[kernel, twin, include_str!("plan.rs"), include_str!("launch.rs"), warplap_cuda::HOPPER.1])
    }

    fn fit(&self, p: &GemmProblem, cuda: &Cuda) -> Fit {
        self.0.fit(p, cuda.chip())
    }

    fn space(&self, p: &GemmProblem, cuda: &Cuda) -> Space {
        self.0.space(p, cuda.chip())
    }

    fn needs(&self, p: &GemmProblem, config: &Config) -> Needs {
        // The chip decides the depth of the pipeline, and a plan that does not fit is refused when it is made.
        let chip = warplap_cuda::Chip::h200();
        self.0
            .plan(p, config, &chip)
            .map_or(Needs::default(), |plan| Needs { threads: u64::from(plan.threads), ..Needs::default() })
    }

    fn build(&self, p: &GemmProblem, config: &Config, cuda: &Cuda) -> Result<Box<dyn Kernel<Gemm, Cuda>>, Rejection> {
        let plan = self.0.plan(p, config, cuda.chip())?;
        Ok(Box::new(Built::new(*p, plan, cuda)?))
    }
}

struct Built {
    problem: GemmProblem,
    function: Function,
    shape: LaunchShape,
    arguments: Vec<Argument>,
    maps: Mutex<Vec<([u64; 3], Vec<TensorMap>)>>,
}

impl Built {
    fn new(problem: GemmProblem, plan: Plan, cuda: &Cuda) -> Result<Self, Rejection> {
        let function = cuda.build(&plan.source)?;
        let over = |what: &str| Rejection::OverLimits { reason: format!("the {what} is too large for a launch") };
        let shared = u32::try_from(plan.shared).map_err(|_| over("shared memory"))?;
        function.allow_shared(shared).map_err(|e| e.rejection())?;
        let mut shape = LaunchShape { grid: [1, 1, 1], threads: plan.threads, shared, overlap: plan.overlap };
        let blocks = match plan.grid {
            Grid::Blocks(blocks) => blocks,
            Grid::Persistent { tiles, cluster: 1 } => tiles.min(u64::from(cuda.chip().multiprocessors)),
            Grid::Persistent { tiles, cluster } => {
                let most = function.most_clusters(&shape, cluster).map_err(|e| e.rejection())?;
                tiles.min(u64::from(most.max(1))) * u64::from(cluster)
            }
        };
        shape.grid[0] = u32::try_from(blocks).ok().filter(|b| *b < 1 << 31).ok_or_else(|| over("grid"))?;
        Ok(Built { problem, function, shape, arguments: plan.arguments, maps: Mutex::default() })
    }

    /// Encodes the maps of the addresses, or finds those made before.
    fn with_maps<R>(&self, at: [u64; 3], f: impl FnOnce(&[TensorMap]) -> R) -> Result<R, Rejection> {
        let mut kept = self.maps.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, maps)) = kept.iter().find(|(key, _)| *key == at) {
            return Ok(f(maps));
        }
        let encode = |argument: &Argument| match argument {
            Argument::Map(side, spec) => Some(TensorMap::encode(spec, at[*side as usize])),
            _ => None,
        };
        let maps =
            self.arguments.iter().filter_map(encode).collect::<Result<Vec<_>, _>>().map_err(|e| e.rejection())?;
        let result = f(&maps);
        if kept.len() == KEPT {
            kept.remove(0);
        }
        kept.push((at, maps));
        Ok(result)
    }
}

/// The addresses of A, B and C, checked: the kernels rely on it.
fn addresses(p: &GemmProblem, built: &GemmProblem, args: &GemmArgs<'_, Cuda>) -> Result<[u64; 3], Rejection> {
    let refused = |reason: String| Err(Rejection::LaunchFailed { reason });
    if p != built {
        return refused("a kernel was launched for another problem than it was built for".into());
    }
    let (a, b, c) = (&args.a, &args.b, &args.c);
    let given = [
        ("a", a.dtype(), a.len(), p.a_len(), a.address()),
        ("b", b.dtype(), b.len(), p.b_len(), b.address()),
        ("c", c.dtype(), c.len(), p.c_len(), c.address()),
    ];
    for (name, dtype, len, wanted, address) in given {
        if dtype != p.dtype || len < wanted {
            return refused(format!("{name} holds {len} {dtype}, the problem asks for {wanted} {}", p.dtype));
        }
        if !address.is_multiple_of(p.align) {
            return refused(format!("{name} is not aligned to {} bytes as the problem says", p.align));
        }
    }
    Ok([a.address(), b.address(), c.address()])
}

impl Kernel<Gemm, Cuda> for Built {
    fn launch(&self, args: GemmArgs<'_, Cuda>, queue: &Stream) -> Result<(), Rejection> {
        let at = addresses(args.problem, &self.problem, &args)?;
        let launched = self.with_maps(at, |maps| {
            let mut maps = maps.iter();
            let mut pointers: Vec<*const c_void> = Vec::with_capacity(self.arguments.len());
            for argument in &self.arguments {
                pointers.push(match argument {
                    Argument::Map(..) => match maps.next() {
                        Some(map) => (&raw const *map).cast(),
                        None => std::ptr::null(),
                    },
                    Argument::Pointer(side) => (&raw const at[*side as usize]).cast(),
                    Argument::Int(value) => (&raw const *value).cast(),
                    Argument::Long(value) => (&raw const *value).cast(),
                });
            }
            // SAFETY: the plan lists the entry's parameters in order, one map was encoded for each that is a map; the
            // buffers were checked to hold what the problem spans, and the views borrow them.
            unsafe { self.function.launch(&self.shape, &pointers, queue) }
        })?;
        launched.map_err(|e| e.rejection())
    }
}

const _: () = assert!(Side::A as usize == 0 && Side::B as usize == 1 && Side::C as usize == 2);
