//! Whether the time a cell tells is the time that passed: a winner's lap comes in, with what it told in the race; that
//! both agree with the clock here goes out, or a Rejection.
//!
//! A kernel shares its memory with the cell's clock, so the cell is not believed. A long sample is held against the
//! clock here, less what as many calls of nothing take in another cell. A busy machine makes a right kernel look slow,
//! never a slow one fast: so there are many tries, and one that agrees is enough.

use std::time::{Duration, Instant};

use warplap::core::rejection::Rejection;

use super::cell::{Cell, Extra, Series, Timed};
use super::inputs::Inputs;
use super::lap::{MAX_BATCH, POISON, RemoteLap, SWAP};
use super::remote::{Recorded, wrong};
use crate::spec::Spec;

/// Time that passed may be so many times the time told, and as much more for each launch and for the way there.
const AT_MOST: f64 = 1.3;
const EACH: f64 = 30e-9;
const WAY: f64 = 200e-6;
/// The same for one short sample of the race.
const SHORT_WAY: f64 = 20e-6;
/// Seconds of the first long sample, and of the longest.
const LONG_SAMPLE: f64 = 20e-3;
const LONGEST_SAMPLE: f64 = 160e-3;
/// Tries at the least, and the seconds after which those are enough.
const TRIES: u32 = 6;
const ENOUGH: f64 = 1.5;
/// A launch whose arguments are new in every element may take so many times as long (branches that were learnt), and
/// besides these seconds and its memory's, at so many bytes a second (caches).
const ALL_NEW: f64 = 10.0;
const ALL_NEW_EACH: f64 = 1e-6;
const COLD: f64 = 4e9;
const ALL_NEW_LAUNCHES: f64 = 64.0;
/// Samples of the race that are kept.
const KEPT: usize = 4096;
/// Inputs with more bytes are compared after the first try alone.
const LARGE: u64 = 64 << 20;

/// What `cell.c` does to an argument of an empty call: as much as to one of a kernel's, and nothing is changed.
const TOUCH_TWO: u64 = 3;
const TOUCH: u64 = 4;

/// What was told in a race, and what passed meanwhile.
#[derive(Default)]
pub(super) struct RaceTimes {
    samples: Vec<Timed>,
    count: usize,
}

impl RaceTimes {
    /// One more sample.
    pub(super) fn add(&mut self, timed: &Timed) {
        match self.samples.get_mut(self.count % KEPT) {
            Some(old) => *old = *timed,
            None => self.samples.push(*timed),
        }
        self.count += 1;
    }

    /// Seconds of a launch as told: the median.
    fn usual(&self) -> Option<f64> {
        let mut times: Vec<f64> = self.samples.iter().map(once).collect();
        times.sort_by(f64::total_cmp);
        times.get(times.len() / 2).copied()
    }

    /// Whether those samples that told the usual time, or less, took no longer than they told: a tenth of them are
    /// enough, others may have waited for a processor.
    fn agree_with_the_clock(&self, usual: f64, lead: u32, around: f64) -> bool {
        let low: Vec<&Timed> = self.samples.iter().filter(|timed| once(timed) <= 1.05 * usual).collect();
        let agree = low.iter().filter(|timed| timed.passed <= allowed(timed, lead) + around + SHORT_WAY).count();
        agree > 0 && agree >= low.len() / 10
    }
}

fn once(timed: &Timed) -> f64 {
    timed.seconds / f64::from(timed.calls)
}

/// Seconds that all launches of a sample may take, by what was told of those that count.
fn allowed(timed: &Timed, lead: u32) -> f64 {
    AT_MOST * once(timed) * f64::from(timed.calls + lead) + EACH * f64::from(timed.calls + lead)
}

/// The check of one winner.
pub(super) struct TimeCheck<'c> {
    once: f64,
    race: &'c RaceTimes,
    empty: Option<Cell>,
    seeds: fastrand::Rng,
}

impl<'c> TimeCheck<'c> {
    /// For a kernel that takes so many seconds, by its own report.
    pub(super) fn new(spec: &Spec, once: f64, race: &'c RaceTimes) -> Self {
        let empty = spec.workshop().and_then(|workshop| workshop.empty_cell()).ok();
        TimeCheck { once, race, empty, seeds: fastrand::Rng::new() }
    }

