//! Proves the CUDA kernels of the block-sparse product on edge shapes and random problems, then races a few. Needs an
//! NVIDIA GPU and NVRTC.
//!
//! `cuda-bsr edges [PART OF] | random COUNT [SEED] | checks | tune PROBLEM...` with `WARPLAP_SECONDS` (budget of one race, or of
//! the random problems), `WARPLAP_ARTIFACTS` (a folder) and `WARPLAP_ONLY` (variants that are proved, in place of all). `tune` needs
//! `WARPLAP_WORKER`, the path of the program `warplap`.
#![allow(clippy::print_stdout)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use warplap_core::arg::Arg;
use warplap_core::array::Array;
use warplap_core::card::Entry;
use warplap_core::catalog::Catalog;
use warplap_core::device::Device;
use warplap_core::measure::{CacheState, Policy, Queueing};
use warplap_core::op::Op;
use warplap_core::problem::Problem;
use warplap_core::progress::Silent;
use warplap_core::settings::{Budget, Settings};
use warplap_core::store::Store;
use warplap_core::tuner::Tuner;
use warplap_core::variant::{Fit, Variant};
use warplap_core::verify::Case;
use warplap_cuda::Cuda;
use warplap_ops::bsr::{Bsr, cuda};
use warplap_ops::sampled::{self, Sampled};

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
        "checks" => checks(&device),
        _ => tune(&device, words.collect(), seconds),
    }
}

/// Right answers and others, by variant.
type Tally = BTreeMap<String, [usize; 2]>;

