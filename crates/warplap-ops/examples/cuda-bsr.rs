//! Proves the CUDA kernels of the block-sparse product on edge shapes and random problems, then races a few. Needs an
//! NVIDIA GPU and NVRTC.
//!
//! `cuda-bsr edges [PART OF] | random COUNT [SEED] | tune PROBLEM...` with `WARPLAP_SECONDS` (budget of one race, or of the random
//! problems) and `WARPLAP_ARTIFACTS` (a folder).
#![allow(clippy::print_stdout)]

use std::sync::Arc;
use std::time::Instant;

use warplap_core::catalog::Catalog;
use warplap_core::device::Device;
use warplap_core::measure::{CacheState, Policy, Queueing};
use warplap_core::op::Op;
use warplap_core::problem::Problem;
use warplap_core::progress::Silent;
use warplap_core::settings::{Budget, Settings};
use warplap_core::store::MemoryStore;
use warplap_core::tuner::Tuner;
use warplap_core::variant::Fit;
use warplap_core::verify::{Case, Drawing};
use warplap_cuda::Cuda;
use warplap_ops::bsr::{Bsr, BsrProblem, cuda};

type Outcome = Result<(), Box<dyn std::error::Error>>;

fn main() -> Outcome {
    let mut words = std::env::args().skip(1);
    let task = words.next().unwrap_or_else(|| "tune".into());
    let mut device = Cuda::open(0)?;
    if let Some(folder) = std::env::var_os("WARPLAP_ARTIFACTS") {
        device = device.with_artifacts(folder.as_ref());
    }
    let device = Arc::new(device);
    println!("{:?}", device.fingerprint().soft);
    let seconds = std::env::var("WARPLAP_SECONDS").ok().and_then(|s| s.parse().ok()).unwrap_or(20.0);
    match task.as_str() {
        "edges" => {
            let mut number = || words.next().and_then(|w| w.parse().ok());
            edges(&device, number().unwrap_or(0), number().unwrap_or(1))
        }
        "random" => {
            let mut number = || words.next().and_then(|w| w.parse().ok());
            random(&device, number().unwrap_or(200), number().unwrap_or(11), seconds)
        }
        _ => tune(&device, words.collect(), seconds),
    }
}

/// Proves at most so many configs of every variant that fits.
fn prove(
    device: &Cuda,
    catalog: &Catalog<Bsr, Cuda>,
    p: &BsrProblem,
    seed: u64,
    most: usize,
) -> Result<(usize, usize), Box<dyn std::error::Error>> {
    let (mut right, mut wrong) = (0, 0);
    let drawing = Arc::new(Drawing::new::<Bsr>(p, seed)?);
    let mut case = Case::of(p, device, &drawing)?;
    for variant in catalog.variants().iter().filter(|v| matches!(v.fit(p, device), Fit::Fits(_))) {
        let configs = variant.space(p, device).configs();
        let step = configs.len().div_ceil(most).max(1);
        for config in configs.into_iter().skip(seed as usize % step).step_by(step) {
            let proof = variant
                .build(p, &config, device)
                .and_then(|kernel| case.verify(&*kernel, device).map(|p| p.error))
                .and_then(|error| case.inputs_untouched(device).map(|()| error));
            match proof {
                Ok(_) => right += 1,
                Err(why) => {
                    wrong += 1;
                    println!("{}: {}[{config}]: {why}", Bsr::text(p), variant.id());
                }
            }
        }
    }
    Ok((right, wrong))
}

