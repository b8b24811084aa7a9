//! Laps of a kernel in a process of its own: launches as they were recorded come in; the time of one goes out, and
//! whether its outputs were written at every launch.

use std::sync::Arc;
use std::time::Duration;

use warplap::DType;
use warplap::core::array::Array;
use warplap::core::measure::{Clock, Lap};
use warplap::core::rejection::Rejection;
use warplap::core::verify::poison_of;

use super::cell::{Extra, Series, Timed};
use super::inputs::Inputs;
use super::remote::{Recorded, locked, wrong};
use super::time_check::{RaceTimes, TimeCheck};
use crate::argument::{Argument, Fill, Role};
use crate::spec::Reference;

/// Seconds one sample shall take, as on the CPU's own clock.
const SAMPLE: f64 = 100e-6;
/// Launches of one sample at the most.
pub(super) const MAX_BATCH: u32 = 1 << 16;
/// Kernels longer than this need no launch that does not count.
const LONG: f64 = 2e-3;
/// A sample ends early after so many times what it took first, and not before these seconds: on a busy machine threads
/// that wait for each other take a thousand times as long, and nobody hangs.
const ENOUGH: f64 = 30.0;
const ENOUGH_SECONDS: f64 = 0.1;
/// One call may take so many times what it took first, within these seconds.
const PATIENCE: f64 = 30.0;
const SHORTEST: f64 = 1.0;
const LONGEST: f64 = 10.0;
/// One sample of so many ends with a launch that finds its outputs poisoned as a whole.
const SELDOM: u32 = 8;
/// Bytes of an output that are looked at then, from a place that is drawn.
const WINDOW: usize = 1 << 20;

/// What `cell.c` does to an argument between two timed calls.
pub(super) const SWAP: u64 = 1;
pub(super) const POISON: u64 = 2;

