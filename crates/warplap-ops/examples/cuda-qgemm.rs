//! Proves the CUDA kernels of products of 8-bit numbers, then times them beside cuBLASLt. Needs a GPU and NVRTC.
//!
//! `cuda-qgemm edges | random | build PROBLEM... | screen PROBLEM...`
//! - `edges`: sampled configs of every variant on ragged shapes of all types and factors, against double precision
//! - `random`: random problems until `WARPLAP_SECONDS` are over
//! - `build`: compiles what `screen` needs, so that it need not
//! - `screen`: times every config, proves the fastest on the problem itself, and times those again in one interleaved
//!   race
//!
//! `WARPLAP_SHARD` (`2/8`: the third of eight processes that share `edges` and `build`); the others are those of
//! `proving`.
#![allow(clippy::print_stdout)]

use std::time::Instant;

use warplap_core::op::Op;
use warplap_cuda::Cuda;
use warplap_ops::qgemm::{Qgemm, QgemmProblem, cuda};

use proving::screen::{entries, screen};
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
        "screen" => problems.iter().try_for_each(|p| screen(&device, &cuda::catalog(), p)),
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

fn build(device: &Cuda, problems: &[QgemmProblem]) -> Outcome {
    let (catalog, mut built, mut turn) = (cuda::catalog(), 0, 0);
    for p in problems {
        for (variant, config) in entries(device, &catalog, p) {
            turn += 1;
            // Whether a launch begins early changes nothing of what is compiled.
            if variant.is_library() || config.int("EARLY") == Some(1) || !mine(turn) {
                continue;
            }
            match variant.build(p, &config, device) {
                Ok(_) => built += 1,
                Err(why) => println!("{}: {}[{config}]: {why}", Qgemm::text(p), variant.id()),
            }
        }
    }
    println!("built {built}");
    Ok(())
}
