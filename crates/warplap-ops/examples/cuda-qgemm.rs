//! Proves the CUDA kernels of products of 8-bit numbers, then times them beside cuBLASLt. Needs a GPU and NVRTC.
//!
//! `cuda-qgemm edges | random | build PROBLEM... | screen PROBLEM...`
//! - `edges`: sampled configs of every variant on ragged shapes of all types and factors, against double precision
//! - `random`: random problems until `WARPLAP_SECONDS` are over
//! - `build`: compiles what `screen` needs, so that it need not
//! - `screen`: times every config, proves the fastest on the problem itself, and times those again in one interleaved
//!   race
//!
//! `WARPLAP_SHARD` (`2/8`: the third of eight processes that share `edges` and `build`), `WARPLAP_SHOW` (lines of each
//! screen); the others are those of `proving`.
#![allow(clippy::print_stdout)]

use std::cell::RefCell;
use std::time::Instant;

use warplap_core::card::Entry;
use warplap_core::device::Device;
use warplap_core::measure::{Policy, Queueing};
use warplap_core::op::Op;
use warplap_core::problem::Problem;
use warplap_core::space::Config;
use warplap_core::variant::{Fit, Kernel, Priority};
use warplap_core::verify::Case;
use warplap_cuda::Cuda;
use warplap_ops::qgemm::{Qgemm, QgemmProblem, cuda};

use proving::{Outcome, Tally, open, prove, seconds, summary};

#[allow(dead_code)]
mod proving;

fn main() -> Outcome {
    let mut words = std::env::args().skip(1);
    let task = words.next().unwrap_or_else(|| "edges".into());
    let problems = words.map(|text| Qgemm::parse(&text)).collect::<Result<Vec<_>, _>>()?;
    let device = open()?;
    match task.as_str() {
        "edges" => edges(&device),
        "random" => random(&device),
        "build" => build(&device, &problems),
        "screen" => problems.iter().try_for_each(|p| screen(&device, p)),
        other => Err(format!("no task '{other}'").into()),
    }
}

/// Whether the i-th piece of work is this process's.
fn mine(i: usize) -> bool {
    let shard = std::env::var("WARPLAP_SHARD").unwrap_or_default();
    let parts = shard.split_once('/').and_then(|(i, n)| Some((i.parse::<usize>().ok()?, n.parse::<usize>().ok()?)));
    parts.is_none_or(|(part, of)| i % of.max(1) == part)
}

/// The kinds of a product.
fn kinds() -> Vec<String> {
    let mut kinds = vec!["dtype=i8".to_string()];
    for scale in ["none", "tensor", "row", "block"] {
        for out in ["bf16", "f16", "f32"] {
            kinds.push(format!("out={out},scale={scale}"));
            if scale != "block" {
                kinds.push(format!("out={out},scale={scale},fast=true"));
            }
        }
    }
    kinds
}

fn edges(device: &Cuda) -> Outcome {
    let shapes = [
        "m=1,n=16,k=16",
        "m=8,n=64,k=128",
        "m=3,n=100,k=48",
        "m=17,n=1000,k=1040",
        "m=65,n=272,k=304",
        "m=129,n=136,k=144",
        "m=200,n=2064,k=4112",
        "m=520,n=784,k=1104",
        "m=7,n=13,k=5",
        "m=131,n=67,k=259",
    ];
    let (mut tally, started, mut turn) = (Tally::new(), Instant::now(), 0);
    for shape in shapes {
        for kind in kinds() {
            turn += 1;
            if mine(turn) {
                prove(
                    device,
                    &cuda::catalog(),
                    &Qgemm::parse(&format!("{shape},{kind}"))?,
                    (turn as u64, 3),
                    &mut tally,
                )?;
            }
        }
    }
    summary("edges", turn as u64, &tally, started);
    Ok(())
}

fn random(device: &Cuda) -> Outcome {
    let (mut tally, started, mut count, kinds) = (Tally::new(), Instant::now(), 0, kinds());
    let shard = std::env::var("WARPLAP_SHARD").unwrap_or_default();
    let mut rng = fastrand::Rng::with_seed(shard.bytes().map(u64::from).sum::<u64>() + 99);
    while started.elapsed().as_secs_f64() < seconds() {
        let even = rng.u64(..4) > 0;
        let size = |rng: &mut fastrand::Rng, most: u64| {
            let size = 1 + (most as f64).powf(rng.f64()) as u64;
            if even { size.next_multiple_of(16) } else { size }
        };
        let (m, n, k) = (1 + 1000f64.powf(rng.f64()) as u64, size(&mut rng, 3000), size(&mut rng, 6000));
        let kind = &kinds[rng.usize(..kinds.len())];
        let p = Qgemm::parse(&format!("m={m},n={n},k={k},{kind}"))?;
        prove(device, &cuda::catalog(), &p, (rng.u64(..), 2), &mut tally)?;
        count += 1;
    }
    summary("random", count, &tally, started);
    Ok(())
}

/// What may race for a problem.
fn entries(device: &Cuda, p: &QgemmProblem) -> Vec<(String, Config)> {
    let catalog = cuda::catalog();
    let fits = catalog.variants().iter().filter(|v| matches!(v.fit(p, device), Fit::Fits(f) if f >= Priority::Medium));
    fits.flat_map(|v| v.space(p, device).configs().into_iter().map(|c| (v.id().to_string(), c))).collect()
}

