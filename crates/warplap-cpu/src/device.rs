//! The Cpu device: what `warplap_core::device::Device` asks for, on host memory.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use warplap_core::array::Array;
use warplap_core::device::{Device, Launch, Limits};
use warplap_core::dtype::DType;
use warplap_core::each_array;
use warplap_core::error::Error;
use warplap_core::fingerprint::Fingerprint;
use warplap_core::measure::{CacheState, Lap, Policy, RACE};
use warplap_core::perturb_inputs::PerturbedSpot;
use warplap_core::rejection::Rejection;
use warplap_core::roofline::Ceilings;
use warplap_core::store::Store;

use crate::chip::Chip;
use crate::clock::CpuLap;
use crate::pool::Pool;
use crate::simd::Isa;
use crate::slice::{Slice, SliceMut};
use crate::{ceilings, load};

/// Seconds that samples must be spread over: on a shared machine the same kernel of 10 µs took 13 to 23 µs for some tens of
/// milliseconds, while two threads lost less than one.
const MOODS: f64 = 0.3;

/// Gaps between near-equals differed by 0.9 to 3.0 % from process to process (`docs/results/cpu.md`): of that, one kernel's
/// part.
const SCATTER: f64 = 0.012;

/// Bytes of one cache line: buffers start on one.
const LINE: usize = 64;

/// The most memory that cold measuring may rotate over.
const COLD_BYTES: usize = 256 << 20;

/// The CPU: host memory, threads, vector lanes.
#[derive(Debug)]
pub struct Cpu {
    chip: Chip,
    fingerprint: Fingerprint,
    pool: Arc<Pool>,
    isa: Isa,
    // Held while they are measured: two measurements at once would spoil each other.
    ceilings: Mutex<Option<Arc<Ceilings>>>,
    builders: usize,
}

impl Cpu {
    /// This machine's CPU with all the threads it grants.
    pub fn new() -> Self {
        Self::with_threads(std::thread::available_parallelism().map_or(1, usize::from))
    }

    /// This machine's CPU with so many threads.
    pub fn with_threads(threads: usize) -> Self {
        Self::on(Pool::new(threads))
    }

    /// This machine's CPU on the threads of a pool that the program has already.
    pub fn with_pool(pool: Arc<rayon::ThreadPool>) -> Self {
        Self::on(Pool::borrowed(pool))
    }

    fn on(pool: Pool) -> Self {
        let chip = Chip::read();
        let pool = Arc::new(pool);
        let isa = Isa::best();
        let fingerprint = Fingerprint::new(
            [
                ("kind", "cpu".to_string()),
                ("model", chip.model.clone()),
                ("threads", pool.threads().to_string()),
                ("isa", isa.name().to_string()),
                ("caches", chip.caches.iter().map(|c| c.to_string()).collect::<Vec<_>>().join("/")),
            ],
            [("race", RACE.to_string())],
        );
        Cpu { chip, fingerprint, pool, isa, ceilings: Mutex::default(), builders: 0 }
    }

    /// This device where candidates have to be compiled: so many threads do it ahead of their turn. They take cores
    /// from kernels that are being timed, so some should be left.
    pub fn with_builders(mut self, threads: usize) -> Self {
        self.builders = threads;
        self
    }

    /// This device where a library of the host program races too: records say its version.
    pub fn with_library(mut self, name: &str, version: &str) -> Self {
        self.fingerprint.libraries.insert(name.to_string(), version.to_string());
        self
    }

    /// What the machine says of itself.
    pub fn chip(&self) -> &Chip {
        &self.chip
    }

    /// Its threads, for kernels to keep.
    pub fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// Threads it grants.
    pub fn threads(&self) -> usize {
        self.pool.threads()
    }

    /// Its best instruction set.
    pub fn isa(&self) -> Isa {
        self.isa
    }

    /// Takes ceilings measured elsewhere; the first call wins.
    pub fn set_ceilings(&self, ceilings: Ceilings) {
        self.known_ceilings().get_or_insert_with(|| Arc::new(ceilings));
    }

