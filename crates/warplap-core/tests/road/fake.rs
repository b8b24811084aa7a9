//! A fake operation on a fake device: memory is a vector, the clock is a table of what each variant takes.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use warplap_core::arg::Arg;
use warplap_core::array::Array;
use warplap_core::bucket::Bucket;
use warplap_core::candidate::SourceHash;
use warplap_core::device::{Bounds, Compared, Device, Launch, Limits, Span};
use warplap_core::dtype::DType;
use warplap_core::error::Error;
use warplap_core::fingerprint::Fingerprint;
use warplap_core::measure::{Lap, Policy};
use warplap_core::op::{Answer, Op};
use warplap_core::oracle::{FarAnswer, Inputs, Oracle};
use warplap_core::problem::{FieldReader, Fields, Problem, ProblemError};
use warplap_core::rejection::Rejection;
use warplap_core::roofline::{Ceilings, Work};
use warplap_core::sandbox::{Passed, SandboxRequest};
use warplap_core::slot::{Signature, Slot};
use warplap_core::space::{Axis, Config, Rule, Space};
use warplap_core::store::Store;
use warplap_core::tolerance::Tolerance;
use warplap_core::variant::{Fit, Kernel, Needs, Variant};
use warplap_core::verify::poison_of;

/// y = 2 x + step over n elements.
pub struct Scale;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ScaleProblem {
    pub n: u64,
    pub step: u64,
    pub dtype: DType,
    pub label: String,
}

pub fn problem(n: u64) -> ScaleProblem {
    ScaleProblem { n, step: 1, dtype: DType::F32, label: String::new() }
}

impl Problem for ScaleProblem {
    type Op = Scale;

    const FIELDS: &'static [&'static str] = &["n", "step", "dtype", "label"];

    fn fields(&self) -> Fields {
        Fields::new().with("n", self.n).with("step", self.step).with("dtype", self.dtype).with_unless(
            "label",
            self.label.clone(),
            String::new(),
        )
    }

    fn read(fields: &mut FieldReader) -> Result<Self, ProblemError> {
        Ok(ScaleProblem {
            n: fields.size("n")?,
            step: fields.size_or("step", 1)?,
            dtype: fields.word_or("dtype", "a type", DType::F32)?,
            label: fields.word_or("label", "a text", String::new())?,
        })
    }

    fn key_fields(&self, bucket: &Bucket) -> Fields {
        self.representative(bucket).fields()
    }

    fn representative(&self, bucket: &Bucket) -> Self {
        ScaleProblem { n: bucket.round("n", self.n), ..self.clone() }
    }

    fn work(&self) -> Work {
        Work { flops: self.n as f64, bytes: 0.0 }
    }

    fn dtype(&self) -> DType {
        self.dtype
    }
}

/// x.
pub const X: usize = 0;
/// y.
pub const Y: usize = 1;

impl Op for Scale {
    const NAME: &'static str = "scale";
    type Problem = ScaleProblem;

    fn signature(p: &ScaleProblem) -> Signature {
        Signature(vec![Slot::input("x", p.dtype, &[p.n]), Slot::output("y", p.dtype, &[p.n])])
    }

    fn answer(p: &ScaleProblem, inputs: &[Array]) -> Vec<Answer> {
        let values = inputs[X].to_f64().into_iter().map(|x| 2.0 * x + p.step as f64).collect();
        vec![Answer { values, tolerance: Tolerance::dot(p.dtype, DType::F32, 2, 3.0) }]
    }
}

/// The arguments of one launch on a caller's memory.
pub fn args<'a>(p: &ScaleProblem, x: &'a [f64], y: &'a mut [f64]) -> [Arg<'a, Fake>; 2] {
    [Arg::Read(In::new(p.dtype, x)), Arg::Write(Out::new(p.dtype, y))]
}

/// A launch tells its meter what it took by the table.
#[derive(Default)]
pub struct Meter(pub Mutex<f64>);

/// Memory in double precision, rounded to its type when it is read back.
pub struct Buffer {
    dtype: DType,
    values: Vec<f64>,
}

/// Memory to read.
#[derive(Clone, Copy)]
pub struct In<'a> {
    pub dtype: DType,
    pub values: &'a [f64],
}

impl<'a> In<'a> {
    pub fn new(dtype: DType, values: &'a [f64]) -> Self {
        In { dtype, values }
    }
}

impl Span for In<'_> {
    fn dtype(&self) -> DType {
        self.dtype
    }
    fn len(&self) -> usize {
        self.values.len()
    }
}

/// Memory to write: all of it can be reached, as by a wild pointer.
pub struct Out<'a> {
    pub dtype: DType,
    pub all: &'a mut [f64],
    pub at: Range<usize>,
}