    /// Takes long samples until one agrees with the clock here and with the race.
    pub(super) fn run(mut self, lap: &mut RemoteLap) -> Result<(), Rejection> {
        let (lead, batch) = lap.calls();
        let usual = self.race.usual().unwrap_or(f64::INFINITY);
        let (started, mut seconds, mut least) = (Instant::now(), LONG_SAMPLE, f64::INFINITY);
        let mut doubt = None;
        for attempt in 1.. {
            let launches = (seconds / self.once).ceil().clamp(1.0, f64::from(MAX_BATCH)) as u32;
            let timed = self.sample(lap, launches, attempt == 1)?;
            let around = self.around(lap, (lead, timed.calls))?;
            if timed.passed <= allowed(&timed, lead) + around + WAY {
                // What was told holds what it waited for a processor within its launches.
                let ran = (timed.passed - around) / f64::from(timed.calls + lead);
                least = least.min(if ran > 0.0 { ran.min(once(&timed)) } else { once(&timed) });
                if least <= AT_MOST * usual + EACH {
                    return self.end(lap, least);
                }
            } else if attempt < TRIES && timed.seconds < seconds / 2.0 && launches < MAX_BATCH {
                // It does less now than it did at first: too short a sample to say anything.
                self.once = once(&timed).max(1e-9);
                continue;
            } else {
                doubt = Some((timed, around));
            }
            if attempt >= TRIES && started.elapsed().as_secs_f64() > ENOUGH {
                break;
            }
            seconds = (2.0 * seconds).min(LONGEST_SAMPLE);
        }
        if let Some((timed, around)) = doubt.filter(|_| least.is_infinite()) {
            let (text, passed, calls) = (timed.seconds, timed.passed - around, timed.calls);
            return Err(wrong(format!("its process told {text:.4} s of {calls} launches, and {passed:.4} s passed")));
        }
        // The machine may be slower now than it was in the race: then the race's own samples agree with the clock.
        let around = self.around(lap, (lead, batch))?;
        if self.race.agree_with_the_clock(usual, lead, around) {
            return self.end(lap, least);
        }
        let (now, then) = (least * 1e6, usual * 1e6);
        Err(wrong(format!("its process told {then:.3} µs a launch in the race, and {now:.3} µs passed afterwards")))
    }

    /// Launches that find everything new, then a few that do not. A long sample ends when it has taken long enough,
    /// which is after a launch that took long: one that did all of its work.
    fn end(&mut self, lap: &mut RemoteLap, usual: f64) -> Result<(), Rejection> {
        self.all_new(lap, usual)?;
        let launches = self.seeds.u32(2..16);
        self.sample(lap, launches, false).map(drop)
    }

    /// Who remembers most of its answer, and works on what has changed, takes very much longer where everything has.
    fn all_new(&mut self, lap: &mut RemoteLap, usual: f64) -> Result<(), Rejection> {
        let bytes: u64 = lap.plan.iter().map(|plan| plan[1] * plan[2]).sum();
        let most = ALL_NEW * usual + ALL_NEW_EACH + bytes as f64 / COLD;
        let launches = (LONG_SAMPLE / most).ceil().clamp(1.0, ALL_NEW_LAUNCHES) as u32;
        let (started, mut least) = (Instant::now(), f64::INFINITY);
        for attempt in 1.. {
            let seed = self.seeds.u64(..);
            least = least.min(once(&lap.sample_of(launches, seed, Extra::AllNew)?));
            if least <= most {
                return Ok(());
            }
            if attempt >= TRIES && started.elapsed().as_secs_f64() > ENOUGH {
                break;
            }
        }
        let (new, usual) = (least * 1e6, usual * 1e6);
        Err(wrong(format!("takes {new:.3} µs where its arguments are new, and {usual:.3} µs where few elements are")))
    }

    /// A long sample, after which inputs must be what the cell was to make of them.
    fn sample(&mut self, lap: &mut RemoteLap, launches: u32, first: bool) -> Result<Timed, Rejection> {
        let seed = self.seeds.u64(..);
        lap.begin_anew();
        let inputs = Inputs::of(lap, if first { u64::MAX } else { LARGE })?;
        let timed = lap.sample_of(launches, seed, Extra::Nothing)?;
        inputs.are_stirred(lap, seed, timed.calls + lap.calls().0)?;
        Ok(timed)
    }

    /// Seconds of so many calls of nothing on the same memory, with all that stands around them: the shortest of three.
    fn around(&mut self, lap: &RemoteLap, calls: (u32, u32)) -> Result<f64, Rejection> {
        let Some(empty) = &mut self.empty else {
            return Ok(1e-6 * f64::from(calls.0 + calls.1));
        };
        let still = |plan: &[u64; 4]| match *plan {
            [SWAP, rest @ ..] => [TOUCH_TWO, rest[0], rest[1], rest[2]],
            [POISON, rest @ ..] => [TOUCH, rest[0], rest[1], rest[2]],
            other => other,
        };
        let plan: Vec<[u64; 4]> = lap.plan.iter().map(still).collect();
        let mut least = f64::INFINITY;
        for _ in 0..3 {
            let enough = Duration::from_secs(2);
            let sets = lap.sets.iter().map(Recorded::places).collect();
            let series =
                Series { calls, enough, first: 0, plan: &plan, sets, seed: self.seeds.u64(..), extra: Extra::Nothing };
            least = least.min(empty.time(&series, 2 * enough)?.passed);
        }
        Ok(least)
    }
}
