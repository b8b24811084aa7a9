//! The clock: events around a batch of launches, or around the replay of a captured one.
//!
//! By the clock for use every launch stands behind a neutral kernel; as many of those alone are timed right before, and
//! what they take is taken off. Back to back, a kernel that may begin early would begin under itself. The neutral kernel
//! also changes what the launch will find, so that no kernel gains by remembering.

use std::time::{Duration, Instant};

use warplap_core::device::Launch;
use warplap_core::measure::{Clock, Lap, Policy, Queueing};
use warplap_core::perturb_inputs::PerturbedSpot;
use warplap_core::rejection::Rejection;

use crate::device::cuda::Cuda;
use crate::driver::{Event, Graph};
use crate::error::CudaError;
use crate::measure::neutral::{Looked, Neutral, Spoon};

/// Seconds the launches of one sample shall take: the events' grain is half a microsecond.
const SAMPLE: f64 = 250e-6;

/// Launches of one sample at the most.
const MAX_BATCH: u32 = 512;

/// What the device is kept busy for while the host queues a sample: the events shall not see the host.
const HEAD_START: [Duration; 2] = [Duration::from_micros(20), Duration::from_millis(2)];

/// Launches that are looked at before a winner is proved once more.
const LOOKED_AT: u32 = 32;

/// How often a sample is taken in which a launch seems to take no time.
const RETRIES: u32 = 4;

/// What a launch that seems to take no time at all is said to take.
const LEAST: f64 = 1e-9;

/// A kernel ready to be timed.
pub(crate) struct CudaLap<'k> {
    cuda: &'k Cuda,
    launch: Launch<'k, Cuda>,
    /// What is stirred before a launch on each set of buffers.
    sets: Vec<Vec<PerturbedSpot>>,
    next: usize,
    batch: u32,
    /// Before the neutral kernels alone, before the launches and after them.
    marks: [Event; 3],
    graph: Option<Graph>,
    behind: Option<Behind<'k>>,
    /// The launches back to back, once somebody wants them so.
    bare: Option<Graph>,
}

/// What the launches stand behind.
struct Behind<'k> {
    neutral: &'k Neutral,
    /// For each set of buffers.
    spoons: Vec<Spoon>,
    /// A batch of it alone, where the launches were captured.
    alone: Option<Graph>,
    head_start: Duration,
}

/// A Rejection that a driver error can become on its way through a capture.
struct Refused(Rejection);
impl From<CudaError> for Refused {
    fn from(error: CudaError) -> Self {
        Refused(error.rejection())
    }
}

fn refused(error: CudaError) -> Rejection {
    error.rejection()
}

impl<'k> CudaLap<'k> {
    /// Runs a few times to see how many launches a sample needs, then captures that many where the policy says so.
    pub(crate) fn new(
        cuda: &'k Cuda,
        policy: Policy,
        sets: &[Vec<PerturbedSpot>],
        launch: Launch<'k, Cuda>,
    ) -> Result<Self, Rejection> {
        let event = || Event::new(cuda.context()).map_err(refused);
        let marks = [event()?, event()?, event()?];
        let sets = if sets.is_empty() { vec![Vec::new()] } else { sets.to_vec() };
        let turn = sets.len() as u32;
        let mut lap = CudaLap { cuda, launch, sets, next: 0, batch: 1, marks, graph: None, behind: None, bare: None };
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
        lap.batch = if turn > 1 { wanted.div_ceil(turn) * turn } else { wanted };
        if policy.clock == Clock::Use {
            lap.behind = lap.stirring();
        }
        let before = lap.looked()?;
        if policy.queueing == Queueing::Graph {
            lap.capture();
        }
        lap.time()?;
        lap.kept_nothing(before)?;
        Ok(lap)
    }