impl<'a> Out<'a> {
    pub fn new(dtype: DType, all: &'a mut [f64]) -> Self {
        let at = 0..all.len();
        Out { dtype, all, at }
    }

    /// Writes this many elements before (-) or after its end.
    pub fn stray(&mut self, by: isize) {
        let edge = if by < 0 { self.at.start } else { self.at.end - 1 };
        self.all[edge.wrapping_add_signed(by)] = 3.0;
    }
}

impl Span for Out<'_> {
    fn dtype(&self) -> DType {
        self.dtype
    }
    fn len(&self) -> usize {
        self.at.len()
    }
}

pub type Worker = fn(&SandboxRequest) -> Option<Result<Passed, Rejection>>;

/// A device whose clock is a table.
pub struct Fake {
    fingerprint: Fingerprint,
    ceilings: Mutex<Option<Arc<Ceilings>>>,
    /// What measuring again gives.
    pub better: Mutex<Option<Ceilings>>,
    pub busy: Mutex<Option<String>>,
    pub contended: AtomicBool,
    /// Uploads fail.
    pub full: AtomicBool,
    /// What a worker says of a candidate.
    pub worker: Mutex<Option<Worker>>,
    /// Threads that compile ahead.
    pub builders: AtomicU64,
    /// Relative noise of a sample.
    noise: f64,
    rng: Mutex<fastrand::Rng>,
    queue: Meter,
    pub launches: AtomicU64,
    pub laps: AtomicU64,
    pub uploads: AtomicU64,
    pub downloads: AtomicU64,
    /// From its n-th comparison on somebody has written over the right answer.
    pub spoiled_from: AtomicU64,
    compared: AtomicU64,
    pub remeasured: AtomicU64,
    /// Simulated seconds measured so far.
    pub now: Mutex<f64>,
}

fn ceilings(rate: f64) -> Ceilings {
    Ceilings { flops: DType::ALL.map(|d| (d, rate)).into(), ..Ceilings::default() }
}

impl Fake {
    pub fn new() -> Fake {
        Fake::named("Fake 1", "1.0")
    }

    pub fn named(model: &str, driver: &str) -> Fake {
        Fake {
            fingerprint: Fingerprint::new([("model", model.into())], [("driver", driver.into())]),
            ceilings: Mutex::default(),
            better: Mutex::default(),
            busy: Mutex::default(),
            contended: false.into(),
            full: false.into(),
            worker: Mutex::default(),
            builders: 0.into(),
            noise: 0.002,
            rng: Mutex::new(fastrand::Rng::with_seed(7)),
            queue: Meter::default(),
            launches: 0.into(),
            laps: 0.into(),
            uploads: 0.into(),
            downloads: 0.into(),
            spoiled_from: u64::MAX.into(),
            compared: 0.into(),
            remeasured: 0.into(),
            now: Mutex::default(),
        }
    }

    /// Elements per second at best.
    pub fn with_rate(self, rate: f64) -> Fake {
        *self.ceilings.lock().unwrap() = Some(Arc::new(ceilings(rate)));
        self
    }

    /// Elements per second that measuring again will find.
    pub fn with_better_rate(self, rate: f64) -> Fake {
        *self.better.lock().unwrap() = Some(ceilings(rate));
        self
    }

    pub fn counts(&self) -> [u64; 3] {
        [&self.launches, &self.laps, &self.uploads].map(|c| c.load(Ordering::SeqCst))
    }
}

struct FakeLap<'k> {
    device: &'k Fake,
    launch: Launch<'k, Fake>,
    sets: usize,
    next: usize,
}

impl Lap for FakeLap<'_> {
    fn run(&mut self) -> Result<f64, Rejection> {
        self.device.laps.fetch_add(1, Ordering::SeqCst);
        let meter = Meter::default();
        (self.launch)(&meter, self.next)?;
        self.next = (self.next + 1) % self.sets;
        let seconds = *meter.0.lock().unwrap();
        let mut rng = self.device.rng.lock().unwrap();
        let normal = (-2.0 * (1.0 - rng.f64()).ln()).sqrt() * (std::f64::consts::TAU * rng.f64()).cos();
        *self.device.now.lock().unwrap() += seconds;
        Ok(seconds * (1.0 + self.device.noise * normal))
    }

    fn batch(&self) -> u32 {
        1
    }
}

impl Device for Fake {
    const KIND: &'static str = "fake";
    // Host seconds mean nothing here.
    const LAUNCH_IS_CALL: bool = false;
    type Buffer = Buffer;
    type View<'a> = In<'a>;
    type ViewMut<'a> = Out<'a>;
    type Queue = Meter;

