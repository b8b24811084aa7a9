//! The last heat of a race: two choices for one problem come in, as calls on the caller's own tensors; which of them is
//! to answer goes out. What is timed is what a user's stopwatch sees: finding the kernel, taking the tensors apart,
//! making the output, launching.

use std::time::{Duration, Instant};

use pyo3::prelude::*;
use warplap::core::candidate::Candidate;
use warplap::core::measure::{RacePlan, Stopwatch, race};
use warplap::core::record::EndToEndRace;
use warplap::core::rejection::Rejection;

use crate::tensor::kernel_argument::LaunchDevice;

/// Rounds that shall fit into the heat, a block of calls of either side in each.
const ROUNDS: f64 = 6.0;

/// The share of a budget that the heat may take, and its seconds at the most: blocks of 50 ms. A processor that has work
/// for that long runs at another clock than one that had some for a moment, and not all kernels bear it alike: a product
/// of 512³ that is 1 % ahead of torch's in blocks of 20 ms is 7 % behind in blocks of 50 ms and more.
pub(crate) const SHARE: f64 = 0.15;
const LIMIT: f64 = 0.6;

/// What a kernel of ours must be ahead of a library's function to answer in its place.
pub(crate) const AHEAD: f64 = 0.01;

/// Calls of one sample at the most.
const MOST: u32 = 50_000;

/// The share of a budget that calls may take which are longer than a block.
const LONG: f64 = 0.2;

/// Calls longer than this need no other one before them.
const LEADS_IN: f64 = 2e-3;

/// Rounds without which nothing is said.
const LEAST: u32 = 3;

/// The chance that somebody is sent away who was not slower.
const DELTA: f64 = 0.01;

/// Calls to the winner of a race and to its rival, by lane.
struct Calls<'c, 'q, D: LaunchDevice> {
    call: &'c mut dyn FnMut(usize) -> PyResult<()>,
    device: &'c D,
    queue: &'q D::Queue,
    batch: [u32; 2],
    /// Whether a call that does not count comes first.
    leads_in: bool,
}

impl<D: LaunchDevice> Calls<'_, '_, D> {
    fn block(&mut self, lane: usize, calls: u32) -> PyResult<f64> {
        self.device.rouse();
        if self.leads_in {
            (self.call)(lane)?;
        }
        self.device.wait(self.queue);
        let start = Instant::now();
        for _ in 0..calls {
            (self.call)(lane)?;
        }
        self.device.wait(self.queue);
        Ok(start.elapsed().as_secs_f64() / f64::from(calls))
    }
}

impl<D: LaunchDevice> Stopwatch for Calls<'_, '_, D> {
    fn sample(&mut self, lane: usize) -> Result<f64, Rejection> {
        self.block(lane, self.batch[lane]).map_err(|e| Rejection::LaunchFailed { reason: e.to_string() })
    }

    fn batch(&self, lane: usize) -> u32 {
        self.batch[lane]
    }
}

/// Lets the winner of a race meet its rival, both as calls by lane (0 and 1) that may be made again and again, within a
/// share of the seconds of a budget; `library` is the lane of a library's function. `None` where the calls are too long
/// for that, or one fails.
pub(crate) fn run<D: LaunchDevice>(
    device: &D,
    queue: &D::Queue,
    (winner, rival): (&Candidate, &Candidate),
    library: usize,
    call: &mut dyn FnMut(usize) -> PyResult<()>,
    budget: f64,
) -> Option<EndToEndRace> {
    let mut calls = Calls { call, device, queue, batch: [1, 1], leads_in: true };
    let once = [calls.block(0, 1).ok()?, calls.block(1, 1).ok()?];
    let (least, limit) = (f64::from(LEAST) * (once[0] + once[1]), (SHARE * budget).min(LIMIT));
    if least > limit.max(LONG * budget) {
        return None;
    }
    let (sample, limit) = (limit / (2.0 * ROUNDS), Duration::from_secs_f64(limit.max(least)));
    calls.leads_in = once[0].min(once[1]) < LEADS_IN;
    calls.batch = once.map(|once| (sample / once.max(1e-9)).ceil().clamp(1.0, f64::from(MOST)) as u32);
    let plan = RacePlan { delta: DELTA, confirm: false, ..RacePlan::default() };
    let (started, mut asked) = (Instant::now(), 0u32);
    let mut stop = || {
        asked += 1;
        asked > 2 * LEAST && started.elapsed() > limit
    };
    let ran = race(2, &mut calls, &plan, &mut stop);
    // Where little is to be had, users get what they would have without us.
    let ahead = ran.gap(library, 1 - library)?.ln.exp_m1();
    let first = if ahead > AHEAD { 1 - library } else { library };
    let second = 1 - first;
    let name = |lane: usize| if lane == 0 { winner.clone() } else { rival.clone() };
    let call_us = ran.contestants.get(first)?.measurement()?.median_us;
    let gap = ran.gap(second, first)?.ln.exp_m1();
    Some(EndToEndRace { winner: name(first), other: name(second), call_us, gap })
}
