//! The CPU with kernels that run apart, each in a process of its own: a device as any other. Its memory is shared with
//! those processes; a launch is a call over there, and laps are timed there.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use warplap::core::array::Array;
use warplap::core::device::{Device, Launch, Limits, Span};
use warplap::core::fingerprint::Fingerprint;
use warplap::core::measure::{Lap, Policy};
use warplap::core::perturb_inputs::PerturbedSpot;
use warplap::core::rejection::Rejection;
use warplap::core::roofline::Ceilings;
use warplap::core::store::Store;
use warplap::core::verify::poison_of;
use warplap::{Cpu, DType, Error};

use super::cell::{Cell, Place};
use super::lap::RemoteLap;
use super::memory::Memory;
use super::remote::{Recorded, trespassed};
use crate::argument::Role;
use crate::spec::{Reference, Spec};

/// What a call for an answer may take: a kernel that was written to be right is allowed to be slow.
const ANSWER: Duration = Duration::from_secs(20);
const REFERENCE: Duration = Duration::from_secs(300);

/// What a launch may take before anybody says more.
const PATIENCE: f64 = 10.0;

/// The CPU, with kernels in processes of their own.
pub struct Apart {
    cpu: Arc<Cpu>,
    queue: Queue,
}

impl Apart {
    /// The same device as the CPU given, with the same fingerprint.
    pub fn new(cpu: Arc<Cpu>) -> Self {
        Apart { cpu, queue: Queue { patience: AtomicU64::new(PATIENCE.to_bits()), recording: None } }
    }
}

/// Memory of one buffer.
#[derive(Clone, Debug)]
pub struct Buffer {
    memory: Arc<Memory>,
    dtype: DType,
    len: usize,
}

/// Elements of a buffer.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    pub(super) memory: &'a Arc<Memory>,
    dtype: DType,
    start: usize,
    len: usize,
}

impl View<'_> {
    /// Bytes from the buffer's beginning to the first element.
    pub(super) fn offset(&self) -> u64 {
        (self.start * self.dtype.bytes()) as u64
    }
}

/// Elements of a buffer that are written.
#[derive(Debug)]
pub struct ViewMut<'a>(pub(super) View<'a>);

impl Span for View<'_> {
    fn dtype(&self) -> DType {
        self.dtype
    }
    fn len(&self) -> usize {
        self.len
    }
}

impl Span for ViewMut<'_> {
    fn dtype(&self) -> DType {
        self.0.dtype
    }
    fn len(&self) -> usize {
        self.0.len
    }
}

/// Where launches go: to their process at once, or on a list that a lap is made of.
pub struct Queue {
    patience: AtomicU64,
    recording: Option<Mutex<Vec<Recorded>>>,
}

impl Queue {
    /// What a launch may take.
    pub(super) fn patience(&self) -> Duration {
        Duration::from_secs_f64(f64::from_bits(self.patience.load(Ordering::Relaxed)).clamp(0.1, 600.0))
    }

    /// Puts a launch on the list, where there is one; else it comes back.
    pub(super) fn record(&self, launch: Recorded) -> Option<Recorded> {
        match &self.recording {
            Some(list) => {
                list.lock().unwrap_or_else(PoisonError::into_inner).push(launch);
                None
            }
            None => Some(launch),
        }
    }
}

fn failed(error: std::io::Error) -> Error {
    Error::Device(format!("shared memory: {error}"))
}

impl Device for Apart {
    const KIND: &'static str = Cpu::KIND;
    const LAUNCH_IS_CALL: bool = true;

    type Buffer = Buffer;
    type View<'a> = View<'a>;
    type ViewMut<'a> = ViewMut<'a>;
    type Queue = Queue;

    fn fingerprint(&self) -> &Fingerprint {
        self.cpu.fingerprint()
    }

    fn limits(&self) -> Limits {
        self.cpu.limits()
    }

    fn ceilings(&self) -> Option<Arc<Ceilings>> {
        self.cpu.ceilings()
    }

    fn get_ready(&self, store: &Store, patience: f64) {
        self.cpu.get_ready(store, patience);
    }

    fn measure_again(&self, store: &Store) {
        self.cpu.measure_again(store);
    }

    fn queue(&self) -> &Queue {
        &self.queue
    }

    fn upload(&self, array: &Array) -> Result<Buffer, Error> {
        let memory = Memory::new(array.bytes() as u64).map_err(failed)?;
        memory.write(&array.to_bytes()).map_err(failed)?;
        Ok(Buffer { memory: Arc::new(memory), dtype: array.dtype(), len: array.len() })
    }

