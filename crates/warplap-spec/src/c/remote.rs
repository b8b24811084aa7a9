//! A kernel in a process of its own, and its laps: arguments come in as places in shared memory; the call happens over
//! there, and what was written beside the arguments is seen here.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use warplap::DType;
use warplap::core::arg::Arg;
use warplap::core::array::Array;
use warplap::core::device::Span;
use warplap::core::measure::{Clock, Lap};
use warplap::core::rejection::Rejection;
use warplap::core::variant::Kernel;
use warplap::core::verify::poison_of;

use super::apart::{Apart, Queue, View};
use super::cell::{Cell, Place, Series, Timed};
use super::memory::Memory;
use crate::argument::{Argument, Fill, Role};
use crate::spec::Spec;

/// Seconds one sample shall take, as on the CPU's own clock.
const SAMPLE: f64 = 100e-6;
/// Launches of one sample at the most.
const MAX_BATCH: u32 = 1 << 16;
/// Kernels longer than this need no launch that does not count.
const LONG: f64 = 2e-3;
/// Seconds of the one sample by which a winner's own report is held against the clock here.
const LONG_SAMPLE: f64 = 20e-3;
/// A sample ends early after so many times what it took first, and not before these seconds: on a busy machine threads
/// that wait for each other take a thousand times as long, and nobody hangs.
const ENOUGH: f64 = 30.0;
const ENOUGH_SECONDS: f64 = 0.1;
/// One call may take so many times what it took first, within these seconds.
const PATIENCE: f64 = 30.0;
const SHORTEST: f64 = 1.0;
const LONGEST: f64 = 10.0;

/// A built kernel in its process.
pub(crate) struct Remote {
    spec: Arc<Spec>,
    cell: Arc<Mutex<Cell>>,
}

impl Remote {
    /// A kernel whose library is loaded in a process.
    pub(crate) fn new(spec: &Arc<Spec>, cell: Cell) -> Self {
        Remote { spec: spec.clone(), cell: Arc::new(Mutex::new(cell)) }
    }
}

/// One launch: where its kernel is and where its arguments are.
pub(crate) struct Recorded {
    spec: Arc<Spec>,
    cell: Arc<Mutex<Cell>>,
    spots: Vec<Spot>,
}

/// One argument of a launch.
struct Spot {
    memory: Arc<Memory>,
    offset: u64,
    /// Which argument of the spec it is.
    argument: usize,
}

impl Recorded {
    fn places(&self) -> Vec<Place<'_>> {
        self.spots.iter().map(|spot| (&*spot.memory, spot.offset)).collect()
    }

    /// Whether nothing was written beside the arguments.
    fn untouched(&self) -> Result<(), Rejection> {
        self.spots.iter().try_for_each(|spot| {
            let argument = &self.spec.arguments[spot.argument];
            trespassed(&spot.memory, &argument.name, argument.dtype())
        })
    }
}

impl Kernel<Apart> for Remote {
    fn launch(&self, args: &mut [Arg<'_, Apart>], queue: &Queue) -> Result<(), Rejection> {
        let mut spots = Vec::with_capacity(args.len());
        let numbered = self.spec.arguments.iter().enumerate().filter(|(_, a)| a.role != Role::Constant);
        for ((argument, inputs), arg) in numbered.zip(args) {
            let spot = |view: View<'_>| Spot { memory: view.memory.clone(), offset: view.offset(), argument };
            match inputs.role {
                // It was written into the door.
                Role::Scalar => inputs.check(arg.scalar()?)?,
                Role::Out | Role::InOut => spots.push(held(&arg.write()?.0, inputs).map(spot)?),
                Role::In | Role::Constant => spots.push(held(&arg.read()?, inputs).map(spot)?),
            }
        }
        let launch = Recorded { spec: self.spec.clone(), cell: self.cell.clone(), spots };
        let Some(launch) = queue.record(launch) else { return Ok(()) };
        locked(&launch.cell).call(&launch.places(), queue.patience())?;
        launch.untouched()
    }
}

/// A view that is as long as its argument.
fn held<'a>(view: &View<'a>, argument: &Argument) -> Result<View<'a>, Rejection> {
    let fits = view.len() == argument.len() && view.dtype() == argument.dtype();
    let reason = || format!("'{}' has {} elements: expected {}", argument.name, view.len(), argument.len());
    if fits { Ok(*view) } else { Err(Rejection::LaunchFailed { reason: reason() }) }
}

/// Whether somebody wrote beside an argument.
pub(super) fn trespassed(memory: &Memory, name: &str, dtype: DType) -> Result<(), Rejection> {
    let result = memory.trespass().map_err(|e| Rejection::LaunchFailed { reason: format!("shared memory: {e}") })?;
    let Some(at) = result else { return Ok(()) };
    let element = at.div_euclid(dtype.bytes() as i64);
    Err(wrong(format!("wrote outside of '{name}', near element {element}")))
}

fn wrong(reason: String) -> Rejection {
    Rejection::WrongAnswer { error: f64::INFINITY, allowed: 0.0, reason }
}

fn locked(cell: &Mutex<Cell>) -> MutexGuard<'_, Cell> {
    cell.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What is done to an argument between two timed calls: two elements of a random input change places; one element of an
/// output is poisoned. What is read from a file, or changed in place, stays.
fn perturbation_plan(argument: &Argument) -> [u64; 4] {
    let (dtype, len) = (argument.dtype(), argument.len() as u64);
    let kind = match (argument.role, &argument.fill) {
        (Role::In, Fill::Random) => 1,
        (Role::Out, _) => 2,
        _ => 0,
    };
    let mut poison = [0; 8];
    let bytes = Array::filled(dtype, 1, poison_of(dtype)).to_bytes();
    poison[..bytes.len()].copy_from_slice(&bytes);
    [kind, len, dtype.bytes() as u64, u64::from_ne_bytes(poison)]
}