    fn fingerprint(&self) -> &Fingerprint {
        &self.fingerprint
    }
    fn limits(&self) -> Limits {
        Limits { threads: 4, workspace: 1000, shared_memory: 0, registers: 0 }
    }
    fn ceilings(&self) -> Option<Arc<Ceilings>> {
        self.ceilings.lock().unwrap().clone()
    }
    fn measure_again(&self, _: &Store) {
        self.remeasured.fetch_add(1, Ordering::SeqCst);
        if let Some(better) = &*self.better.lock().unwrap() {
            *self.ceilings.lock().unwrap() = Some(Arc::new(better.clone()));
        }
    }
    fn queue(&self) -> &Meter {
        &self.queue
    }
    fn upload(&self, array: &Array) -> Result<Buffer, Error> {
        self.uploads.fetch_add(1, Ordering::SeqCst);
        if self.full.load(Ordering::SeqCst) {
            return Err(Error::Device("out of memory".into()));
        }
        Ok(Buffer { dtype: array.dtype(), values: array.to_f64() })
    }
    fn write(&self, buffer: &mut Buffer, array: &Array) -> Result<(), Error> {
        buffer.values.copy_from_slice(&array.to_f64());
        Ok(())
    }
    fn copy(&self, to: &mut Buffer, from: &Buffer) -> Result<(), Error> {
        to.values.copy_from_slice(&from.values);
        Ok(())
    }
    fn download(&self, buffer: &Buffer) -> Result<Array, Error> {
        self.downloads.fetch_add(1, Ordering::SeqCst);
        Ok(Array::from_f64(buffer.dtype, buffer.values.iter().copied()))
    }
    fn compare(&self, output: &Buffer, right: &Buffer, bounds: Bounds) -> Result<Compared, Error> {
        let (guard, len) = (bounds.guard, right.values.len());
        let got = Array::from_f64(output.dtype, output.values.iter().copied()).to_f64();
        let poison = poison_of(output.dtype);
        let is_poison = |v: f64| v == poison || (v.is_nan() && poison.is_nan());
        let band = got[..guard].iter().chain(&got[guard + len..]).all(|v| *v == bounds.guard_value);
        let share = |(got, right): (&f64, &f64)| match (got - right).abs() / bounds.tolerance.allowed(*right) {
            _ if got == right || (right.is_nan() && is_poison(*got)) => 0.0,
            share if share.is_nan() => f64::INFINITY,
            share => share,
        };
        let worst = got[guard..guard + len].iter().zip(&right.values).map(share).fold(0.0, f64::max);
        let spoiled = self.compared.fetch_add(1, Ordering::SeqCst) + 1 >= self.spoiled_from.load(Ordering::SeqCst);
        let seal = self.seal(right)? ^ u64::from(spoiled);
        Ok(Compared { share: if band { worst } else { f64::INFINITY }, seal })
    }
    fn seal(&self, buffer: &Buffer) -> Result<u64, Error> {
        Ok(buffer.values.iter().fold(7, |seal, v| (seal ^ v.to_bits()).wrapping_mul(0x9e37_79b9_7f4a_7c15)))
    }
    fn view<'a>(&self, buffer: &'a Buffer, elements: Range<usize>) -> In<'a> {
        In::new(buffer.dtype, &buffer.values[elements])
    }
    fn view_mut<'a>(&self, buffer: &'a mut Buffer, elements: Range<usize>) -> Out<'a> {
        Out { dtype: buffer.dtype, all: &mut buffer.values, at: elements }
    }
    fn sets(&self, _: Policy, _: usize) -> usize {
        2
    }
    fn lap<'k>(&'k self, _: Policy, sets: usize, launch: Launch<'k, Self>) -> Result<Box<dyn Lap + 'k>, Rejection> {
        Ok(Box::new(FakeLap { device: self, launch, sets, next: 0 }))
    }
    fn busy(&self, _queue: &Self::Queue) -> Option<String> {
        self.busy.lock().unwrap().clone()
    }
    fn sandbox(&self, request: &SandboxRequest) -> Option<Result<Passed, Rejection>> {
        let worker = *self.worker.lock().unwrap();
        worker.and_then(|worker| worker(request))
    }
    fn sandboxes(&self) -> bool {
        self.worker.lock().unwrap().is_some()
    }
    fn builders(&self) -> usize {
        self.builders.load(Ordering::SeqCst) as usize
    }
    fn contended(&self) -> bool {
        self.contended.load(Ordering::SeqCst)
    }
    fn supports(&self, _: DType) -> bool {
        true
    }
}

