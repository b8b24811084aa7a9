//! A kernel of the caller's own, from closures: what it is given, what is right, and how a config becomes something to
//! launch come in; a tuner goes out, so that verifying, racing, storing and dispatching are those of every operation.
//!
//! ```
//! use warplap::core::space::{Axis, Space};
//! use warplap::core::{arg::Arg, array::Array, progress::Silent};
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
//!     Ok(Box::new(move |args: &mut [Arg<'_, Cpu>], _: &()| {
//!         if let (Slice::F32(x), SliceMut::F32(y)) = (args[0].read()?, args[1].write()?) {
//!             for (y, x) in y.chunks_mut(chunk).zip(x.chunks(chunk)) {
//!                 y.iter_mut().zip(x).for_each(|(y, x)| *y = 2.0 * x);
//!             }
//!         }
//!         Ok(())
//!     }))
//! });
//! let settings = Settings { budget: Budget { seconds: 0.2, ..Budget::default() }, ..Settings::default() };
//! let store = warplap::core::store::Store::memory();
//! let (tuner, problem) = twice.open(Cpu::with_threads(1).into(), chunked, Vec::new(), store, settings);
//! println!("{}", tuner.tune(&problem, &Silent)?.edition.verdict.winner);
//! # Ok::<(), warplap::Error>(())
//! ```
//!
//! A kernel with several outputs, with memory it changes in place or with numbers by value states its slots:
//!
//! ```
//! use warplap::DType;
//! use warplap::core::slot::{Signature, Slot};
//! use warplap::own::OwnKernel;
//!
//! let slots = vec![
//!     Slot::input("x", DType::F32, &[1000]),
//!     Slot::in_out("sums", DType::F32, &[1000]),
//!     Slot::output("negative", DType::I32, &[1000]),
//! ];
//! let kernel = OwnKernel::of("gather", Signature(slots)).answers(|inputs| {
//!     let (x, sums) = (inputs[0].to_f64(), inputs[1].to_f64());
//!     let negative = x.iter().map(|x| f64::from(u8::from(*x < 0.0))).collect();
//!     vec![x.iter().zip(sums).map(|(x, sum)| sum + x).collect(), negative]
//! });
//! ```

use std::collections::HashMap;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use warplap_core::arg::Arg;
use warplap_core::array::Array;
use warplap_core::bucket::Bucket;
use warplap_core::candidate::SourceHash;
use warplap_core::catalog::Catalog;
use warplap_core::device::Device;
use warplap_core::dtype::DType;
use warplap_core::engine::Tuner;
use warplap_core::op::{Answer, Op, drawn};
use warplap_core::problem::{FieldReader, Fields, Problem, ProblemError};
use warplap_core::rejection::Rejection;
use warplap_core::roofline::{Ceilings, Work};
use warplap_core::settings::Settings;
use warplap_core::slot::{Signature, Slot};
use warplap_core::space::{Config, Space};
use warplap_core::store::Store;
use warplap_core::tolerance::Tolerance;
use warplap_core::variant::{Fit, Kernel, Variant};

type Draw = dyn Fn(&mut fastrand::Rng) -> Vec<Array> + Send + Sync;
type Answering = dyn Fn(&[Array]) -> Vec<Vec<f64>> + Send + Sync;