fn build(device: &Cuda, problems: &[QgemmProblem]) -> Outcome {
    let (catalog, mut built, mut turn) = (cuda::catalog(), 0, 0);
    for p in problems {
        for (id, config) in entries(device, p) {
            turn += 1;
            // Whether a launch begins early changes nothing of what is compiled.
            if id == "cublaslt" || config.int("EARLY") == Some(1) || !mine(turn) {
                continue;
            }
            match catalog.find(&id).ok_or("no such variant")?.build(p, &config, device) {
                Ok(_) => built += 1,
                Err(why) => println!("{}: {id}[{config}]: {why}", Qgemm::text(p)),
            }
        }
    }
    println!("built {built}");
    Ok(())
}

/// Times kernels in turn, by the clock of use, and gives the median seconds of each.
fn race(
    device: &Cuda,
    p: &QgemmProblem,
    kernels: &[&dyn Kernel<Cuda>],
    rounds: usize,
) -> Result<Vec<f64>, Box<dyn std::error::Error>> {
    let policy = Policy { queueing: Queueing::Graph, ..Policy::default() };
    let card = Entry::new(p, &cuda::catalog());
    let first = Case::without_answer(&card, device, 1)?;
    let sets = device.sets(policy, first.footprint()).max(1);
    let mut cases = vec![first];
    for seed in 2..=sets as u64 {
        cases.push(Case::without_answer(&card, device, seed)?);
    }
    let cases = RefCell::new(cases);
    let mut laps = Vec::new();
    for kernel in kernels {
        let launch = |queue: &_, set: usize| cases.borrow_mut()[set].launch(*kernel, device, queue);
        laps.push(device.lap(policy, &vec![Vec::new(); sets], Box::new(launch)).ok());
    }
    let mut samples = vec![Vec::new(); kernels.len()];
    for round in 0..rounds {
        for i in 0..laps.len() {
            let i = if round % 2 == 0 { i } else { laps.len() - 1 - i };
            if let Some(lap) = &mut laps[i] {
                samples[i].push(lap.run().unwrap_or(f64::INFINITY));
            }
        }
    }
    let median = |mut samples: Vec<f64>| {
        samples.sort_by(f64::total_cmp);
        samples.get(samples.len() / 2).copied().unwrap_or(f64::INFINITY)
    };
    Ok(samples.into_iter().map(median).collect())
}

fn screen(device: &Cuda, p: &QgemmProblem) -> Outcome {
    let (catalog, started) = (cuda::catalog(), Instant::now());
    let (mut names, mut kernels) = (Vec::new(), Vec::new());
    for (id, config) in entries(device, p) {
        match catalog.find(&id).ok_or("no such variant")?.build(p, &config, device) {
            Ok(kernel) => {
                names.push(format!("{id}[{config}]"));
                kernels.push(kernel);
            }
            Err(_) if id == "cublaslt" => {}
            Err(why) => println!("WRONG {}: {id}[{config}]: {why}", Qgemm::text(p)),
        }
    }
    let all: Vec<&dyn Kernel<Cuda>> = kernels.iter().map(|k| &**k).collect();
    let mut times = race(device, p, &all, 5)?;
    let mut order: Vec<usize> = (0..names.len()).collect();
    order.sort_by(|a, b| times[*a].total_cmp(&times[*b]));
    let is_library = |i: &usize| names[*i].starts_with("cublaslt");
    // The best of both sides once more, and the library's first choice.
    let mut few: Vec<usize> = order.iter().copied().filter(|i| !is_library(i)).take(5).collect();
    few.extend(order.iter().copied().filter(is_library).take(2));
    few.extend(names.iter().position(|n| n == "cublaslt[choice=0]").filter(|first| !few.contains(first)));
    let mut case = Case::new(&Entry::new(p, &catalog), device, 5)?;
    few.retain(|i| match case.verify(all[*i], device) {
        Ok(_) => true,
        Err(why) => {
            println!("WRONG {}: {}: {why}", Qgemm::text(p), names[*i]);
            false
        }
    });
    drop(case);
    let again: Vec<&dyn Kernel<Cuda>> = few.iter().map(|i| all[*i]).collect();
    for (i, time) in few.iter().zip(race(device, p, &again, 31)?) {
        times[*i] = time;
    }
    few.sort_by(|a, b| times[*a].total_cmp(&times[*b]));
    let best = |library: bool| few.iter().find(|i| is_library(i) == library).map_or(f64::NAN, |i| times[*i] * 1e6);
    let (own, library) = (best(false), best(true));
    let first = names.iter().position(|n| n == "cublaslt[choice=0]").map_or(f64::NAN, |i| times[i] * 1e6);
    println!(
        "RATIO {:.3} (of the library's best {:.3}) {}: own {own:.2} us ({:.0} TFLOP/s), library first {first:.2}, best \
         {library:.2}; {} tried, {:.1} s",
        first / own,
        library / own,
        Qgemm::text(p),
        p.work().flops / own * 1e-6,
        names.len(),
        started.elapsed().as_secs_f64()
    );
    let show = std::env::var("WARPLAP_SHOW").ok().and_then(|s| s.parse().ok()).unwrap_or(0);
    order.sort_by(|a, b| times[*a].total_cmp(&times[*b]));
    order.iter().take(show).for_each(|i| println!("   {:9.2} us {}", times[*i] * 1e6, names[*i]));
    Ok(())
}
