//! A Device: a place that runs kernels and owns a clock.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use crate::error::Error;
use crate::fingerprint::Fingerprint;
use crate::measure::{Lap, Policy};
use crate::model::array::Array;
use crate::model::dtype::DType;
use crate::model::roofline::Ceilings;
use crate::model::tolerance::Tolerance;
use crate::prove::perturb_inputs::PerturbedSpot;
use crate::prove::sandbox::{Passed, SandboxRequest};
use crate::prove::shift::Shift;
use crate::rejection::Rejection;
use crate::store::Store;

/// What no candidate may exceed.
#[derive(Clone, Debug, PartialEq)]
pub struct Limits {
    /// Threads that run at once on the host, or threads of one block on a GPU.
    pub threads: u64,
    /// Bytes of memory a kernel may take as workspace.
    pub workspace: u64,
    /// Bytes of shared memory of one block; 0 where there is none.
    pub shared_memory: u64,
    /// Registers of one thread; 0 where the compiler decides alone.
    pub registers: u64,
}

/// What an output on a device is held to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bounds {
    /// Elements of the guard band on either side of the output.
    pub guard: usize,
    /// What each of them must hold.
    pub guard_value: f64,
    /// How far an element of the output may be off.
    pub tolerance: Tolerance,
}

/// What a comparison on a device showed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Compared {
    /// The largest share of the allowed error; infinite where an element is NaN, was never written, or a guard band
    /// was.
    pub share: f64,
    /// The seal of the right answer as it was read.
    pub seal: u64,
}

/// Borrowed memory that says what it holds: what a caller's buffers are checked by.
pub trait Span {
    /// Type of its elements.
    fn dtype(&self) -> DType;

    /// Elements.
    fn len(&self) -> usize;

    /// Whether it holds no element.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// One timed launch, queued where the device's clock wants it, on the given set of buffers.
pub type Launch<'k, D> = Box<dyn FnMut(&<D as Device>::Queue, usize) -> Result<(), Rejection> + 'k>;

/// A place that runs kernels: it owns memory, queues and a clock.
pub trait Device: Sized + Send + Sync + 'static {
    /// One word: `cpu`, `cuda`.
    const KIND: &'static str;

    /// Whether a launch has ended when it returns.
    const LAUNCH_IS_CALL: bool;

    /// Owned memory.
    type Buffer: Send + Sync;
    /// Borrowed memory that kernels read.
    type View<'a>: Copy + Span;
    /// Borrowed memory that kernels write.
    type ViewMut<'a>: Span;
    /// Where a launch is queued: a stream, or nothing where a launch is a call.
    type Queue: Send + Sync;

    /// Who it is.
    fn fingerprint(&self) -> &Fingerprint;

    /// What no candidate may exceed.
    fn limits(&self) -> Limits;

    /// What it can do at best, as measured on it; `None` before anyone measured.
    fn ceilings(&self) -> Option<Arc<Ceilings>>;

    /// Called before anything is raced: the time to read ceilings from the store's notes, or to
    /// measure them where that takes no more than so many seconds.
    fn get_ready(&self, _store: &Store, _patience: f64) {}

    /// What its data sheet allows at the very most, on the quietest of machines: who is faster than that has skipped work.
    /// Who is faster than measured ceilings shows that these are too low. A device that knows no data sheet has measured
    /// ceilings in its place.
    fn data_sheet(&self) -> Option<Arc<Ceilings>> {
        self.ceilings()
    }

    /// Called when a right candidate was faster than the ceilings allow: they may have been measured on a busy machine.
    /// The time to measure them again and keep the larger of old and new, each.
    fn measure_again(&self, _store: &Store) {}

    /// Builds something, and says by their digests which compiled kernels that took; on a device that keeps none,
    /// nothing is built.
    fn built_from(&self, _build: &mut dyn FnMut()) -> BTreeSet<String> {
        BTreeSet::new()
    }

    /// The queue used while tuning.
    fn queue(&self) -> &Self::Queue;

    /// Memory holding a copy of an array.
    fn upload(&self, array: &Array) -> Result<Self::Buffer, Error>;

    /// The same for memory that launches on `queue` use and no others: it may come from a pool, and go back to it while
    /// launches that were queued before still run.
    fn upload_queued(&self, array: &Array) -> Result<Self::Buffer, Error> {
        self.upload(array)
    }

    /// Overwrites memory with an array of the same type and length.
    fn write(&self, buffer: &mut Self::Buffer, array: &Array) -> Result<(), Error>;

    /// Overwrites memory with other memory of the device of the same type and length.
    fn copy(&self, to: &mut Self::Buffer, from: &Self::Buffer) -> Result<(), Error> {
        self.write(to, &self.download(from)?)
    }

    /// A copy in host memory, after everything queued so far has ended.
    fn download(&self, buffer: &Self::Buffer) -> Result<Array, Error>;

    /// Compares an output between its guard bands with a right answer beside it (double precision, NaN: the element
    /// must be NaN still), where the device can do that itself.
    fn compare(&self, _output: &Self::Buffer, _right: &Self::Buffer, _bounds: Bounds) -> Result<Compared, Error> {
        Err(Error::Device("outputs are compared on the host".into()))
    }

    /// A number that stands for what memory holds: other bytes, or the same in another order, give another one.
    fn seal(&self, _buffer: &Self::Buffer) -> Result<u64, Error> {
        Err(Error::Device("memory is compared on the host".into()))
    }