    fn known_ceilings(&self) -> MutexGuard<'_, Option<Arc<Ceilings>>> {
        self.ceilings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep_ceilings(&self, ceilings: &Ceilings, store: &Store) {
        if let Ok(note) = serde_json::to_value(ceilings)
            && let Err(e) = store.put_note(&self.fingerprint.slug(), CEILINGS, &note)
        {
            tracing::warn!("the measured ceilings were not kept: {e}");
        }
    }

    /// Measures the ceilings now and keeps them in place of those that were known.
    pub fn renew_ceilings(&self, store: &Store) {
        let mut known = self.known_ceilings();
        let measured = self.measure_ceilings();
        self.keep_ceilings(&measured, store);
        *known = Some(Arc::new(measured));
    }

    /// Measures the ceilings now, which takes about a second.
    pub fn measure_ceilings(&self) -> Ceilings {
        ceilings::measure(self)
    }
}

/// The note in the store that holds the ceilings.
const CEILINGS: &str = "ceilings";

/// Seconds that measuring the ceilings takes.
const MEASURING: f64 = 1.0;

impl Default for Cpu {
    fn default() -> Self {
        Self::new()
    }
}

/// Owned host memory that starts on a cache line.
#[derive(Debug)]
pub struct Buffer {
    array: Array,
    start: usize,
    len: usize,
}

impl Buffer {
    fn new(array: &Array) -> Self {
        let (dtype, len) = (array.dtype(), array.len());
        let room = Array::filled(dtype, len + LINE / dtype.bytes(), 0.0);
        let address = view(&room, 0..0).address();
        let start = (LINE - address % LINE) % LINE / dtype.bytes();
        let mut buffer = Buffer { array: room, start, len };
        buffer.copy_from(array);
        buffer
    }

    fn copy_from(&mut self, from: &Array) {
        let at = self.start..self.start + self.len;
        view_mut(&mut self.array, at).copy_from(from);
    }
}

fn view(array: &Array, at: Range<usize>) -> Slice<'_> {
    each_array!(array, v => (&v[at]).into())
}

fn view_mut(array: &mut Array, at: Range<usize>) -> SliceMut<'_> {
    each_array!(array, v => (&mut v[at]).into())
}

impl Device for Cpu {
    const KIND: &'static str = "cpu";
    const LAUNCH_IS_CALL: bool = true;

    type Buffer = Buffer;
    type View<'a> = Slice<'a>;
    type ViewMut<'a> = SliceMut<'a>;
    type Queue = ();

    fn start_threads(&self) {
        self.pool.start();
    }

    fn fingerprint(&self) -> &Fingerprint {
        &self.fingerprint
    }

    fn limits(&self) -> Limits {
        Limits { threads: self.threads() as u64, workspace: self.chip.memory / 2, shared_memory: 0, registers: 0 }
    }

    fn ceilings(&self) -> Option<Arc<Ceilings>> {
        self.known_ceilings().clone()
    }

    fn get_ready(&self, store: &Store, patience: f64) {
        let mut known = self.known_ceilings();
        if known.is_some() {
            return;
        }
        let note = store.note(&self.fingerprint.slug(), CEILINGS);
        let kept: Option<Ceilings> = note.and_then(|note| serde_json::from_value(note).ok());
        let measure = || {
            let measured = self.measure_ceilings();
            self.keep_ceilings(&measured, store);
            measured
        };
        let may = patience >= MEASURING;
        let quiet = || load::others(self.threads()).is_some_and(|load| load < load::CONTENDED);
        *known = match kept {
            // They were taken beside other work, of which there is none now.
            Some(kept) if may && kept.load >= load::CONTENDED && quiet() => {
                let raised = self.measure_ceilings().raised(&kept);
                self.keep_ceilings(&raised, store);
                Some(raised)
            }
            Some(kept) => Some(kept),
            None => may.then(measure),
        }
        .map(Arc::new);
    }

    fn data_sheet(&self) -> Option<Arc<Ceilings>> {
        Some(Arc::new(ceilings::data_sheet(self)))
    }

    fn measure_again(&self, store: &Store) {
        let mut known = self.known_ceilings();
        let measured = self.measure_ceilings();
        let raised = match &*known {
            Some(old) => measured.raised(old),
            None => measured,
        };
        self.keep_ceilings(&raised, store);
        *known = Some(Arc::new(raised));
    }