/// What is done to an argument between two timed calls: two elements of a random input change places; one element of an
/// output is poisoned. What is read from a file, or changed in place, stays.
fn perturbation_plan(argument: &Argument) -> [u64; 4] {
    let (dtype, len) = (argument.dtype(), argument.len() as u64);
    let kind = match (argument.role, &argument.fill) {
        (Role::In, Fill::Random) => SWAP,
        (Role::Out, _) => POISON,
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
    pub(super) sets: Vec<Recorded>,
    pub(super) plan: Vec<[u64; 4]>,
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
    race: RaceTimes,
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
        let (launches, stale, race) = (0, 0, RaceTimes::default());
        let mut lap =
            RemoteLap { sets, plan, next, lead, batch, expected, patience, ambiguous, launches, stale, seeds, race };
        let first = lap.time()?;
        let once = if first > 1e-3 { first } else { lap.time()?.min(first) };
        lap.batch = if once > 0.0 { (SAMPLE / once).ceil().clamp(1.0, f64::from(MAX_BATCH)) as u32 } else { MAX_BATCH };
        lap.lead = u32::from(clock == Clock::Use && once < LONG);
        lap.expected = once * f64::from(lap.batch + lap.lead);
        lap.patience = Duration::from_secs_f64((PATIENCE * once).clamp(SHORTEST, LONGEST.max(3.0 * once)));
        lap.inspect()?;
        Ok(lap)
    }

    fn time(&mut self) -> Result<f64, Rejection> {
        let seed = self.seeds.u64(..);
        self.sample(seed, Extra::Nothing).map(|timed| timed.seconds / f64::from(timed.calls))
    }

    /// One sample, by a seed, from the set that is next.
    fn sample(&mut self, seed: u64, extra: Extra) -> Result<Timed, Rejection> {
        let enough = Duration::from_secs_f64((ENOUGH * self.expected).clamp(ENOUGH_SECONDS, LONGEST));
        let series = Series {
            calls: (self.lead, self.batch),
            enough,
            first: self.next,
            plan: &self.plan,
            sets: self.sets.iter().map(Recorded::places).collect(),
            seed,
            extra,
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
        let calls = self.lead + timed.calls + u32::from(extra == Extra::OneMore);
        for set in 0..self.sets.len().min(calls as usize) {
            self.sets[(self.next + set) % self.sets.len()].untouched()?;
        }
        self.next = (self.next + calls as usize) % self.sets.len();
        (self.launches, self.stale) = (self.launches + u64::from(calls), self.stale + timed.stale);
        self.kept_nothing()?;
        if extra != Extra::Nothing {
            self.wrote_all((self.next + self.sets.len() - 1) % self.sets.len())?;
        }
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

    /// Whether the last launch wrote every element of its outputs.
    fn wrote_all(&mut self, set: usize) -> Result<(), Rejection> {
        for (spot, plan) in self.sets[set].spots.iter().zip(&self.plan).filter(|(_, plan)| plan[0] == POISON) {
            let (len, bytes) = (plan[1] as usize, plan[2] as usize);
            let count = len.min(WINDOW / bytes);
            let from = self.seeds.usize(0..=len - count);
            let part = spot.memory.read_part(spot.offset + (from * bytes) as u64, count * bytes);
            let part = part.map_err(|e| Rejection::LaunchFailed { reason: format!("shared memory: {e}") })?;
            let poison = &plan[3].to_ne_bytes()[..bytes];
            let left = part.chunks_exact(bytes).filter(|element| *element == poison).count();
            let argument = &self.sets[set].spec.arguments[spot.argument];
            let allowed = if is_ambiguous(argument) { (count / 2).max(SELDOM as usize) } else { 0 };
            if left > allowed {
                let name = &argument.name;
                return Err(wrong(format!("left {left} elements of '{name}' unwritten in a timed launch")));
            }
        }
        Ok(())
    }

    /// The set the next sample begins with.
    pub(super) fn next(&self) -> usize {
        self.next
    }

    /// Launches of a sample that do not count, and those that do.
    pub(super) fn calls(&self) -> (u32, u32) {
        (self.lead, self.batch)
    }

    /// A sample of so many launches, by a seed.
    pub(super) fn sample_of(&mut self, launches: u32, seed: u64, extra: Extra) -> Result<Timed, Rejection> {
        let usual = std::mem::replace(&mut self.batch, launches);
        let timed = self.sample(seed, extra);
        self.batch = usual;
        timed
    }

    /// One sample in which more is looked at than in the others: inputs, and one more launch.
    fn inspect(&mut self) -> Result<Timed, Rejection> {
        let (seed, inputs) = (self.seeds.u64(..), Inputs::of(self, WINDOW as u64)?);
        let timed = self.sample(seed, Extra::OneMore)?;
        inputs.are_stirred(self, seed, self.lead + timed.calls)?;
        Ok(timed)
    }

    /// The next sample begins with the first set.
    pub(super) fn begin_anew(&mut self) {
        self.next = 0;
    }
}

impl Lap for RemoteLap {
    fn run(&mut self) -> Result<f64, Rejection> {
        let timed = if self.seeds.u32(0..SELDOM) == 0 {
            self.inspect()?
        } else {
            let seed = self.seeds.u64(..);
            let timed = self.sample(seed, Extra::Nothing)?;
            self.race.add(&timed);
            timed
        };
        Ok(timed.seconds / f64::from(timed.calls))
    }

    /// Its own report of its time against the time that passed here, over enough launches that starting does not show,
    /// and against what it told in the race.
    fn settle(&mut self) -> Result<(), Rejection> {
        let once = (self.expected / f64::from(self.batch + self.lead)).max(1e-9);
        // One that remembered until now may have more to do this time.
        self.patience = Duration::from_secs_f64(LONGEST.max(3.0 * once));
        let race = std::mem::take(&mut self.race);
        let spec = Arc::clone(&self.sets[0].spec);
        let checked = TimeCheck::new(&spec, once, &race).run(self);
        self.race = race;
        checked
    }

    fn repeat(&mut self) -> Result<u32, Rejection> {
        let still = vec![[0; 4]; self.plan.len()];
        let plan = std::mem::replace(&mut self.plan, still);
        // A file knows the answer to one launch alone.
        let launches = if matches!(self.sets[0].spec.reference, Reference::Files(_)) { 1 } else { 2 };
        let (lead, batch) = (std::mem::take(&mut self.lead), std::mem::replace(&mut self.batch, launches));
        self.begin_anew();
        let timed = self.sample(0, Extra::Nothing);
        (self.plan, self.lead, self.batch) = (plan, lead, batch);
        timed.map(|timed| timed.calls)
    }

    fn leaves_answers(&self) -> bool {
        true
    }

    fn batch(&self) -> u32 {
        self.batch
    }
}