    /// What launches stand behind, where there is a neutral kernel.
    fn stirring(&self) -> Option<Behind<'k>> {
        let behind = |neutral: &'k Neutral| {
            let spoons = self.sets.iter().map(|spots| neutral.spoon(spots)).collect();
            Behind { neutral, spoons, alone: None, head_start: HEAD_START[0] }
        };
        self.cuda.neutral().map(behind)
    }

    fn looked(&self) -> Result<Option<Looked>, Rejection> {
        let looked = self.behind.as_ref().map(|behind| behind.neutral.looked(self.cuda.stream()));
        looked.transpose().map_err(refused)
    }

    /// Whether every output that was looked at since then had been written.
    fn kept_nothing(&self, since: Option<Looked>) -> Result<(), Rejection> {
        let (Some(since), Some(now)) = (since, self.looked()?) else { return Ok(()) };
        let (stale, looked) = (now.stale - since.stale, now.at - since.at);
        if stale == 0 {
            return Ok(());
        }
        let reason =
            format!("left what was poisoned before the launch unwritten in {stale} of {looked} timed launches");
        Err(Rejection::WrongAnswer { error: f64::INFINITY, allowed: 0.0, reason })
    }

    /// Makes graphs of the launches; whoever cannot be captured is timed one by one.
    fn capture(&mut self) {
        let cuda = self.cuda;
        match Graph::capture(cuda.stream(), || self.queue_batch().map_err(Refused)) {
            Ok(graph) => self.graph = Some(graph),
            // It ran before: a callable that waits for its answer, say, runs well and cannot be captured.
            Err(Refused(why)) => return tracing::debug!("timed one by one, as it cannot be captured: {why}"),
        }
        let Some(behind) = &mut self.behind else { return };
        let alone = Graph::capture(cuda.stream(), || behind.queue_alone(self.batch, self.next, cuda).map_err(Refused));
        match alone {
            Ok(graph) => behind.alone = Some(graph),
            Err(Refused(why)) => {
                tracing::debug!("timed one by one, as the neutral kernel cannot be captured: {why}");
                self.graph = None;
            }
        }
    }

    fn queue_batch(&mut self) -> Result<(), Rejection> {
        let stream = self.cuda.stream();
        for i in 0..self.batch {
            if let Some(behind) = &self.behind {
                // In front of the first there was no launch of this kernel.
                let spoon = behind.spoons[self.next].checking(i > 0);
                behind.neutral.perturb(&spoon, stream).map_err(refused)?;
            }
            (self.launch)(stream, self.next)?;
            self.next += 1;
            if self.next == self.sets.len() {
                self.next = 0;
            }
        }
        Ok(())
    }

    /// Seconds of one launch, those of what it stands behind taken off. Where the neutral kernels alone took as long as with
    /// the launches between them, somebody else had the device meanwhile: that is no sample.
    fn time(&mut self) -> Result<f64, Rejection> {
        for _ in 0..RETRIES {
            let seconds = self.time_once()?;
            if seconds > LEAST {
                return Ok(seconds);
            }
        }
        Ok(LEAST)
    }

    fn time_once(&mut self) -> Result<f64, Rejection> {
        let (cuda, stream) = (self.cuda, self.cuda.stream());
        if let (Some(behind), Some(_)) = (&self.behind, &self.graph) {
            behind.neutral.idle(behind.head_start, stream).map_err(refused)?;
        }
        let queueing = Instant::now();
        self.marks[0].record(stream).map_err(refused)?;
        match &self.behind {
            Some(Behind { alone: Some(graph), .. }) => graph.launch(stream).map_err(refused)?,
            Some(behind) => behind.queue_alone(self.batch, self.next, cuda)?,
            None => {}
        }
        self.marks[1].record(stream).map_err(refused)?;
        match &self.graph {
            Some(graph) => graph.launch(stream).map_err(refused)?,
            None => self.queue_batch()?,
        }
        self.marks[2].record(stream).map_err(refused)?;
        let queued = queueing.elapsed();
        let all = self.marks[1].seconds_to(&self.marks[2]).map_err(refused)?;
        let Some(behind) = &mut self.behind else { return Ok(all / f64::from(self.batch)) };
        let alone = self.marks[0].seconds_to(&self.marks[1]).map_err(refused)?;
        let [least, most] = HEAD_START;
        // What this sample needed and half of it again; one that was held up raises it, the others bring it down again.
        behind.head_start = (queued * 3 / 2).max(behind.head_start / 2).clamp(least, most);
        Ok(((all - alone) / f64::from(self.batch)).max(LEAST))
    }
}

impl Behind<'_> {
    /// As many of the neutral kernels as a batch of launches has, stirring the same.
    fn queue_alone(&self, batch: u32, first: usize, cuda: &Cuda) -> Result<(), Rejection> {
        let spoon = |i: u32| &self.spoons[(first + i as usize) % self.spoons.len()];
        (0..batch).try_for_each(|i| self.neutral.perturb(spoon(i), cuda.stream())).map_err(refused)
    }
}

impl Lap for CudaLap<'_> {
    fn run(&mut self) -> Result<f64, Rejection> {
        self.time()
    }

    fn back_to_back(&mut self) -> Result<f64, Rejection> {
        let behind = self.behind.take();
        if behind.is_some() {
            std::mem::swap(&mut self.graph, &mut self.bare);
            if self.graph.is_none() && self.bare.is_some() {
                self.capture();
            }
        }
        let timed = self.time();
        if behind.is_some() {
            std::mem::swap(&mut self.graph, &mut self.bare);
            self.behind = behind;
        }
        timed
    }

    /// A few launches one by one, whichever the policy: what they leave unwritten is seen, and what they remember is out
    /// of date when they are proved once more.
    fn settle(&mut self) -> Result<(), Rejection> {
        let (behind, graph, batch) = (self.behind.take(), self.graph.take(), self.batch);
        (self.behind, self.batch) = (self.stirring(), LOOKED_AT);
        let before = self.looked();
        let looked = before.and_then(|before| {
            self.queue_batch()?;
            self.kept_nothing(before)
        });
        (self.behind, self.graph, self.batch) = (behind, graph, batch);
        looked
    }

    fn batch(&self) -> u32 {
        self.batch
    }
}