/// Shapes with ragged columns, empty and full matrices, one block, uneven rows, in every block size, order and type.
fn edges(device: &Cuda, part: u64, of: u64) -> Outcome {
    let (mut right, mut wrong, mut at) = (0, 0, 0);
    let catalog = cuda::catalog();
    for (rows, columns, n, rest) in [
        (1, 1, 8, "density=1"),
        (3, 5, 264, "density=0"),
        (5, 7, 200, "density=0.03"),
        (7, 6, 328, "density=0.4"),
        (9, 4, 64, "density=1"),
        (6, 8, 520, "density=0.25,imbalance=3"),
        (4, 4, 7, "density=0.5"),
    ] {
        for bs in [8, 16, 24, 32, 64, 128] {
            for dtype in ["bf16", "f16", "f32"] {
                for layout in ["", ",b=col"] {
                    let (m, k) = (rows * bs, columns * bs);
                    let text = format!("bsr:m={m},k={k},n={n},bs={bs},dtype={dtype},{rest}{layout}");
                    let Ok(p) = Bsr::parse(&text) else { continue };
                    at += 1;
                    if at % of.max(1) != part {
                        continue;
                    }
                    let (r, w) = prove(device, &catalog, &p, 7, 2)?;
                    (right, wrong) = (right + r, wrong + w);
                }
            }
        }
    }
    println!("edges: {right} right, {wrong} not");
    Ok(())
}

/// Random problems from a few compiled shapes: patterns, densities and imbalances change, the kernels do not.
fn random(device: &Cuda, count: u64, seed: u64, seconds: f64) -> Outcome {
    let (mut right, mut wrong, mut problems) = (0, 0, 0);
    let (catalog, started) = (cuda::catalog(), Instant::now());
    let mut rng = fastrand::Rng::with_seed(seed);
    while problems < count && started.elapsed().as_secs_f64() < seconds {
        let bs = [16, 32, 64, 128][rng.usize(..4)];
        let (m, k) = (bs * rng.u64(1..=12), [512, 1024][rng.usize(..2)]);
        let n = [64, 72, 256, 400][rng.usize(..4)];
        let pattern = ["uniform", "banded", "blockdiag", "powerlaw", "causal"][rng.usize(..5)];
        let (dtype, layout) = (["f16", "bf16", "f32"][rng.usize(..3)], ["row", "col"][rng.usize(..2)]);
        let skew = if rng.bool() { format!(",imbalance={:.1}", 1.0 + 3.0 * rng.f64()) } else { String::new() };
        let density = rng.f64().powi(2);
        let text = format!(
            "bsr:m={m},k={k},n={n},bs={bs},density={density:.3},dtype={dtype},pattern={pattern},b={layout}{skew}"
        );
        let Ok(p) = Bsr::parse(&text) else { continue };
        let (r, w) = prove(device, &catalog, &p, rng.u64(..1000), 2)?;
        (right, wrong, problems) = (right + r, wrong + w, problems + 1);
    }
    println!("random: {problems} problems, {right} right, {wrong} not, {:.1} s", started.elapsed().as_secs_f64());
    Ok(())
}

fn tune(device: &Arc<Cuda>, problems: Vec<String>, seconds: f64) -> Outcome {
    let policy = Policy { queueing: Queueing::Graph, cache: CacheState::Hot };
    let settings = Settings { budget: Budget { seconds, ..Budget::default() }, policy, ..Settings::default() };
    let tuner = Tuner::new(device.clone(), cuda::catalog(), Arc::new(MemoryStore::new()), settings);
    for text in problems {
        let problem = Bsr::parse(&text)?;
        let started = Instant::now();
        let tuned = match tuner.tune(&problem, &Silent) {
            Ok(tuned) => tuned,
            Err(why) => {
                println!("{text}: {why}");
                continue;
            }
        };
        let trials = &tuned.edition.trials;
        let winner = &tuned.edition.verdict.winner;
        let of_winner = trials.iter().find(|t| t.candidate == *winner).and_then(|t| t.median_us()).unwrap_or(f64::NAN);
        println!(
            "{text}: {winner} {of_winner:.2} us, {:.1} TFLOP/s; {} trials, {} right, {:.1} s",
            problem.work().flops / of_winner * 1e-6,
            trials.len(),
            trials.iter().filter(|t| t.is_right()).count(),
            started.elapsed().as_secs_f64()
        );
        for trial in trials.iter().filter(|t| !t.is_right()).take(4) {
            println!("   {}: {:?}", trial.candidate, trial.outcome);
        }
    }
    Ok(())
}