/// Gives right answers where the inputs are.
pub struct Seer;

impl<O: Op> Oracle<O, Fake> for Seer {
    fn answer(&self, p: &O::Problem, inputs: &Inputs<'_, Fake>, _: &Fake) -> Result<Vec<FarAnswer<Fake>>, Error> {
        let array = |(slot, input): (&Slot, &Option<In<'_>>)| match input {
            Some(v) => Ok(Array::from_f64(v.dtype, v.values.iter().copied())),
            None if slot.is_read() => Err(Error::Device(format!("'{}' is not on the device", slot.name))),
            None => Ok(Array::none()),
        };
        let inputs: Vec<Array> = O::signature(p).slots().iter().zip(inputs).map(array).collect::<Result<_, Error>>()?;
        let far = |Answer { values, tolerance }| FarAnswer { values: Buffer { dtype: DType::F64, values }, tolerance };
        Ok(O::answer(p, &inputs).into_iter().map(far).collect())
    }
}

/// What a fake variant does when it is used.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Act {
    Right,
    CompileFails,
    /// Takes so many milliseconds to compile.
    CompilesSlowly(u64),
    BuildFails,
    BuildPanics,
    LaunchFails,
    LaunchPanics,
    /// Refuses its n-th launch and all later ones.
    FailsFrom(u64),
    /// Panics at its n-th launch.
    PanicsFrom(u64),
    /// Adds this to each element.
    OffBy(f64),
    /// Adds one to each element from its n-th launch on.
    WrongFrom(u64),
    /// Gives this in its last element.
    LastIs(f64),
    /// Leaves every other element as it was.
    LeavesHoles,
    /// Writes this many elements before (-) or after its output.
    Strays(isize),
    /// Gives the output of its first launch again and again.
    RemembersFirst,
    /// Gives the output of the first launch with this address again.
    RemembersAddress,
    /// Does nothing after its n-th launch.
    LazyAfter(u64),
    /// Panics when it is asked for its workspace.
    WorkspacePanics,
}

/// Where a fake variant panics before it is ever built.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Panics {
    Fit,
    Space,
    Rule,
    Source,
    Needs,
    Floor,
}

/// A variant by the table.
#[derive(Clone)]
pub struct Row {
    pub id: String,
    pub source: String,
    pub fit: Fit,
    /// Seconds by the value of its axis `i`; the first is the default.
    pub seconds: Vec<f64>,
    pub act: Act,
    pub needs: Needs,
    pub panics: Option<Panics>,
    /// It does only sizes that this divides.
    pub multiple: u64,
    /// What a launch really takes.
    pub real: Duration,
    pub count: Arc<Count>,
}

/// What was done with a variant.
#[derive(Default, Debug)]
pub struct Count {
    pub builds: AtomicU64,
    pub launches: AtomicU64,
}

impl Count {
    pub fn builds(&self) -> u64 {
        self.builds.load(Ordering::SeqCst)
    }
    pub fn launches(&self) -> u64 {
        self.launches.load(Ordering::SeqCst)
    }
}

/// A right variant that takes so many seconds.
pub fn row(id: &str, seconds: f64) -> Row {
    Row {
        id: id.into(),
        source: "1".into(),
        fit: Fit::HIGH,
        seconds: vec![seconds],
        act: Act::Right,
        needs: Needs::default(),
        panics: None,
        multiple: 1,
        real: Duration::ZERO,
        count: Arc::default(),
    }
}

impl Row {
    pub fn act(self, act: Act) -> Row {
        Row { act, ..self }
    }
    pub fn fit(self, fit: Fit) -> Row {
        Row { fit, ..self }
    }
    pub fn source(self, source: &str) -> Row {
        Row { source: source.into(), ..self }
    }
    pub fn configs(self, seconds: &[f64]) -> Row {
        Row { seconds: seconds.to_vec(), ..self }
    }
    pub fn panics(self, at: Panics) -> Row {
        Row { panics: Some(at), ..self }
    }
    pub fn real(self, micros: u64) -> Row {
        Row { real: Duration::from_micros(micros), ..self }
    }
    pub fn multiple(self, multiple: u64) -> Row {
        Row { multiple, ..self }
    }
}

impl Variant<Scale, Fake> for Row {
    fn id(&self) -> &str {
        &self.id
    }

    fn source(&self) -> SourceHash {
        assert!(self.panics != Some(Panics::Source), "source");
        SourceHash::of(&[&self.id, &self.source])
    }

    fn fit(&self, p: &ScaleProblem, _: &Fake) -> Fit {
        assert!(self.panics != Some(Panics::Fit), "fit");
        if p.n.is_multiple_of(self.multiple) { self.fit.clone() } else { Fit::aside("an odd size") }
    }

