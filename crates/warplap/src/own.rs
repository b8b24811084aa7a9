//! A kernel of the caller's own, from closures: what it is given, what is right, and how a config becomes something to
//! launch come in; a tuner goes out, so that verifying, racing, storing and dispatching are those of every operation.
//!
//! ```
//! use warplap::core::space::{Axis, Space};
//! use warplap::core::{array::Array, progress::Silent};
//! use warplap::cpu::{Slice, SliceMut};
//! use warplap::own::{OwnKernel, OwnVariant};
//! use warplap::{Budget, Cpu, DType, Settings};
//!
//! let twice = OwnKernel::new("twice", (DType::F32, 1000))
//!     .inputs(|rng| vec![Array::random(DType::F32, 1000, rng)])
//!     .answer(|inputs| inputs[0].to_f64().iter().map(|x| 2.0 * x).collect());
//! let space = Space::single().axis(Axis::ints("CHUNK", [16, 64, 256]));
//! let chunked = OwnVariant::<Cpu>::new("chunked", "1", space, |config, _| {
//!     let chunk = config.int("CHUNK").unwrap_or(64) as usize;
//!     Ok(Box::new(move |inputs: &[Slice<'_>], output: SliceMut<'_>, _: &()| {
//!         if let (Slice::F32(x), SliceMut::F32(y)) = (inputs[0], output) {
//!             for (y, x) in y.chunks_mut(chunk).zip(x.chunks(chunk)) {
//!                 y.iter_mut().zip(x).for_each(|(y, x)| *y = 2.0 * x);
//!             }
//!         }
//!         Ok(())
//!     }))
//! });
//! let settings = Settings { budget: Budget { seconds: 0.2, ..Budget::default() }, ..Settings::default() };
//! let store = std::sync::Arc::new(warplap::core::store::MemoryStore::new());
//! let (tuner, problem) = twice.open(Cpu::with_threads(1).into(), chunked, Vec::new(), store, settings);
//! println!("{}", tuner.tune(&problem, &Silent)?.edition.verdict.winner);
//! # Ok::<(), warplap::Error>(())
//! ```

use std::collections::HashMap;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use warplap_core::array::Array;
use warplap_core::bucket::Bucket;
use warplap_core::candidate::SourceHash;
use warplap_core::catalog::Catalog;
use warplap_core::device::Device;
use warplap_core::dtype::DType;
use warplap_core::op::{Answer, Op};
use warplap_core::problem::{FieldReader, Fields, Problem, ProblemError};
use warplap_core::rejection::Rejection;
use warplap_core::roofline::{Ceilings, Work};
use warplap_core::settings::Settings;
use warplap_core::space::{Config, Space};
use warplap_core::store::Store;
use warplap_core::tolerance::Tolerance;
use warplap_core::tuner::Tuner;
use warplap_core::variant::{Fit, Kernel, Variant};

type Draw = dyn Fn(&mut fastrand::Rng) -> Vec<Array> + Send + Sync;
type Right = dyn Fn(&[Array]) -> Vec<f64> + Send + Sync;

/// What one launch does: inputs, the output, and the queue it is to be put on.
pub type OwnLaunch<D> = Box<
    dyn for<'a> Fn(
            &[<D as Device>::View<'a>],
            <D as Device>::ViewMut<'a>,
            &<D as Device>::Queue,
        ) -> Result<(), Rejection>
        + Send
        + Sync,
>;

type Build<D> = dyn Fn(&Config, &D) -> Result<OwnLaunch<D>, Rejection> + Send + Sync;

/// A kernel of the caller's own: its inputs, its output and the right answer.
pub struct OwnKernel {
    name: String,
    output: (DType, usize),
    inputs: Box<Draw>,
    answer: Box<Right>,
    relative: f64,
    work: Work,
}

impl OwnKernel {
    /// A kernel of a name (letters, digits and underscores) that writes so many elements. Records are found by both.
    pub fn new(name: &str, output: (DType, usize)) -> Self {
        let relative = match output.0 {
            DType::F64 => 1e-12,
            DType::F32 => 1e-5,
            DType::F16 => 4e-3,
            DType::Bf16 => 3e-2,
            DType::I32 => 0.0,
        };
        let name = name.chars().map(|c| if c.is_alphanumeric() { c } else { '_' }).collect();
        let (inputs, answer) = (Box::new(|_: &mut _| Vec::new()), Box::new(|_: &[Array]| Vec::new()));
        OwnKernel { name, output, inputs, answer, relative, work: Work::default() }
    }

    /// Draws fresh inputs.
    pub fn inputs(mut self, draw: impl Fn(&mut fastrand::Rng) -> Vec<Array> + Send + Sync + 'static) -> Self {
        self.inputs = Box::new(draw);
        self
    }

    /// The right answer to inputs, every element of the output in double precision.
    pub fn answer(mut self, right: impl Fn(&[Array]) -> Vec<f64> + Send + Sync + 'static) -> Self {
        self.answer = Box::new(right);
        self
    }

    /// How far from it a kernel may be, relative to the answer and to its largest element.
    pub fn tolerance(self, relative: f64) -> Self {
        OwnKernel { relative, ..self }
    }

    /// The useful work, for rates and the roofline.
    pub fn work(self, work: Work) -> Self {
        OwnKernel { work, ..self }
    }

    /// A tuner of this kernel on a device, and its one problem. `first` is the reference: the fallback.
    pub fn open<D: Device>(
        self,
        device: Arc<D>,
        first: OwnVariant<D>,
        others: Vec<OwnVariant<D>>,
        store: Arc<dyn Store>,
        settings: Settings,
    ) -> (Tuner<Own, D>, OwnProblem) {
        let kernel = Arc::new(self);
        let mut open = opened().lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|_, known| known.strong_count() > 0);
        open.insert(kernel.name.clone(), Arc::downgrade(&kernel));
        drop(open);
        let catalog = others.into_iter().fold(Catalog::new(Arc::new(first)), |c, other| c.with(Arc::new(other)));
        (Tuner::new(device, catalog, store, settings), OwnProblem(kernel))
    }
}