/// Proves at most so many configs of every variant that fits. `pick` says which.
fn prove<O: Op>(
    device: &Cuda,
    catalog: &Catalog<O, Cuda>,
    p: &O::Problem,
    (pick, most): (u64, usize),
    tally: &mut Tally,
) -> Outcome {
    let mut case = Case::new(&Entry::new(p, catalog), device, pick)?;
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

fn summary(what: &str, problems: u64, tally: &Tally, started: Instant) {
    for (variant, [right, not]) in tally {
        println!("   {variant:24} {right:5} right {not:3} not");
    }
    let sum = |i: usize| tally.values().map(|t| t[i]).sum::<usize>();
    let seconds = started.elapsed().as_secs_f64();
    println!("{what}: {problems} problems, {} right, {} not, {seconds:.1} s", sum(0), sum(1));
}

/// Shapes with ragged columns, empty and full matrices, one block, uneven rows, in every block size, order and type, square blocks and
/// others.
fn edges(device: &Cuda, part: u64, of: u64) -> Outcome {
    let (mut tally, mut at, mut problems, started) = (Tally::new(), 0, 0, Instant::now());
    let (catalog, sampled) = (cuda::catalog(), sampled::cuda::catalog());
    for (rows, columns, n, rest) in [
        (1, 1, 8, "density=1"),
        (3, 5, 264, "density=0"),
        (5, 7, 200, "density=0.03"),
        (7, 6, 328, "density=0.4"),
        (9, 4, 64, "density=1"),
        (6, 8, 520, "density=0.25,imbalance=3"),
        (12, 40, 264, "density=0.1,imbalance=8"),
        (4, 4, 7, "density=0.5"),
    ] {
        for bs in [8, 16, 24, 32, 64, 128] {
            for dtype in ["bf16", "f16", "f32"] {
                for layout in ["", ",b=col", ",c=col", ",b=col,c=col"] {
                    // A column-major C is asked for with blocks that are not square in every other size.
                    let bc = if layout.contains("c=") && bs % 32 == 0 { bs / 2 } else { bs };
                    let (m, k) = (rows * bs, columns * bc);
                    let text = format!("m={m},k={k},n={n},bs={bs},bc={bc},dtype={dtype},{rest}{layout}");
                    at += 1;
                    if at % of.max(1) != part {
                        continue;
                    }
                    if let Ok(p) = Bsr::parse(&text) {
                        prove(device, &catalog, &p, (7, 2), &mut tally)?;
                        problems += 1;
                    }
                    let g = if layout.is_empty() { "" } else { ",g=col" };
                    let text = format!("m={m},k={k},n={n},bs={bs},dtype={dtype},{rest}{layout}");
                    if let Ok(p) = Sampled::parse(&format!("{text}{g}")) {
                        prove(device, &sampled, &p, (7, 1), &mut tally)?;
                        problems += 1;
                    }
                }
            }
        }
    }
    summary("edges", problems, &tally, started);
    Ok(())
}

/// Random small problems over all that a problem can say; every variant that fits is proved on one setting, of three that it is
/// proved on again and again.
fn random(device: &Cuda, count: u64, seed: u64, seconds: f64) -> Outcome {
    let (mut tally, mut problems, started) = (Tally::new(), 0, Instant::now());
    let (catalog, sampled) = (cuda::catalog(), sampled::cuda::catalog());
    let mut rng = fastrand::Rng::with_seed(seed);
    while problems < count && started.elapsed().as_secs_f64() < seconds {
        let bs = [16, 32, 64, 128, 16, 32, 64, 128, 8, 24][rng.usize(..10)];
        let bc = if rng.u8(..4) == 0 { [16, 32, 64, 128, 8][rng.usize(..5)] } else { bs };
        let (m, k) = (bs * rng.u64(1..=1024 / bs), bc * [1, 4, 512 / bc, 1024 / bc][rng.usize(..4)]);
        let n = [64, 72, 256, 400, 8, 5][rng.usize(..6)];
        let pattern = ["uniform", "banded", "blockdiag", "powerlaw", "causal", "window"][rng.usize(..6)];
        let dtype = ["f16", "bf16", "f32", "f32,tf32=true"][rng.usize(..4)];
        let layout = ["row", "col"][rng.usize(..2)];
        let written = if rng.u8(..3) == 0 { ",c=col" } else { "" };
        let skew = if rng.bool() { format!(",imbalance={:.1}", 1.0 + 7.0 * rng.f64()) } else { String::new() };
        let scale = ["", "", ",alpha=-0.75", ",beta=1", ",alpha=1.5,beta=-0.5"][rng.usize(..5)];
        let turned = if rng.u8(..4) == 0 { ",turned=true" } else { "" };
        let density = rng.f64().powi(2);
        let shape = format!("m={m},k={k},n={n},bs={bs},density={density:.3},pattern={pattern}{skew},b={layout}");
        let pick = rng.u64(..3);
        if rng.u8(..5) == 0 {
            let (g, dtype) = (["row", "col"][rng.usize(..2)], dtype.split(',').next().unwrap_or(dtype));
            if bc != bs {
                continue;
            }
            let Ok(p) = Sampled::parse(&format!("{shape},dtype={dtype},g={g}")) else { continue };
            prove(device, &sampled, &p, (pick, 1), &mut tally)?;
        } else {
            let Ok(p) = Bsr::parse(&format!("{shape},bc={bc},dtype={dtype}{scale}{turned}{written}")) else { continue };
            prove(device, &catalog, &p, (pick, 1), &mut tally)?;
        }
        problems += 1;
    }
    summary("random", problems, &tally, started);
    Ok(())
}

/// Indices are looked at where they lie: a good matrix passes, each kind of damage has its own error. And C's own former
/// elements are the addend where no other is given.
fn checks(device: &Cuda) -> Outcome {
    let check = cuda::IndexCheck::new(device)?;
    let p = Bsr::parse("m=32,k=48,n=8,bs=16,density=0.667,dtype=f16,turned=true,beta=1,inplace=true")?;
    let upload = |list: &[i32]| device.upload(&Array::I32(list.to_vec()));
    let (values, b) = (device.alloc(p.dtype, p.values_len())?, device.alloc(p.dtype, (p.k * p.n) as usize)?);
    let mut c = device.alloc(p.dtype, (p.m * p.n) as usize)?;
    for (rows, columns, places, wanted) in [
        ([0, 1, 4], [2, 0, 1, 2], [3, 1, 0, 2], ""),
        ([1, 1, 4], [2, 0, 1, 2], [3, 1, 0, 2], "row_ptr"),
        ([0, -1, 4], [2, 0, 1, 2], [3, 1, 0, 2], "row_ptr"),
        ([0, 0, 4], [2, 0, 1, 2], [3, 1, 0, 2], "row_ptr"),
        ([0, 1, 3], [2, 0, 1, 2], [3, 1, 0, 2], "row_ptr"),
        ([0, 1, 4], [3, 0, 1, 2], [3, 1, 0, 2], "col_idx"),
        ([0, 1, 4], [2, 0, -1, 2], [3, 1, 0, 2], "col_idx"),
        ([0, 1, 4], [2, 1, 0, 2], [3, 1, 0, 2], "col_idx"),
        ([0, 1, 4], [2, 0, 0, 2], [3, 1, 0, 2], "col_idx"),
        ([0, 1, 4], [2, 0, 1, 2], [3, 1, 0, 4], "place"),
        ([0, 1, 4], [2, 0, 1, 2], [3, 1, 0, 1], "place"),
    ] {
        let (row_ptr, col_idx, place) = (upload(&rows)?, upload(&columns)?, upload(&places)?);
        let args = [
            Arg::Read(device.view(&row_ptr, 0..3)),
            Arg::Read(device.view(&col_idx, 0..4)),
            Arg::Read(device.view(&values, 0..p.values_len())),
            Arg::Read(device.view(&b, 0..(p.k * p.n) as usize)),
            Arg::Write(device.view_mut(&mut c, 0..(p.m * p.n) as usize)),
            Arg::Absent,
            Arg::Read(device.view(&place, 0..4)),
        ];
        let said = check.check(&p, &args, device.queue()).map_or_else(|e| e.to_string(), |()| String::new());
        let right = if wanted.is_empty() { said.is_empty() } else { said.contains(wanted) };
        println!("checks: {} {rows:?} {columns:?} {places:?}: {said}", if right { "right" } else { "WRONG" });
    }
    in_place(device)
}

/// beta · C with C's own elements, of an empty matrix and of others.
fn in_place(device: &Cuda) -> Outcome {
    let (mut tally, started) = (Tally::new(), Instant::now());
    let texts = [
        "m=128,k=128,n=64,bs=64,density=0,dtype=f16,beta=2,inplace=true",
        "m=64,k=64,n=64,bs=16,density=0,dtype=f32,beta=2,inplace=true",
        "m=256,k=128,n=72,bs=32,density=0.5,dtype=bf16,alpha=-1.5,beta=0.5,inplace=true",
        "m=256,k=256,n=64,bs=16,density=0.3,dtype=f16,beta=1,c=col,inplace=true",
    ];
    for text in texts {
        prove(device, &cuda::catalog(), &Bsr::parse(text)?, (0, 3), &mut tally)?;
    }
    summary("in place", texts.len() as u64, &tally, started);
    Ok(())
}

fn tune(device: &Arc<Cuda>, problems: Vec<String>, seconds: f64) -> Outcome {
    let policy = Policy { queueing: Queueing::Graph, cache: CacheState::Hot };
    let settings = Settings { budget: Budget { seconds, ..Budget::default() }, policy, ..Settings::default() };
    let tuner = Tuner::new(device.clone(), cuda::catalog(), Store::memory(), settings);
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
