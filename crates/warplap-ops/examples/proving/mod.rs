//! What the examples that prove CUDA kernels share: the device, proofs of an operation's variants, a count of them, a
//! race. Needs an NVIDIA GPU and NVRTC.
//!
//! `WARPLAP_SECONDS` (budget of one race, or of the random problems), `WARPLAP_ARTIFACTS` (a folder) and `WARPLAP_ONLY`
//! (variants that are proved, in place of all). Races need `WARPLAP_WORKER`, the path of the program `warplap`.

#[allow(dead_code)]
pub(crate) mod screen;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use warplap_core::catalog::{Catalog, Raced};
use warplap_core::device::Device;
use warplap_core::engine::Tuner;
use warplap_core::erased::TypedProblem;
use warplap_core::measure::{Policy, Queueing};
use warplap_core::op::Op;
use warplap_core::problem::Problem;
use warplap_core::progress::Silent;
use warplap_core::settings::{Budget, Settings};
use warplap_core::store::Store;
use warplap_core::variant::{Fit, Variant};
use warplap_core::verify::Case;
use warplap_cuda::Cuda;

pub(crate) type Outcome = Result<(), Box<dyn std::error::Error>>;

/// The first GPU.
pub(crate) fn open() -> Result<Arc<Cuda>, Box<dyn std::error::Error>> {
    let mut device = Cuda::open(0)?;
    if let Some(folder) = std::env::var_os("WARPLAP_ARTIFACTS") {
        device = device.with_artifacts(folder.as_ref());
    }
    println!("{:?}", device.fingerprint().soft);
    Ok(Arc::new(device))
}

/// The budget that was asked for.
pub(crate) fn seconds() -> f64 {
    std::env::var("WARPLAP_SECONDS").ok().and_then(|s| s.parse().ok()).unwrap_or(20.0)
}

/// Two numbers of the command line, or those that are usual.
pub(crate) fn numbers(words: impl Iterator<Item = String>, usual: [u64; 2]) -> [u64; 2] {
    let mut values = words.map(|w| w.parse().ok());
    usual.map(|number| values.next().flatten().unwrap_or(number))
}

/// Right answers and others, by variant.
pub(crate) type Tally = BTreeMap<String, [usize; 2]>;

/// Proves at most so many configs of every variant that fits. `pick` says which.
pub(crate) fn prove<O: Op>(
    device: &Cuda,
    catalog: &Catalog<O, Cuda>,
    p: &O::Problem,
    (pick, most): (u64, usize),
    tally: &mut Tally,
) -> Outcome {
    let mut case = Case::new(&TypedProblem::new(p, catalog), device, pick)?;
    let only = std::env::var("WARPLAP_ONLY").unwrap_or_default();
    let asked = |id: &str| only.is_empty() || only.split(',').any(|one| one == id);
    let fits = |v: &&Arc<dyn Variant<O, Cuda>>| asked(v.id()) && matches!(v.fit(p, device), Fit::Fits(_));
    for variant in catalog.variants().iter().filter(fits) {
        let configs = variant.space(p, device).configs();
        let step = configs.len().div_ceil(most).max(1);
        for config in configs.into_iter().skip(pick as usize % step).step_by(step) {
            let proof = variant
                .build(p, &config, device)
                .and_then(|kernel| case.verify(&*kernel, device).map(|p| p.error))
                .and_then(|error| case.inputs_untouched(device).map(|()| error));
            let entry = tally.entry(format!("{} {}", O::NAME, variant.id())).or_default();
            entry[usize::from(proof.is_err())] += 1;
            if let Err(why) = proof {
                println!("{}: {}[{config}]: {why}", O::text(p), variant.id());
            }
        }
    }
    Ok(())
}

/// Prints the count.
pub(crate) fn summary(what: &str, problems: u64, tally: &Tally, started: Instant) {
    for (variant, [right, not]) in tally {
        println!("   {variant:24} {right:5} right {not:3} not");
    }
    let sum = |i: usize| tally.values().map(|t| t[i]).sum::<usize>();
    let seconds = started.elapsed().as_secs_f64();
    println!("{what}: {problems} problems, {} right, {} not, {seconds:.1} s", sum(0), sum(1));
}

/// Races the variants of an operation and prints who won.
pub(crate) fn tune<O: Raced<Cuda>>(device: &Arc<Cuda>, problems: impl Iterator<Item = String>) -> Outcome {
    let policy = Policy { queueing: Queueing::Graph, ..Policy::default() };
    let settings =
        Settings { budget: Budget { seconds: seconds(), ..Budget::default() }, policy, ..Settings::default() };
    let tuner = Tuner::new(device.clone(), O::catalog(), Store::memory(), settings);
    for text in problems {
        let problem = O::parse(&text)?;
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