/// Whether a value that an output is poisoned with may be a right one.
fn is_ambiguous(argument: &Argument) -> bool {
    argument.role == Role::Out && matches!(argument.dtype(), DType::I8 | DType::U8)
}

/// A kernel ready to be timed where it is.
pub(super) struct RemoteLap {
    sets: Vec<Recorded>,
    plan: Vec<[u64; 4]>,
    next: usize,
    lead: u32,
    batch: u32,
    /// Seconds of a first sample.
    expected: f64,
    patience: Duration,
    /// Whether a poisoned element may be overwritten with the same bytes.
    ambiguous: bool,
    launches: u64,
    stale: u64,
    seeds: fastrand::Rng,
}

impl RemoteLap {
    /// Runs once to warm up and once to see how many launches a sample needs.
    pub(super) fn new(sets: Vec<Recorded>, clock: Clock, patience: Duration) -> Result<Self, Rejection> {
        let Some(first) = sets.first() else {
            return Err(Rejection::LaunchFailed { reason: "nothing was launched".into() });
        };
        let arguments: Vec<&Argument> = first.spots.iter().map(|s| &first.spec.arguments[s.argument]).collect();
        // It has shown in its proofs what it takes.
        let known = (PATIENCE * locked(&first.cell).longest()).max(SHORTEST);
        let patience = patience.min(Duration::from_secs_f64(known));
        let plan = arguments.iter().map(|a| perturbation_plan(a)).collect();
        let ambiguous = arguments.iter().any(|a| is_ambiguous(a));
        let (next, lead, batch, expected, seeds) = (0, 0, 1, 0.0, fastrand::Rng::new());
        let mut lap =
            RemoteLap { sets, plan, next, lead, batch, expected, patience, ambiguous, launches: 0, stale: 0, seeds };
        let first = lap.time()?;
        let once = if first > 1e-3 { first } else { lap.time()?.min(first) };
        lap.batch = if once > 0.0 { (SAMPLE / once).ceil().clamp(1.0, f64::from(MAX_BATCH)) as u32 } else { MAX_BATCH };
        lap.lead = u32::from(clock == Clock::Use && once < LONG);
        lap.expected = once * f64::from(lap.batch + lap.lead);
        lap.patience = Duration::from_secs_f64((PATIENCE * once).clamp(SHORTEST, LONGEST.max(3.0 * once)));
        Ok(lap)
    }

    fn time(&mut self) -> Result<f64, Rejection> {
        self.sample().map(|timed| timed.seconds / f64::from(timed.calls))
    }

    fn sample(&mut self) -> Result<Timed, Rejection> {
        let enough = Duration::from_secs_f64((ENOUGH * self.expected).clamp(ENOUGH_SECONDS, LONGEST));
        let series = Series {
            calls: (self.lead, self.batch),
            enough,
            first: self.next,
            plan: &self.plan,
            sets: self.sets.iter().map(Recorded::places).collect(),
            seed: self.seeds.u64(..),
        };
        let timed = locked(&self.sets[0].cell).time(&series, enough + self.patience);
        let timed = timed.map_err(|rejection| match rejection {
            // It came back before: nobody may take this for a turn that did not come.
            Rejection::TimedOut { seconds } => {
                let after = locked(&self.sets[0].cell).after();
                Rejection::Crashed { reason: format!("it hung for {seconds:.2} s{after}") }
            }
            other => other,
        })?;
        let calls = self.lead + timed.calls;
        for set in 0..self.sets.len().min(calls as usize) {
            self.sets[(self.next + set) % self.sets.len()].untouched()?;
        }
        self.next = (self.next + calls as usize) % self.sets.len();
        (self.launches, self.stale) = (self.launches + u64::from(calls), self.stale + timed.stale);
        self.kept_nothing()?;
        Ok(timed)
    }

    /// Whether outputs were written at every launch.
    fn kept_nothing(&self) -> Result<(), Rejection> {
        let often = self.launches >= 16 && self.stale > self.launches / 2;
        if self.stale == 0 || (self.ambiguous && !often) {
            return Ok(());
        }
        let (stale, launches) = (self.stale, self.launches);
        Err(wrong(format!(
            "left what was poisoned before the launch unwritten in {stale} of {launches} timed launches"
        )))
    }
}

impl Lap for RemoteLap {
    fn run(&mut self) -> Result<f64, Rejection> {
        self.time()
    }

    /// Its own report of its time against the time that passed here, over enough launches that starting does not show.
    fn settle(&mut self) -> Result<(), Rejection> {
        let once = (self.expected / f64::from(self.batch + self.lead)).max(1e-9);
        let usual = self.batch;
        self.batch = (LONG_SAMPLE / once).ceil().clamp(1.0, f64::from(MAX_BATCH)) as u32;
        // One that remembered until now may have more to do this time.
        self.patience = Duration::from_secs_f64(LONGEST.max(3.0 * once));
        let started = Instant::now();
        let timed = self.sample();
        let (passed, timed) = (started.elapsed().as_secs_f64(), timed?);
        let (text, launches) = (timed.seconds, f64::from(timed.calls));
        self.batch = usual;
        if passed > 3.0 * text + 1e-6 * launches + LONG_SAMPLE / 2.0 {
            let reason = format!("its process told {text:.4} s of {launches} launches, and {passed:.4} s passed");
            return Err(wrong(reason));
        }
        Ok(())
    }

    fn batch(&self) -> u32 {
        self.batch
    }
}