    fn queue(&self) -> &() {
        &()
    }

    fn upload(&self, array: &Array) -> Result<Buffer, Error> {
        Ok(Buffer::new(array))
    }

    fn write(&self, buffer: &mut Buffer, array: &Array) -> Result<(), Error> {
        if buffer.len != array.len() || buffer.array.dtype() != array.dtype() {
            return Err(Error::Device(format!(
                "a buffer of {} {} cannot hold {} {}",
                buffer.len,
                buffer.array.dtype(),
                array.len(),
                array.dtype()
            )));
        }
        buffer.copy_from(array);
        Ok(())
    }

    fn download(&self, buffer: &Buffer) -> Result<Array, Error> {
        Ok(view(&buffer.array, buffer.start..buffer.start + buffer.len).to_array())
    }

    fn widen(&self, view: Slice<'_>) -> Result<Buffer, Error> {
        self.upload(&Array::F64(view.to_array().to_f64()))
    }

    fn view<'a>(&self, buffer: &'a Buffer, elements: Range<usize>) -> Slice<'a> {
        view(&buffer.array, buffer.start + elements.start..buffer.start + elements.end)
    }

    fn view_mut<'a>(&self, buffer: &'a mut Buffer, elements: Range<usize>) -> SliceMut<'a> {
        let at = buffer.start + elements.start..buffer.start + elements.end;
        view_mut(&mut buffer.array, at)
    }

    fn reread<'a>(view: &'a Slice<'_>) -> Slice<'a> {
        *view
    }

    fn rewrite<'a>(view: &'a mut SliceMut<'_>) -> SliceMut<'a> {
        view.reborrow()
    }

    fn written<'a>(view: &'a SliceMut<'_>) -> Slice<'a> {
        view.as_slice()
    }

    fn sets(&self, policy: Policy, footprint: usize) -> usize {
        match policy.cache {
            CacheState::Hot => 1,
            // Twice the last cache, so that nothing of a set is left when its turn comes again; a shared server cache
            // can be larger than anyone wants to fill, and then cold means cold in the caches of the core.
            CacheState::Cold => {
                let cache = self.chip.caches.last().copied().unwrap_or(32 << 20) as usize;
                ((2 * cache).min(COLD_BYTES) / footprint.max(1)).clamp(1, 64) + 1
            }
        }
    }

    fn lap<'k>(
        &'k self,
        policy: Policy,
        sets: &[Vec<PerturbedSpot>],
        launch: Launch<'k, Self>,
    ) -> Result<Box<dyn Lap + 'k>, Rejection> {
        Ok(Box::new(CpuLap::new(&self.pool, policy.clock, sets.len(), launch)?))
    }

    fn builders(&self) -> usize {
        self.builders
    }

    fn contended(&self) -> bool {
        load::others(self.threads()).is_some_and(|share| share > load::CONTENDED)
    }

    fn spread_seconds(&self) -> f64 {
        MOODS
    }

    fn stolen(&self) -> f64 {
        load::stolen().unwrap_or(0.0) / self.threads() as f64
    }

    fn scatter(&self) -> f64 {
        SCATTER
    }

    fn supports(&self, dtype: DType) -> bool {
        matches!(dtype, DType::F64 | DType::F32 | DType::F16 | DType::Bf16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_start_on_a_cache_line_and_give_back_what_was_put_in() {
        let cpu = Cpu::with_threads(1);
        let mut rng = fastrand_like(7);
        for dtype in [DType::F64, DType::F32, DType::F16, DType::Bf16, DType::I32] {
            let array = Array::from_f64(dtype, (0..37).map(|_| rng()));
            let mut buffer = cpu.upload(&array).unwrap();
            assert_eq!(cpu.view(&buffer, 0..37).address() % LINE, 0);
            assert_eq!(cpu.download(&buffer).unwrap(), array);
            assert!(cpu.write(&mut buffer, &Array::filled(dtype, 3, 1.0)).is_err());
        }
    }

    fn fastrand_like(seed: u64) -> impl FnMut() -> f64 {
        let mut x = seed;
        move || {
            x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            f64::from((x >> 33) as i32 % 1000)
        }
    }
}
