//! The clock on the stand-in driver, whose kernels say how long they take and how much of that others may run beside.

use std::collections::BTreeMap;

use warplap_core::device::Device;
use warplap_core::measure::{Clock, Policy, Queueing};
use warplap_cuda::{Cuda, LaunchShape, OwnSource};

#[allow(dead_code, unreachable_pub, reason = "the tests of the sandbox use the rest")]
mod standin;

const POLICIES: [Queueing; 2] = [Queueing::Graph, Queueing::Stream];

/// Microseconds of one launch of a kernel that takes `micros` and lets one behind it begin `tail` before it ends, by a
/// clock: the median of five samples; and those that an energy counter would see.
fn timed(cuda: &Cuda, queueing: Queueing, clock: Clock, micros: u32, tail: u32, early: bool) -> [f64; 2] {
    let text = format!("//@ nothing\n//~ {micros} {tail}\nextern \"C\" __global__ void idle() {{}}");
    let source = OwnSource { entry: "idle".into(), text, headers: Vec::new(), options: Vec::new() };
    let function = cuda.build_own(&source).unwrap();
    let shape = LaunchShape { grid: [8, 1, 1], threads: 32, overlap: early, ..LaunchShape::default() };
    // SAFETY: the entry takes nothing.
    let launch = move |stream: &_, _| unsafe { function.launch(&shape, &[], stream) }.map_err(|e| e.rejection());
    let policy = Policy { queueing, clock, ..Policy::default() };
    let mut lap = cuda.lap(policy, &[Vec::new()], Box::new(launch)).unwrap();
    let median = |mut times: Vec<f64>| {
        times.sort_by(f64::total_cmp);
        times[2] * 1e6
    };
    let own = median((0..5).map(|_| lap.run().unwrap()).collect());
    [own, median((0..5).map(|_| lap.back_to_back().unwrap()).collect())]
}

/// The stand-in takes real time, and a busy machine adds its own: what must hold has to hold in a quiet moment of many.
fn in_a_quiet_moment(holds: impl Fn() -> Result<(), String>) {
    let tried: Vec<String> = (0..25).map_while(|_| holds().err()).collect();
    assert!(tried.len() < 25, "{}", tried.last().unwrap());
}

#[test]
fn a_kernel_that_overlaps_with_itself_is_favoured_back_to_back_and_not_in_use() {
    let cuda = standin::opened().without_sandbox();
    for queueing in POLICIES {
        in_a_quiet_moment(|| {
            let mut took = BTreeMap::new();
            for (name, clock) in [("use", Clock::Use), ("back to back", Clock::BackToBack)] {
                for (kernel, micros, tail, early) in [("overlaps", 2000, 900, true), ("shorter", 1600, 0, false)] {
                    took.insert((name, kernel), timed(&cuda, queueing, clock, micros, tail, early)[0]);
                }
            }
            let near = |key, expected: f64| (took[&key] - expected).abs() < 0.1 * expected;
            let in_use = near(("use", "overlaps"), 2000.0) && near(("use", "shorter"), 1600.0);
            // The first of a batch has nobody to begin under.
            let chained = near(("back to back", "shorter"), 1600.0) && took[&("back to back", "overlaps")] <= 2000.0;
            if in_use && chained { Ok(()) } else { Err(format!("{took:?}")) }
        });
    }
}

#[test]
fn a_batch_of_short_launches_overlaps_back_to_back_only() {
    let cuda = standin::opened().without_sandbox();
    let policy = |clock| timed(&cuda, Queueing::Graph, clock, 40, 20, true);
    in_a_quiet_moment(|| {
        let [used, counted] = policy(Clock::Use);
        let [chained, _] = policy(Clock::BackToBack);
        // An energy counter sees whatever runs: nothing but the launches may.
        let holds = used > 36.0 && chained < 30.0 && counted < 30.0;
        if holds { Ok(()) } else { Err(format!("{used} in use, {chained} back to back, {counted} counted")) }
    });
}

#[test]
fn what_a_launch_stands_behind_is_taken_off_whatever_it_takes() {
    let cuda = standin::opened().without_sandbox();
    for micros in [5, 50, 500] {
        in_a_quiet_moment(|| {
            let [used, _] = timed(&cuda, Queueing::Graph, Clock::Use, micros, 0, false);
            let [chained, _] = timed(&cuda, Queueing::Graph, Clock::BackToBack, micros, 0, false);
            let holds = (used - chained).abs() < 0.1 * chained + 1.0;
            if holds { Ok(()) } else { Err(format!("{micros} µs: {used} in use, {chained} back to back")) }
        });
    }
}