    fn space(&self, _: &ScaleProblem, _: &Fake) -> Space {
        assert!(self.panics != Some(Panics::Space), "space");
        let space = Space::single().axis(Axis::ints("i", 0..self.seconds.len() as i64));
        match self.panics {
            Some(Panics::Rule) => space.rule(Rule::on("panics", &["i"], |_| panic!("rule"))),
            _ => space,
        }
    }

    fn needs(&self, _: &ScaleProblem, _: &Config) -> Needs {
        assert!(self.panics != Some(Panics::Needs), "needs");
        self.needs.clone()
    }

    fn floor(&self, _: &ScaleProblem, _: &Config, _: &Ceilings) -> Option<f64> {
        assert!(self.panics != Some(Panics::Floor), "floor");
        None
    }

    fn compile(&self, _: &ScaleProblem, _: &Config, _: &Fake) -> Result<(), Rejection> {
        match self.act {
            Act::CompileFails => Err(Rejection::DoesNotBuild { reason: "the compiler says no".into() }),
            Act::BuildPanics => panic!("the compiler panics"),
            Act::CompilesSlowly(ms) => {
                std::thread::sleep(std::time::Duration::from_millis(ms));
                Ok(())
            }
            _ => Ok(()),
        }
    }
    fn build(&self, p: &ScaleProblem, config: &Config, _: &Fake) -> Result<Box<dyn Kernel<Fake>>, Rejection> {
        self.count.builds.fetch_add(1, Ordering::SeqCst);
        match self.act {
            Act::BuildFails => return Err(Rejection::DoesNotBuild { reason: "by the table".into() }),
            Act::BuildPanics => panic!("build"),
            _ => {}
        }
        // Nothing is built that the space does not hold: this would be the panic of a record believed blindly.
        let seconds = self.seconds[config.size("i").expect("a config of the space")];
        let (step, act, real, count) = (p.step as f64, self.act, self.real, self.count.clone());
        Ok(Box::new(Built { step, act, real, seconds, count, launched: 0.into(), first: Mutex::default() }))
    }
}

struct Built {
    step: f64,
    act: Act,
    real: Duration,
    seconds: f64,
    count: Arc<Count>,
    launched: AtomicU64,
    first: Mutex<Vec<(usize, Vec<f64>)>>,
}

impl Kernel<Fake> for Built {
    fn launch(&self, args: &mut [Arg<'_, Fake>], queue: &Meter) -> Result<(), Rejection> {
        self.count.launches.fetch_add(1, Ordering::SeqCst);
        let nth = self.launched.fetch_add(1, Ordering::SeqCst) + 1;
        if !self.real.is_zero() {
            std::thread::sleep(self.real);
        }
        *queue.0.lock().unwrap() = self.seconds;
        let refused = || Err(Rejection::LaunchFailed { reason: "by the table".into() });
        let (x, mut y) = (args[X].read()?.values, args[Y].write()?);
        let mut right: Vec<f64> = x.iter().map(|x| 2.0 * x + self.step).collect();
        match self.act {
            Act::LaunchFails => return refused(),
            Act::LaunchPanics => panic!("launch"),
            Act::FailsFrom(n) if nth >= n => return refused(),
            Act::PanicsFrom(n) if nth >= n => panic!("launch {n}"),
            Act::OffBy(error) => right.iter_mut().for_each(|y| *y += error),
            Act::WrongFrom(n) if nth >= n => right.iter_mut().for_each(|y| *y += 1.0),
            Act::LastIs(value) => *right.last_mut().unwrap() = value,
            Act::LeavesHoles => right.iter_mut().step_by(2).for_each(|y| *y = f64::NAN),
            Act::LazyAfter(n) if nth > n => return Ok(()),
            Act::RemembersFirst => {
                let mut first = self.first.lock().unwrap();
                if first.is_empty() {
                    first.push((0, right.clone()));
                }
                right.clone_from(&first[0].1);
            }
            Act::RemembersAddress => {
                let (address, mut first) = (x.as_ptr() as usize, self.first.lock().unwrap());
                match first.iter().find(|(a, _)| *a == address) {
                    Some((_, known)) => right.clone_from(known),
                    None => first.push((address, right.clone())),
                }
            }
            Act::Strays(by) => y.stray(by),
            _ => {}
        }
        y.all[y.at].copy_from_slice(&right);
        Ok(())
    }

    fn workspace(&self) -> u64 {
        assert!(self.act != Act::WorkspacePanics, "workspace");
        0
    }
}