    /// New memory, for launches on the device's own queue alone, that holds the same numbers in double precision, where
    /// the device can do that itself.
    fn widen(&self, _view: Self::View<'_>) -> Result<Self::Buffer, Error> {
        Err(Error::Device("numbers are widened on the host".into()))
    }

    /// Moves the numbers of memory in double precision, with what is drawn for a stream.
    fn shift(&self, buffer: &mut Self::Buffer, shift: Shift, stream: u64, tolerance: Tolerance) -> Result<(), Error> {
        let mut values = self.download(buffer)?.to_f64();
        shift.put_on(&mut values, stream, 0, tolerance);
        self.write(buffer, &Array::F64(values))
    }

    /// The largest difference of numbers in the same places of two memories in double precision, but for those that are
    /// not finite.
    fn distance(&self, a: &Self::Buffer, b: &Self::Buffer) -> Result<f64, Error> {
        let (a, b) = (self.download(a)?.to_f64(), self.download(b)?.to_f64());
        let off = a.iter().zip(&b).map(|(a, b)| (a - b).abs());
        Ok(off.filter(|off| off.is_finite()).fold(0.0, f64::max))
    }

    /// Borrows elements for reading.
    fn view<'a>(&self, buffer: &'a Self::Buffer, elements: Range<usize>) -> Self::View<'a>;

    /// Borrows elements for writing.
    fn view_mut<'a>(&self, buffer: &'a mut Self::Buffer, elements: Range<usize>) -> Self::ViewMut<'a>;

    /// Lends what is lent for reading once more, for a shorter time: so memory of several lives fits one launch.
    fn reread<'a>(view: &'a Self::View<'_>) -> Self::View<'a>;

    /// Lends what is lent for writing once more, for a shorter time.
    fn rewrite<'a>(view: &'a mut Self::ViewMut<'_>) -> Self::ViewMut<'a>;

    /// Lends what is lent for writing to somebody who reads it: what one launch wrote, the next one of a chain reads.
    fn written<'a>(view: &'a Self::ViewMut<'_>) -> Self::View<'a>;

    /// How it measures unless somebody says otherwise.
    fn usual_policy() -> Policy {
        Policy::default()
    }

    /// How many sets of buffers of `footprint` bytes a policy rotates over.
    fn sets(&self, policy: Policy, footprint: usize) -> usize;

    /// Makes one lap of a kernel ready for timing (on a GPU: captures its graph), deciding how many launches one
    /// sample takes. A launch is given each of the sets in turn, whose spots change between launches.
    fn lap<'k>(
        &'k self,
        policy: Policy,
        sets: &[Vec<PerturbedSpot>],
        launch: Launch<'k, Self>,
    ) -> Result<Box<dyn Lap + 'k>, Rejection>;

    /// The address of memory that its clock changes between launches.
    fn whereabouts(&self, _buffer: &Self::Buffer) -> Option<u64> {
        None
    }

    /// Lets a candidate prove itself in a worker process first: built, verified and launched there, it has passed or
    /// is rejected. `None`: it may prove itself here.
    fn sandbox(&self, _request: &SandboxRequest) -> Option<Result<Passed, Rejection>> {
        None
    }

    /// Seconds that a contest's samples must be spread over before they say how sure its verdict is: a machine that is
    /// shared with others has moods, and what is fastest in one of them need not be in the next.
    fn spread_seconds(&self) -> f64 {
        0.0
    }

    /// Seconds of its processors that others outside of this machine have taken so far, where it is told: a virtual
    /// machine shares them, and what it has lost falls on some candidates and not on others.
    fn stolen(&self) -> f64 {
        0.0
    }

    /// How far a kernel's time in one process is from its time in the next, as a standard deviation of its logarithm.
    /// No number of samples in one process shows it.
    fn scatter(&self) -> f64 {
        0.0
    }

    /// Whether kernels run in processes of their own here, and find other inputs at every timed launch: one that fails, at
    /// whichever launch, costs only itself and is not tried again.
    fn is_walled(&self) -> bool {
        false
    }

    /// Seconds after which a launch counts as hung from now on, where one that hangs can be ended.
    fn set_patience(&self, _seconds: f64) {}

    /// Joules it has drawn since some moment in the past, where it tells.
    fn joules(&self) -> Option<f64> {
        None
    }

    /// Called when candidates will soon be sent to a worker: the time to start one, beside other work.
    fn call_worker(&self) {}

    /// Whether candidates must have passed in a worker process before they may run here; the reference and official
    /// libraries may always.
    fn sandboxes(&self) -> bool {
        false
    }

    /// Threads that compile candidates ahead of their turn; 0 where nothing is compiled.
    fn builders(&self) -> usize {
        0
    }

    /// Why nothing may be measured now for somebody who launches on this queue (it is being captured), if so.
    fn busy(&self, _queue: &Self::Queue) -> Option<String> {
        None
    }

    /// Runs what finds or builds a kernel so that a capture that is going on takes no harm from it.
    fn beside_capture<R>(&self, work: impl FnOnce() -> R) -> R {
        work()
    }

    /// Starts the threads that launches share, where they are not there yet: a thread of low priority, such as one that
    /// races beside a program, would hand its priority on to those that it starts.
    fn start_threads(&self) {}

    /// Lets time pass between two blocks of samples, so that they see more than one mood of the machine.
    fn rest(&self, seconds: f64) {
        std::thread::sleep(std::time::Duration::from_secs_f64(seconds.clamp(0.0, 1.0)));
    }

    /// Whether other work was seen on the device lately.
    fn contended(&self) -> bool {
        false
    }

    /// The types it computes with.
    fn supports(&self, dtype: DType) -> bool;
}