type Opened = Mutex<HashMap<String, Weak<OwnKernel>>>;

/// Kernels that are open in this process: a problem's text names one of them.
fn opened() -> &'static Opened {
    static OPEN: OnceLock<Opened> = OnceLock::new();
    OPEN.get_or_init(Opened::default)
}

/// One way to run it.
pub struct OwnVariant<D: Device> {
    id: String,
    source: SourceHash,
    space: Space,
    build: Box<Build<D>>,
}

impl<D: Device> OwnVariant<D> {
    /// A variant of an id. Nobody can look into a closure: `version` is to change with its code, so that records of other
    /// code are stale.
    pub fn new(
        id: &str,
        version: &str,
        space: Space,
        build: impl Fn(&Config, &D) -> Result<OwnLaunch<D>, Rejection> + Send + Sync + 'static,
    ) -> Self {
        OwnVariant { id: id.into(), source: SourceHash::of(&[id, version]), space, build: Box::new(build) }
    }
}

/// The operation of every kernel from closures.
pub struct Own;

/// One kernel's only problem.
#[derive(Clone)]
pub struct OwnProblem(Arc<OwnKernel>);

/// The buffers of one launch.
pub struct OwnArgs<'a, D: Device> {
    /// What it reads, as drawn.
    pub inputs: Vec<D::View<'a>>,
    /// What it writes.
    pub output: D::ViewMut<'a>,
}

impl fmt::Debug for OwnProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&Own::text(self))
    }
}
impl PartialEq for OwnProblem {
    fn eq(&self, other: &Self) -> bool {
        self.fields() == other.fields()
    }
}
impl Eq for OwnProblem {}
impl Hash for OwnProblem {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.name.hash(state);
    }
}

impl Problem for OwnProblem {
    const FIELDS: &'static [&'static str] = &["name", "len", "dtype"];

    fn fields(&self) -> Fields {
        let (dtype, len) = self.0.output;
        Fields::new().with("name", &self.0.name).with("len", len).with("dtype", dtype.name())
    }

    fn read(fields: &mut FieldReader) -> Result<Self, ProblemError> {
        let expected = "the name of a kernel that is open in this program";
        let name: String = fields.word_or("name", expected, String::new())?;
        let open = opened().lock().unwrap_or_else(PoisonError::into_inner).get(&name).and_then(Weak::upgrade);
        let problem = OwnProblem(open.ok_or_else(|| ProblemError::value("name", &name, expected))?);
        let len = fields.size("len")?;
        let dtype: String = fields.word_or("dtype", "the output's type", String::new())?;
        let (own_dtype, own_len) = problem.0.output;
        if len != own_len as u64 || dtype != own_dtype.name() {
            return Err(ProblemError::value("len", len, format!("{own_len} elements of {}", own_dtype.name())));
        }
        Ok(problem)
    }

    fn key_fields(&self, _: &Bucket) -> Fields {
        self.fields()
    }

    fn representative(&self, _: &Bucket) -> Self {
        self.clone()
    }

    fn work(&self) -> Work {
        self.0.work
    }

    /// Where no work is stated, nothing is known of the least time.
    fn floor(&self, ceilings: &Ceilings, cold: bool) -> Option<f64> {
        let stated = self.0.work != Work::default();
        stated.then(|| ceilings.floor(self.work(), self.dtype(), cold)).flatten()
    }

    fn dtype(&self) -> DType {
        self.0.output.0
    }
}

impl Op for Own {
    const NAME: &'static str = "own";
    type Problem = OwnProblem;
    type Args<'a, D: Device> = OwnArgs<'a, D>;

    fn draw(problem: &OwnProblem, rng: &mut fastrand::Rng) -> Vec<Array> {
        (problem.0.inputs)(rng)
    }

    fn output(problem: &OwnProblem) -> (DType, usize) {
        problem.0.output
    }

    fn answer(problem: &OwnProblem, inputs: &[Array]) -> Answer {
        let values = (problem.0.answer)(inputs);
        let largest = values.iter().filter(|v| v.is_finite()).fold(0.0, |m: f64, v| m.max(v.abs()));
        let relative = problem.0.relative;
        Answer { values, tolerance: Tolerance { relative, floor: relative * largest } }
    }

    fn bind<'a, D: Device>(_: &'a OwnProblem, inputs: Vec<D::View<'a>>, output: D::ViewMut<'a>) -> OwnArgs<'a, D> {
        OwnArgs { inputs, output }
    }
}

impl<D: Device> Variant<Own, D> for OwnVariant<D> {
    fn id(&self) -> &str {
        &self.id
    }

    fn source(&self) -> SourceHash {
        self.source.clone()
    }

    fn fit(&self, _: &OwnProblem, _: &D) -> Fit {
        Fit::HIGH
    }

    fn space(&self, _: &OwnProblem, _: &D) -> Space {
        self.space.clone()
    }

    fn build(&self, _: &OwnProblem, config: &Config, device: &D) -> Result<Box<dyn Kernel<Own, D>>, Rejection> {
        Ok(Box::new(Built((self.build)(config, device)?)))
    }
}

struct Built<D: Device>(OwnLaunch<D>);

impl<D: Device> Kernel<Own, D> for Built<D> {
    fn launch(&self, args: OwnArgs<'_, D>, queue: &D::Queue) -> Result<(), Rejection> {
        (self.0)(&args.inputs, args.output, queue)
    }
}
