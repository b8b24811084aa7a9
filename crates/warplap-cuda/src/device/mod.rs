//! The Cuda device: what `warplap_core::device::Device` asks for, on one NVIDIA GPU.

mod build;
pub(crate) mod cuda;

pub use cuda::Cuda;
use cuda::locked;

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use warplap_core::array::Array;
use warplap_core::device::{Bounds, Compared, Device, Launch, Limits};
use warplap_core::dtype::DType;
use warplap_core::error::Error;
use warplap_core::fingerprint::Fingerprint;
use warplap_core::measure::{CacheState, Lap, Policy, Queueing};
use warplap_core::perturb_inputs::PerturbedSpot;
use warplap_core::rejection::Rejection;
use warplap_core::roofline::Ceilings;
use warplap_core::sandbox::{Passed, SandboxRequest};
use warplap_core::shift::Shift;
use warplap_core::store::Store;
use warplap_core::tolerance::Tolerance;

use crate::driver::{Relaxed, Stream};
use crate::measure::ceilings;
use crate::measure::clock::CudaLap;
use crate::measure::nvml;
use crate::memory::{Buffer, View, ViewMut};

/// The note in the store that holds the ceilings.
const CEILINGS: &str = "ceilings";

/// Seconds that measuring the ceilings takes.
const MEASURING: f64 = 1.0;

/// How long a reading of the neighbours counts.
const READING: Duration = Duration::from_millis(300);

impl Cuda {
    fn keep_ceilings(&self, ceilings: &Ceilings, store: &Store) {
        if let Ok(note) = serde_json::to_value(ceilings)
            && let Err(e) = store.put_note(&self.fingerprint.slug(), CEILINGS, &note)
        {
            tracing::warn!("the measured ceilings were not kept: {e}");
        }
    }
}

impl Device for Cuda {
    const KIND: &'static str = crate::chip::KIND;
    const LAUNCH_IS_CALL: bool = false;

    type Buffer = Buffer;
    type View<'a> = View<'a>;
    type ViewMut<'a> = ViewMut<'a>;
    type Queue = Stream;

    fn fingerprint(&self) -> &Fingerprint {
        &self.fingerprint
    }

    fn built_from(&self, build: &mut dyn FnMut()) -> std::collections::BTreeSet<String> {
        crate::compile::built_from(build)
    }

    fn limits(&self) -> Limits {
        Limits {
            threads: 1024,
            workspace: self.chip.memory / 2,
            shared_memory: self.chip.shared_memory,
            registers: 255,
        }
    }

    fn ceilings(&self) -> Option<Arc<Ceilings>> {
        locked(&self.ceilings).clone()
    }

    fn get_ready(&self, store: &Store, patience: f64) {
        // Its library takes a while to open, and is first asked after a race.
        std::thread::spawn(nvml::open);
        let mut known = locked(&self.ceilings);
        if known.is_some() {
            return;
        }
        let kept = store.note(&self.fingerprint.slug(), CEILINGS).and_then(|note| serde_json::from_value(note).ok());
        let measure = || if patience < MEASURING { None } else { Some(ceilings::measure(self)) };
        let result = kept.or_else(|| match measure()? {
            Ok(measured) => {
                self.keep_ceilings(&measured, store);
                Some(measured)
            }
            Err(error) => {
                tracing::warn!("the ceilings could not be measured: {error}");
                None
            }
        });
        *known = result.map(Arc::new);
    }

    fn data_sheet(&self) -> Option<Arc<Ceilings>> {
        Some(Arc::new(ceilings::data_sheet(&self.chip)))
    }

    fn measure_again(&self, store: &Store) {
        let mut known = locked(&self.ceilings);
        let Ok(measured) = ceilings::measure(self) else { return };
        let raised = match &*known {
            Some(old) => measured.raised(old),
            None => measured,
        };
        self.keep_ceilings(&raised, store);
        *known = Some(Arc::new(raised));
    }

    fn queue(&self) -> &Stream {
        &self.queue
    }

    fn upload(&self, array: &Array) -> Result<Buffer, Error> {
        let mut buffer = Buffer::new(&self.context, array.dtype(), array.len())?;
        buffer.fill(array, &self.queue)?;
        Ok(buffer)
    }

    fn upload_queued(&self, array: &Array) -> Result<Buffer, Error> {
        let mut buffer = Buffer::queued(&self.queue, array.dtype(), array.len())?;
        buffer.fill(array, &self.queue)?;
        Ok(buffer)
    }

    fn write(&self, buffer: &mut Buffer, array: &Array) -> Result<(), Error> {
        if buffer.len != array.len() || buffer.dtype != array.dtype() {
            return Err(Error::Device(format!(
                "a buffer of {} {} cannot hold {} {}",
                buffer.len,
                buffer.dtype,
                array.len(),
                array.dtype()
            )));
        }
        Ok(buffer.fill(array, &self.queue)?)
    }

    fn copy(&self, to: &mut Buffer, from: &Buffer) -> Result<(), Error> {
        if to.len != from.len || to.dtype != from.dtype {
            return Err(Error::Device(format!("{} {} are no {} {}", from.len, from.dtype, to.len, to.dtype)));
        }
        // SAFETY: two buffers, as long as each other.
        Ok(unsafe { self.queue.copy_across(to.address, from.address, from.len * from.dtype.bytes()) }?)
    }

    fn download(&self, buffer: &Buffer) -> Result<Array, Error> {
        Ok(buffer.read(&self.queue)?)
    }

    fn compare(&self, output: &Buffer, right: &Buffer, bounds: Bounds) -> Result<Compared, Error> {
        self.compare_there(output, right, bounds)
    }

