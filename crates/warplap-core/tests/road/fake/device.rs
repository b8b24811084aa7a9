//! A fake device: memory is a vector, the clock is a table of what each variant takes.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use warplap_core::array::Array;
use warplap_core::device::{Bounds, Compared, Device, Launch, Limits, Span};
use warplap_core::dtype::DType;
use warplap_core::error::Error;
use warplap_core::fingerprint::Fingerprint;
use warplap_core::measure::{Lap, Policy};
use warplap_core::perturb_inputs::PerturbedSpot;
use warplap_core::rejection::Rejection;
use warplap_core::roofline::Ceilings;
use warplap_core::sandbox::{Passed, SandboxRequest};
use warplap_core::store::Store;
use warplap_core::verify::poison_of;

use super::mood::NoisyMachine;

/// A launch tells its meter what it took by the table.
#[derive(Default)]
pub struct Meter(pub Mutex<f64>);

/// Memory in double precision, rounded to its type when it is read back.
pub struct Buffer {
    dtype: DType,
    values: Vec<f64>,
}

impl Buffer {
    pub fn new(dtype: DType, values: Vec<f64>) -> Self {
        Buffer { dtype, values }
    }
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
    /// What nobody can exceed; what was measured where nothing is said.
    pub sheet: Mutex<Option<Arc<Ceilings>>>,
    /// What measuring again gives.
    pub better: Mutex<Option<Ceilings>>,
    pub busy: Mutex<Option<String>>,
    pub contended: AtomicBool,
    /// Seconds that others take between two questions, and how often it was asked.
    pub thieves: AtomicU64,
    asked: AtomicU64,
    /// How far a time in this process is from that in the next.
    pub scatter: f64,
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
    /// What the machine does to its launches, where it is not just a little noise.
    mood: Mutex<Option<NoisyMachine>>,
}

fn ceilings(rate: f64) -> Ceilings {
    Ceilings { flops: DType::ALL.map(|d| (d, rate)).into(), ..Ceilings::default() }
}

impl Fake {
    pub fn new() -> Fake {
        Fake::named("Fake 1", "1.0")
    }

    /// This device with a library of the program that races on it.
    pub fn beside(mut self, name: &str, version: &str) -> Fake {
        self.fingerprint.libraries.insert(name.into(), version.into());
        self
    }

    pub fn named(model: &str, driver: &str) -> Fake {
        Fake {
            fingerprint: Fingerprint::new([("model", model.into())], [("driver", driver.into())]),
            ceilings: Mutex::default(),
            sheet: Mutex::default(),
            better: Mutex::default(),
            busy: Mutex::default(),
            contended: false.into(),
            thieves: 0.into(),
            asked: 0.into(),
            scatter: 0.0,
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
            mood: Mutex::default(),
        }
    }

    /// A device on a machine with moods.
    pub fn in_mood(self, mood: NoisyMachine) -> Fake {
        *self.mood.lock().unwrap() = Some(mood);
        self
    }

    /// Elements per second at best.
    pub fn with_rate(self, rate: f64) -> Fake {
        *self.ceilings.lock().unwrap() = Some(Arc::new(ceilings(rate)));
        self
    }

    /// Elements per second that its data sheet says.
    pub fn with_data_sheet(self, rate: f64) -> Fake {
        *self.sheet.lock().unwrap() = Some(Arc::new(ceilings(rate)));
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
        if let Some(mood) = &mut *self.device.mood.lock().unwrap() {
            return Ok(mood.launch(seconds));
        }
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
    fn data_sheet(&self) -> Option<Arc<Ceilings>> {
        self.sheet.lock().unwrap().clone().or_else(|| self.ceilings())
    }
    fn measure_again(&self, _: &Store) {
        self.remeasured.fetch_add(1, Ordering::SeqCst);
        if let Some(better) = &*self.better.lock().unwrap() {
            *self.ceilings.lock().unwrap() = Some(Arc::new(better.clone()));
        }
    }
    fn stolen(&self) -> f64 {
        // Each question finds that much more gone.
        self.thieves.load(Ordering::SeqCst) as f64 * self.asked.fetch_add(1, Ordering::SeqCst) as f64
    }
    fn scatter(&self) -> f64 {
        self.scatter
    }
    fn rest(&self, seconds: f64) {
        match &mut *self.mood.lock().unwrap() {
            Some(mood) => mood.rest(seconds),
            None => std::thread::sleep(std::time::Duration::from_secs_f64(seconds)),
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
    fn reread<'a>(view: &'a In<'_>) -> In<'a> {
        *view
    }
    fn rewrite<'a>(view: &'a mut Out<'_>) -> Out<'a> {
        Out { dtype: view.dtype, all: view.all, at: view.at.clone() }
    }
    fn written<'a>(view: &'a Out<'_>) -> In<'a> {
        In::new(view.dtype, &view.all[view.at.clone()])
    }
    fn sets(&self, _: Policy, _: usize) -> usize {
        2
    }
    fn lap<'k>(
        &'k self,
        _: Policy,
        sets: &[Vec<PerturbedSpot>],
        launch: Launch<'k, Self>,
    ) -> Result<Box<dyn Lap + 'k>, Rejection> {
        Ok(Box::new(FakeLap { device: self, launch, sets: sets.len(), next: 0 }))
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