/// What one launch does: an argument for each slot, and the queue it is to be put on.
pub type OwnLaunch<D> = Box<dyn Fn(&mut [Arg<'_, D>], &<D as Device>::Queue) -> Result<(), Rejection> + Send + Sync>;

type Build<D> = dyn Fn(&Config, &D) -> Result<OwnLaunch<D>, Rejection> + Send + Sync;

/// A kernel of the caller's own: its slots, what they are filled with, and the right answer.
pub struct OwnKernel {
    name: String,
    slots: Signature,
    // The slots in short, where the caller stated them.
    stated: String,
    draw: Option<Box<Draw>>,
    answers: Box<Answering>,
    relative: Option<f64>,
    work: Work,
}

impl OwnKernel {
    /// A kernel of a name (letters, digits and underscores) that writes so many elements. Records are found by both.
    /// Its slots are what [`inputs`](Self::inputs) draws, in order, and then the output.
    pub fn new(name: &str, output: (DType, usize)) -> Self {
        let (dtype, len) = output;
        let slots = Signature(vec![Slot::output("output", dtype, &[len as u64])]);
        OwnKernel { stated: String::new(), ..OwnKernel::of(name, slots) }
    }

    /// A kernel of a name that takes these slots. Records are found by both. What is read is drawn uniformly, unless
    /// [`draw`](Self::draw) says otherwise.
    pub fn of(name: &str, slots: Signature) -> Self {
        let name = name.chars().map(|c| if c.is_alphanumeric() { c } else { '_' }).collect();
        let stated = SourceHash::of(&[&format!("{slots:?}")]).0;
        let answers = Box::new(|_: &[Array]| Vec::new());
        OwnKernel { name, slots, stated, draw: None, answers, relative: None, work: Work::default() }
    }

    /// Draws fresh inputs, each a slot of its own before the output: always as many, of the same types and lengths.
    pub fn inputs(mut self, draw: impl Fn(&mut fastrand::Rng) -> Vec<Array> + Send + Sync + 'static) -> Self {
        let slot = |(i, a): (usize, &Array)| Slot::input(format!("input {i}"), a.dtype(), &[a.len() as u64]);
        let first = draw(&mut fastrand::Rng::with_seed(0));
        let rest = Signature(self.slots.0.split_off(0));
        self.slots.0.extend(first.iter().enumerate().map(slot));
        self.slots.0.extend_from_slice(rest.slots());
        self.draw(move |rng| [draw(rng), drawn(&rest, rng)].concat())
    }

    /// Draws what the slots are filled with: one array a slot, [`Array::none`] where nothing is read, for a number an
    /// array of one.
    pub fn draw(mut self, draw: impl Fn(&mut fastrand::Rng) -> Vec<Array> + Send + Sync + 'static) -> Self {
        self.draw = Some(Box::new(draw));
        self
    }

    /// The right answer to what was drawn, every element of the output in double precision.
    pub fn answer(self, right: impl Fn(&[Array]) -> Vec<f64> + Send + Sync + 'static) -> Self {
        self.answers(move |inputs| vec![right(inputs)])
    }

    /// The right answers to what was drawn, one for each slot that is written, in order.
    pub fn answers(mut self, right: impl Fn(&[Array]) -> Vec<Vec<f64>> + Send + Sync + 'static) -> Self {
        self.answers = Box::new(right);
        self
    }

    /// How far from it a kernel may be, relative to the answer and to its largest element.
    pub fn tolerance(self, relative: f64) -> Self {
        OwnKernel { relative: Some(relative), ..self }
    }

    /// The type and length of the first slot that is written.
    fn output(&self) -> (DType, usize) {
        self.slots.written().next().map_or((DType::F32, 0), |slot| (slot.dtype, slot.len()))
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
        store: Store,
        settings: Settings,
    ) -> (Tuner<Closures, D>, OwnProblem) {
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
    /// A variant of an id. Nobody can look into a closure: `version` is to change with its code, so that records of
    /// other code are stale.
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
pub struct Closures;

/// One kernel's only problem.
#[derive(Clone)]
pub struct OwnProblem(Arc<OwnKernel>);

impl fmt::Debug for OwnProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&Closures::text(self))
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
    type Op = Closures;

    const FIELDS: &'static [&'static str] = &["name", "len", "dtype", "slots"];

    fn fields(&self) -> Fields {
        let ((dtype, len), kernel) = (self.0.output(), &self.0);
        let fields = Fields::new().with("name", &kernel.name).with("len", len).with("dtype", dtype.name());
        fields.with_unless("slots", kernel.stated.as_str(), "")
    }

    fn read(fields: &mut FieldReader) -> Result<Self, ProblemError> {
        let expected = "the name of a kernel that is open in this program";
        let name: String = fields.word_or("name", expected, String::new())?;
        let open = opened().lock().unwrap_or_else(PoisonError::into_inner).get(&name).and_then(Weak::upgrade);
        let problem = OwnProblem(open.ok_or_else(|| ProblemError::value("name", &name, expected))?);
        for (field, own) in problem.fields().0.into_iter().skip(1) {
            let expected = format!("{own}, as the kernel that is open has it");
            let result: String = fields.word_or(field, &expected, String::new())?;
            if result != own {
                return Err(ProblemError::value(field, result, expected));
            }
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
        self.0.output().0
    }
}

impl Op for Closures {
    const NAME: &'static str = "own";
    type Problem = OwnProblem;

    fn signature(problem: &OwnProblem) -> Signature {
        problem.0.slots.clone()
    }

    fn draw(problem: &OwnProblem, rng: &mut fastrand::Rng) -> Vec<Array> {
        match &problem.0.draw {
            Some(draw) => draw(rng),
            None => drawn(&problem.0.slots, rng),
        }
    }

    fn answer(problem: &OwnProblem, inputs: &[Array]) -> Vec<Answer> {
        let answer = |(slot, values): (&Slot, Vec<f64>)| {
            let largest = values.iter().filter(|v| v.is_finite()).fold(0.0, |m: f64, v| m.max(v.abs()));
            let relative = problem.0.relative.unwrap_or_else(|| slot.dtype.leeway());
            Answer { values, tolerance: Tolerance { relative, floor: relative * largest } }
        };
        problem.0.slots.written().zip((problem.0.answers)(inputs)).map(answer).collect()
    }
}

impl<D: Device> Variant<Closures, D> for OwnVariant<D> {
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

    fn build(&self, _: &OwnProblem, config: &Config, device: &D) -> Result<Box<dyn Kernel<D>>, Rejection> {
        Ok(Box::new(Built((self.build)(config, device)?)))
    }
}

struct Built<D: Device>(OwnLaunch<D>);

impl<D: Device> Kernel<D> for Built<D> {
    fn launch(&self, args: &mut [Arg<'_, D>], queue: &D::Queue) -> Result<(), Rejection> {
        (self.0)(args, queue)
    }
}

#[cfg(test)]
mod tests {
    use warplap_core::candidate::Outcome;
    use warplap_core::progress::Silent;
    use warplap_core::settings::Budget;
    use warplap_core::space::Axis;
    use warplap_core::store::Store;
    use warplap_cpu::{Cpu, Slice, SliceMut};

    use super::*;

    #[test]
    fn a_kernel_of_several_slots_is_proved_in_each_that_it_writes() {
        let slots = vec![
            Slot::input("x", DType::F32, &[100]),
            Slot::in_out("sums", DType::F64, &[100]),
            Slot::scalar("factor", DType::F64),
            Slot::output("signs", DType::I32, &[100]),
        ];
        let kernel = OwnKernel::of("gather", Signature(slots)).answers(|inputs| {
            let (x, sums, factor) = (inputs[0].to_f64(), inputs[1].to_f64(), inputs[2].at(0));
            let signs = x.iter().map(|x| f64::from(u8::from(*x < 0.0))).collect();
            vec![x.iter().zip(sums).map(|(x, sum)| sum + factor * x).collect(), signs]
        });
        let space = Space::single().axis(Axis::ints("WRONG", [0, 1, 2]));
        let variant = OwnVariant::<Cpu>::new("plain", "1", space, |config, _| {
            let wrong = config.int("WRONG");
            Ok(Box::new(move |args: &mut [Arg<'_, Cpu>], _: &()| {
                let factor = args[2].scalar()?.real();
                let buffers = (args[0].read()?, args[1].write()?, args[3].write()?);
                if let (Slice::F32(x), SliceMut::F64(sums), SliceMut::I32(signs)) = buffers {
                    for (i, x) in x.iter().enumerate() {
                        sums[i] += factor * f64::from(*x) + f64::from(u8::from(wrong == Some(1)));
                        signs[i] = i32::from(*x < 0.0) + i32::from(wrong == Some(2));
                    }
                }
                Ok(())
            }))
        });
        let settings = Settings { budget: Budget { seconds: 1.0, ..Budget::default() }, ..Settings::default() };
        let device = Arc::new(Cpu::with_threads(1));
        let (tuner, problem) = kernel.open(device, variant, Vec::new(), Store::memory(), settings);
        assert_eq!(Closures::parse(&Closures::text(&problem)), Ok(problem.clone()));
        let tuned = tuner.tune(&problem, &Silent).unwrap();
        for trial in &tuned.edition.trials {
            let wrong = matches!(trial.outcome, Outcome::Rejected(Rejection::WrongAnswer { .. }));
            assert_eq!(wrong, trial.candidate.config.int("WRONG") != Some(0), "{trial:?}");
        }
        assert_eq!(tuned.edition.trials.len(), 3);
    }
}