    fn write(&self, buffer: &mut Buffer, array: &Array) -> Result<(), Error> {
        if (buffer.dtype, buffer.len) != (array.dtype(), array.len()) {
            let (have, want) = ((buffer.len, buffer.dtype), (array.len(), array.dtype()));
            return Err(Error::Device(format!("a buffer of {have:?} cannot hold {want:?}")));
        }
        buffer.memory.write(&array.to_bytes()).map_err(failed)
    }

    fn download(&self, buffer: &Buffer) -> Result<Array, Error> {
        Ok(Array::from_bytes(buffer.dtype, &buffer.memory.read().map_err(failed)?))
    }

    fn view<'a>(&self, buffer: &'a Buffer, elements: Range<usize>) -> View<'a> {
        assert!(elements.end <= buffer.len, "elements {elements:?} of {}", buffer.len);
        View { memory: &buffer.memory, dtype: buffer.dtype, start: elements.start, len: elements.len() }
    }

    fn view_mut<'a>(&self, buffer: &'a mut Buffer, elements: Range<usize>) -> ViewMut<'a> {
        ViewMut(self.view(buffer, elements))
    }

    fn reread<'a>(view: &'a View<'_>) -> View<'a> {
        *view
    }

    fn rewrite<'a>(view: &'a mut ViewMut<'_>) -> ViewMut<'a> {
        ViewMut(view.0)
    }

    fn written<'a>(view: &'a ViewMut<'_>) -> View<'a> {
        view.0
    }

    fn sets(&self, policy: Policy, footprint: usize) -> usize {
        self.cpu.sets(policy, footprint)
    }

    fn lap<'k>(
        &'k self,
        policy: Policy,
        sets: &[Vec<PerturbedSpot>],
        mut launch: Launch<'k, Self>,
    ) -> Result<Box<dyn Lap + 'k>, Rejection> {
        let recorder = Queue { patience: AtomicU64::new(0), recording: Some(Mutex::default()) };
        (0..sets.len().max(1)).try_for_each(|set| launch(&recorder, set))?;
        let recorded = recorder.recording.unwrap_or_default().into_inner().unwrap_or_else(PoisonError::into_inner);
        Ok(Box::new(RemoteLap::new(recorded, policy.clock, self.queue.patience())?))
    }

    fn is_walled(&self) -> bool {
        true
    }

    fn set_patience(&self, seconds: f64) {
        self.queue.patience.store(seconds.to_bits(), Ordering::Relaxed);
    }

    fn spread_seconds(&self) -> f64 {
        self.cpu.spread_seconds()
    }

    fn stolen(&self) -> f64 {
        self.cpu.stolen()
    }

    fn scatter(&self) -> f64 {
        self.cpu.scatter()
    }

    fn builders(&self) -> usize {
        self.cpu.builders()
    }

    fn contended(&self) -> bool {
        self.cpu.contended()
    }

    fn supports(&self, dtype: DType) -> bool {
        self.cpu.supports(dtype)
    }
}

/// Bytes that a kernel's process may take for itself, besides its arguments: half of the machine's.
pub(super) fn memory_for_itself() -> u64 {
    static HALF: std::sync::OnceLock<u64> = std::sync::OnceLock::new();
    *HALF.get_or_init(|| Cpu::with_threads(1).limits().workspace)
}

/// What a kernel in a process gives for inputs, for each argument that is written.
pub(super) fn answer(spec: &Spec, mut cell: Cell, inputs: &[Array]) -> Result<Vec<Vec<f64>>, Rejection> {
    let lost = |e: std::io::Error| Rejection::LaunchFailed { reason: failed(e).to_string() };
    let mut memories = Vec::new();
    for (argument, input) in spec.parameters().zip(inputs).filter(|(a, _)| a.role != Role::Scalar) {
        let blank = || Array::filled(argument.dtype(), argument.len(), poison_of(argument.dtype()));
        let content = if argument.role == Role::Out { blank() } else { input.clone() };
        let memory = Memory::new(content.bytes() as u64).map_err(lost)?;
        memory.write(&content.to_bytes()).map_err(lost)?;
        memories.push((argument, memory));
    }
    let places: Vec<Place<'_>> = memories.iter().map(|(_, memory)| (memory, 0)).collect();
    let patience = if matches!(spec.reference, Reference::Kernel(_)) { REFERENCE } else { ANSWER };
    cell.call(&places, patience)?;
    for (argument, memory) in &memories {
        trespassed(memory, &argument.name, argument.dtype())?;
    }
    let written = memories.iter().filter(|(argument, _)| argument.is_output());
    written.map(|(a, memory)| Ok(Array::from_bytes(a.dtype(), &memory.read().map_err(lost)?).to_f64())).collect()
}