    fn seal(&self, buffer: &Buffer) -> Result<u64, Error> {
        self.seal_of(buffer)
    }

    fn widen(&self, view: View<'_>) -> Result<Buffer, Error> {
        self.widened(view)
    }

    fn shift(&self, buffer: &mut Buffer, shift: Shift, stream: u64, tolerance: Tolerance) -> Result<(), Error> {
        self.shifted(buffer, shift, stream, tolerance)
    }

    fn distance(&self, a: &Buffer, b: &Buffer) -> Result<f64, Error> {
        self.distance_of(a, b)
    }

    fn view<'a>(&self, buffer: &'a Buffer, elements: Range<usize>) -> View<'a> {
        let (address, len) = within(buffer, elements);
        View { address, len, dtype: buffer.dtype, borrow: PhantomData }
    }

    fn view_mut<'a>(&self, buffer: &'a mut Buffer, elements: Range<usize>) -> ViewMut<'a> {
        let (address, len) = within(buffer, elements);
        ViewMut { address, len, dtype: buffer.dtype, borrow: PhantomData }
    }

    fn reread<'a>(view: &'a View<'_>) -> View<'a> {
        View { borrow: PhantomData, ..*view }
    }

    fn rewrite<'a>(view: &'a mut ViewMut<'_>) -> ViewMut<'a> {
        ViewMut { address: view.address, len: view.len, dtype: view.dtype, borrow: PhantomData }
    }

    fn written<'a>(view: &'a ViewMut<'_>) -> View<'a> {
        View { address: view.address, len: view.len, dtype: view.dtype, borrow: PhantomData }
    }

    fn usual_policy() -> Policy {
        // A graph shows the device's own time: launched one by one, a short kernel is as slow as the host.
        Policy { queueing: Queueing::Graph, ..Policy::default() }
    }

    fn sets(&self, policy: Policy, footprint: usize) -> usize {
        match policy.cache {
            CacheState::Hot => 1,
            // Twice the L2, so that nothing of a set is left when its turn comes again.
            CacheState::Cold => (2 * self.chip.l2 as usize / footprint.max(1)).clamp(1, 64) + 1,
        }
    }

    fn lap<'k>(
        &'k self,
        policy: Policy,
        sets: &[Vec<PerturbedSpot>],
        launch: Launch<'k, Self>,
    ) -> Result<Box<dyn Lap + 'k>, Rejection> {
        Ok(Box::new(CudaLap::new(self, policy, sets, launch)?))
    }

    fn whereabouts(&self, buffer: &Buffer) -> Option<u64> {
        Some(buffer.address)
    }

    fn sandbox(&self, request: &SandboxRequest) -> Option<Result<Passed, Rejection>> {
        self.sandbox.prove(&self.workers, || self.setup(), request)
    }

    fn joules(&self) -> Option<f64> {
        nvml::joules(&self.chip)
    }

    fn call_worker(&self) {
        let (sandbox, workers, setup) = (self.sandbox.clone(), self.workers.clone(), self.setup());
        // Who cannot be started now is said when somebody is to be proved.
        std::thread::spawn(move || sandbox.call(&workers, setup));
    }

    fn sandboxes(&self) -> bool {
        !self.workers.is_off()
    }

    fn builders(&self) -> usize {
        if self.workers.is_off() {
            // A thread of its own still lets the GPU measure meanwhile; the compiler's stages exclude each other.
            return 1;
        }
        // One core is left for whoever proves and measures; a compiler takes a hundred megabytes.
        std::thread::available_parallelism().map_or(1, usize::from).saturating_sub(1).clamp(1, 32)
    }

    fn busy(&self, queue: &Stream) -> Option<String> {
        // A capture refuses what building and measuring need (allocating, waiting), whichever stream it is on.
        match queue.is_capturing() {
            Ok(false) => None,
            Ok(true) => Some("the stream is being captured into a graph".into()),
            Err(error) => Some(error.to_string()),
        }
    }

    fn beside_capture<R>(&self, work: impl FnOnce() -> R) -> R {
        let _relaxed = Relaxed::new(&self.context);
        work()
    }

    fn contended(&self) -> bool {
        // A reading takes 15 ms and looks back over a second.
        let mut last = locked(&self.neighbours);
        match *last {
            Some((at, busy)) if at.elapsed() < READING => busy,
            _ => {
                let busy = self.readings().is_some_and(|r| r.contended());
                *last = Some((Instant::now(), busy));
                busy
            }
        }
    }

    fn supports(&self, dtype: DType) -> bool {
        matches!(dtype, DType::F32 | DType::F16 | DType::Bf16)
    }
}

/// Address and length of elements of a buffer, cut to what it holds.
fn within(buffer: &Buffer, elements: Range<usize>) -> (u64, usize) {
    let end = elements.end.min(buffer.len);
    let start = elements.start.min(end);
    (buffer.address + (start * buffer.dtype.bytes()) as u64, end - start)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::CudaError;

    #[test]
    fn without_a_driver_the_error_is_one_clear_sentence() {
        match Cuda::open(0) {
            Err(error @ (CudaError::NoDriver | CudaError::NoDevice { .. } | CudaError::Driver { .. })) => {
                let text = error.to_string();
                assert!(!text.contains('\n') && (text.contains("CUDA") || text.contains("cu")), "{text}");
            }
            Err(other) => panic!("{other}"),
            Ok(cuda) => assert!(cuda.busy(cuda.queue()).is_none()),
        }
        assert!(Cuda::open(-1).is_err() && Cuda::open(1 << 20).is_err());
    }
}
