//! What warplap itself costs: a hit from problem to built kernel, and a prepared handle. `cargo bench --bench hit`.
//!
//! The shortest of many windows counts: other work on the machine only ever adds. With `--instructions` a fixed number
//! of hits runs alone, for `valgrind --tool=callgrind`.
#![allow(clippy::print_stdout, missing_docs)]

use std::hint::black_box;
use std::sync::Barrier;
use std::time::Instant;

use warplap::{DType, Gemm, GemmProblem, Mode, Session};

const CALLS: usize = 1_000;
const WINDOWS: usize = 3_000;

/// Nanoseconds of one call: shortest, and median, of many windows.
fn time(mut call: impl FnMut(usize)) -> (f64, f64) {
    let mut windows: Vec<f64> = (0..WINDOWS)
        .map(|_| {
            let start = Instant::now();
            for i in 0..CALLS {
                call(i);
            }
            start.elapsed().as_nanos() as f64 / CALLS as f64
        })
        .collect();
    windows.sort_by(f64::total_cmp);
    (windows[0], windows[WINDOWS / 2])
}

fn main() {
    let session = Session::builder().in_memory().mode(Mode::Off).build();
    let tuner = session.tuner::<Gemm>();
    let problems: Vec<GemmProblem> = (0..64).map(|i| GemmProblem::new(1 + i, 64, 64, DType::F32)).collect();
    for problem in &problems {
        tuner.prepare(problem).expect("the reference fits everything");
    }
    let hit = |i: usize| {
        let problem = black_box(&problems[i % problems.len()]);
        black_box(tuner.with_kernel(problem, |kernel| black_box(kernel.workspace())).is_ok());
    };
    if std::env::args().any(|a| a == "--instructions") {
        (0..1_000_000).for_each(hit);
        return;
    }
    let line = |what: &str, (min, median): (f64, f64)| println!("{what:<44} {min:>7.1} ns min {median:>7.1} ns median");
    line(
        "empty loop",
        time(|i| {
            black_box(i);
        }),
    );
    line("hit: problem -> built kernel, one key", time(|_| hit(0)));
    line("hit: problem -> built kernel, 64 keys", time(hit));
    let prepared = tuner.prepare(&problems[0]).expect("as above");
    line(
        "prepared handle",
        time(|_| {
            black_box(black_box(&prepared).workspace());
        }),
    );
    let threads = 2;
    let barrier = Barrier::new(threads);
    let each: Vec<(f64, f64)> = std::thread::scope(|scope| {
        let run = || {
            barrier.wait();
            time(|_| hit(0))
        };
        let handles: Vec<_> = (0..threads).map(|_| scope.spawn(run)).collect();
        handles.into_iter().map(|h| h.join().expect("no panic")).collect()
    });
    for result in each {
        line("hit, two threads at once, per thread", result);
    }
}
