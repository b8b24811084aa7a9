//! The clock: events around a batch of launches, or around the replay of a captured one.

use warplap_core::device::Launch;
use warplap_core::measure::{Lap, Policy, Queueing};
use warplap_core::rejection::Rejection;

use crate::device::cuda::Cuda;
use crate::driver::{Event, Graph};
use crate::error::CudaError;

/// Seconds one sample shall take: the events' grain is half a microsecond.
const SAMPLE: f64 = 250e-6;

/// Launches of one sample at the most.
const MAX_BATCH: u32 = 512;

/// A kernel ready to be timed.
pub(crate) struct CudaLap<'k> {
    cuda: &'k Cuda,
    launch: Launch<'k, Cuda>,
    sets: usize,
    next: usize,
    batch: u32,
    start: Event,
    end: Event,
    graph: Option<Graph>,
}

/// A Rejection that a driver error can become on its way through a capture.
struct Refused(Rejection);
impl From<CudaError> for Refused {
    fn from(error: CudaError) -> Self {
        Refused(error.rejection())
    }
}

impl<'k> CudaLap<'k> {
    /// Runs a few times to see how many launches a sample needs, then captures that many where the policy says so.
    pub(crate) fn new(
        cuda: &'k Cuda,
        policy: Policy,
        sets: usize,
        launch: Launch<'k, Cuda>,
    ) -> Result<Self, Rejection> {
        let event = || Event::new(cuda.context()).map_err(|e| e.rejection());
        let (start, end, sets) = (event()?, event()?, sets.max(1));
        let mut lap = CudaLap { cuda, launch, sets, next: 0, batch: 1, start, end, graph: None };
        // The first launch of all may load the kernel, or make what later ones find: it says nothing of those to come.
        lap.time()?;
        let first = lap.time()?;
        // One launch alone shows its latency too: a few in a row come closer to what one takes of a batch.
        let once = if first > SAMPLE {
            first
        } else {
            lap.batch = (SAMPLE / first.max(1e-9)).ceil().clamp(1.0, 8.0) as u32;
            lap.time()?.min(first)
        };
        let wanted = (SAMPLE / once.max(1e-9)).ceil().clamp(1.0, f64::from(MAX_BATCH)) as u32;
        // Whole turns over the sets, so that every sample sees each as often.
        let turn = sets as u32;
        lap.batch = if sets > 1 { wanted.div_ceil(turn) * turn } else { wanted };
        if policy.queueing == Queueing::Graph {
            let queue = cuda.stream();
            match Graph::capture(queue, || lap.queue_batch().map_err(Refused)) {
                Ok(graph) => lap.graph = Some(graph),
                // It ran before: a callable that waits for its answer, say, runs well and cannot be captured.
                Err(Refused(why)) => tracing::debug!("timed one by one, as it cannot be captured: {why}"),
            }
            lap.time()?;
        }
        Ok(lap)
    }

    fn queue_batch(&mut self) -> Result<(), Rejection> {
        for _ in 0..self.batch {
            (self.launch)(self.cuda.stream(), self.next)?;
            self.next += 1;
            if self.next == self.sets {
                self.next = 0;
            }
        }
        Ok(())
    }

    fn time(&mut self) -> Result<f64, Rejection> {
        let refused = |e: CudaError| e.rejection();
        let stream = self.cuda.stream();
        self.start.record(stream).map_err(refused)?;
        match &self.graph {
            Some(graph) => graph.launch(stream).map_err(refused)?,
            None => self.queue_batch()?,
        }
        self.end.record(stream).map_err(refused)?;
        Ok(self.start.seconds_to(&self.end).map_err(refused)? / f64::from(self.batch))
    }
}

impl Lap for CudaLap<'_> {
    fn run(&mut self) -> Result<f64, Rejection> {
        self.time()
    }

    fn batch(&self) -> u32 {
        self.batch
    }
}
