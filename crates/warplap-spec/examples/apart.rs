//! What it costs to time a C kernel in a process of its own: the same kernel is timed there and in this process, in
//! turns. Arguments: a spec file, rounds, samples of a round. Prints one JSON line.
#![allow(clippy::print_stdout)]

use std::sync::Arc;
use std::time::Instant;

use warplap::core::device::Device;
use warplap::core::store::Store;
use warplap::{Cpu, Settings, Tuner};
use warplap_spec::{Apart, KernelFile, KernelProblem, Spec};

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

type Turn = Result<(f64, f64), Box<dyn std::error::Error>>;

/// Microseconds of a launch, and seconds that the turn took.
fn turn<D: Device>(tuner: &Tuner<KernelFile, D>, spec: &Arc<Spec>, samples: u32) -> Turn {
    let started = Instant::now();
    let benched = tuner.bench(&KernelProblem::new(spec), spec.entry(), None, samples)??;
    Ok((benched.measurement.median_us, started.elapsed().as_secs_f64()))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [file, rounds, samples] = &arguments[..] else { return Err("expected SPEC ROUNDS SAMPLES".into()) };
    let samples: u32 = samples.parse()?;
    let spec = Spec::load(file.as_ref())?;
    spec.ready()?;
    let cpu = Arc::new(Cpu::new());
    let here = Tuner::new(cpu.clone(), spec.on_cpu(), Store::memory(), Settings::default());
    let apart = Tuner::new(Arc::new(Apart::new(cpu)), spec.apart(), Store::memory(), Settings::default());
    turn(&here, &spec, samples)?;
    let (mut there_us, mut here_us, mut there_s, mut here_s) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds.parse::<usize>()?.max(1) {
        let ((a, a_s), (b, b_s)) = (turn(&here, &spec, samples)?, turn(&apart, &spec, samples)?);
        for (list, value) in [(&mut here_us, a), (&mut here_s, a_s), (&mut there_us, b), (&mut there_s, b_s)] {
            list.push(value);
        }
    }
    let mut ratios: Vec<f64> = there_us.iter().zip(&here_us).map(|(there, here)| there / here - 1.0).collect();
    println!(
        r#"{{"here_us": {:.3}, "apart_us": {:.3}, "apart_over_here": {:+.4}, "bench_here_s": {:.4}, "bench_apart_s": {:.4}, "samples": {samples}}}"#,
        median(&mut here_us),
        median(&mut there_us),
        median(&mut ratios),
        median(&mut here_s),
        median(&mut there_s),
    );
    Ok(())
}
