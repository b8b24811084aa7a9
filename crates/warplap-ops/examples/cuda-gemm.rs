//! Proves the CUDA kernels of the dense product on edge shapes, then races a few shapes. Needs an NVIDIA GPU and NVRTC.
//!
//! `cuda-gemm edges | tune PROBLEM...` with `WARPLAP_SECONDS` (budget of one race), `WARPLAP_ARTIFACTS` (a folder) and
//! `WARPLAP_POLICY` (any of the words stream, cold; else graph and hot).
#![allow(clippy::print_stdout)]

use std::sync::Arc;
use std::time::Instant;

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
use warplap_ops::gemm::{Gemm, cuda};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = std::env::args().skip(1);
    let task = words.next().unwrap_or_else(|| "tune".into());
    let mut device = Cuda::open(0)?;
    if let Some(folder) = std::env::var_os("WARPLAP_ARTIFACTS") {
        device = device.with_artifacts(folder.as_ref());
    }
    let device = Arc::new(device);
    println!("{:?}", device.chip());
    println!("{:?}", device.fingerprint().soft);
    match task.as_str() {
        "edges" => edges(&device),
        _ => tune(&device, words.collect()),
    }
}

/// Every config of every variant that fits, on shapes with ragged edges and padded rows, against double precision.
fn edges(device: &Cuda) -> Result<(), Box<dyn std::error::Error>> {
    let (mut right, mut wrong) = (0, 0);
    let catalog = cuda::catalog();
    for shape in [
        "m=8,n=8,k=8",
        "m=129,n=136,k=8",
        "m=257,n=1032,k=72,ldc=1040",
        "m=300,n=200,k=200,ldb=216,lda=312",
        "m=64,n=2056,k=4104",
        "m=1,n=1000,k=1000",
        "m=3,n=203,k=336,ldb=336,ldc=208",
        "m=17,n=1000,k=1000",
        "m=7,n=13,k=5",
    ] {
        for layout in ["", ",b=col", ",a=col", ",a=col,b=col"] {
            for dtype in ["bf16", "f16", "f32"] {
                let text = format!("gemm:{shape},dtype={dtype}{layout}");
                let Ok(p) = Gemm::parse(&text) else { continue };
                let drawing = Arc::new(Drawing::new::<Gemm>(&p, 7)?);
                let mut case = Case::of(&p, device, &drawing)?;
                for variant in catalog.variants().iter().filter(|v| matches!(v.fit(&p, device), Fit::Fits(_))) {
                    let configs = variant.space(&p, device).configs();
                    // A few of each: compiling takes longer than proving.
                    let step = configs.len().div_ceil(3).max(1);
                    for config in configs.into_iter().step_by(step) {
                        let proof = variant
                            .build(&p, &config, device)
                            .and_then(|kernel| case.verify(&*kernel, device).map(|p| p.error))
                            .and_then(|error| case.inputs_untouched(device).map(|()| error));
                        match proof {
                            Ok(_) => right += 1,
                            Err(why) => {
                                wrong += 1;
                                println!("{text}: {}[{config}]: {why}", variant.id());
                            }
                        }
                    }
                }
            }
        }
    }
    println!("edges: {right} right, {wrong} not");
    Ok(())
}

fn tune(device: &Arc<Cuda>, problems: Vec<String>) -> Result<(), Box<dyn std::error::Error>> {
    let seconds = std::env::var("WARPLAP_SECONDS").ok().and_then(|s| s.parse().ok()).unwrap_or(20.0);
    let words = std::env::var("WARPLAP_POLICY").unwrap_or_default();
    let queueing = if words.contains("stream") { Queueing::Stream } else { Queueing::Graph };
    let cache = if words.contains("cold") { CacheState::Cold } else { CacheState::Hot };
    let policy = Policy { queueing, cache };
    let settings = Settings { budget: Budget { seconds, ..Budget::default() }, policy, ..Settings::default() };
    let tuner = Tuner::new(device.clone(), cuda::catalog(), Arc::new(MemoryStore::new()), settings);
    for text in problems {
        let problem = Gemm::parse(&text)?;
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
    if let Some(ceilings) = device.ceilings() {
        println!("{ceilings:?}");
    }
    Ok(())
}
