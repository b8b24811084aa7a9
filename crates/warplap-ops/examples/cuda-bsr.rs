//! Proves the CUDA kernels of the block-sparse product on edge shapes and random problems, then races a few. Needs an
//! NVIDIA GPU and NVRTC.
//!
//! `cuda-bsr edges [PART OF [DTYPE]] | random COUNT [SEED [DTYPE]] | prove PROBLEM... | checks | tune PROBLEM... | screen
//! PROBLEM...`; `prove` takes every setting of every variant, `screen` times them, libraries among them. `proving` names
//! the variables.
#![allow(clippy::print_stdout)]

mod proving;

use std::time::Instant;

use warplap_core::arg::Arg;
use warplap_core::array::Array;
use warplap_core::device::Device;
use warplap_core::op::Op;
use warplap_cuda::Cuda;
use warplap_ops::bsr::{Bsr, cuda};
use warplap_ops::sampled::{self, Sampled};

use proving::screen::screen;
use proving::{Outcome, Tally, numbers, open, prove, seconds, summary};

/// Types of the factors, as a problem says them.
const DTYPES: [&str; 5] = ["bf16", "f16", "f32", "f32,tf32=true", "f8e4m3"];

fn main() -> Outcome {
    let mut words = std::env::args().skip(1);
    let task = words.next().unwrap_or_else(|| "tune".into());
    let device = open()?;
    // The type that is proved, in place of all.
    let only = std::env::args().nth(4);
    let types: Vec<&str> = DTYPES.into_iter().filter(|t| only.as_deref().is_none_or(|only| only == *t)).collect();
    match task.as_str() {
        "edges" => edges(&device, numbers(words, [0, 1]), &types),
        "random" => random(&device, numbers(words, [200, 11]), &types, seconds()),
        "checks" => checks(&device),
        "prove" => every(&device, words),
        "screen" => words.try_for_each(|text| screen(&device, &cuda::catalog(), &Bsr::parse(&text)?)),
        _ => proving::tune::<Bsr>(&device, words),
    }
}

/// Shapes with ragged columns, empty and full matrices, one block, uneven rows, in every block size, order and type,
/// square blocks and others.
fn edges(device: &Cuda, [part, of]: [u64; 2], types: &[&str]) -> Outcome {
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
        (3, 5, 77, "density=0.5"),
        (5, 4, 301, "density=0.3,beta=1"),
        (2, 6, 130, "density=0.6,beta=2,inplace=true"),
    ] {
        for bs in [8, 16, 24, 32, 64, 128] {
            for dtype in types.iter().filter(|t| !t.contains("tf32")) {
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

/// Random small problems over all that a problem can say; every variant that fits is proved on one setting, of three
/// that it is proved on again and again.
fn random(device: &Cuda, [count, seed]: [u64; 2], types: &[&str], seconds: f64) -> Outcome {
    let (mut tally, mut problems, started) = (Tally::new(), 0, Instant::now());
    let (catalog, sampled) = (cuda::catalog(), sampled::cuda::catalog());
    let mut rng = fastrand::Rng::with_seed(seed);
    while problems < count && started.elapsed().as_secs_f64() < seconds {
        let bs = [16, 32, 64, 128, 16, 32, 64, 128, 8, 24][rng.usize(..10)];
        let bc = if rng.u8(..4) == 0 { [16, 32, 64, 128, 8][rng.usize(..5)] } else { bs };
        let (m, k) = (bs * rng.u64(1..=1024 / bs), bc * [1, 4, 512 / bc, 1024 / bc][rng.usize(..4)]);
        let n = [64, 72, 256, 400, 8, 5, 1, 16, 77, 129, 300][rng.usize(..11)];
        let pattern = ["uniform", "banded", "blockdiag", "powerlaw", "causal", "window"][rng.usize(..6)];
        let dtype = types[rng.usize(..types.len())];
        let layout = if dtype == "f8e4m3" { "col" } else { ["row", "col"][rng.usize(..2)] };
        let written = if rng.u8(..3) == 0 { ",c=col" } else { "" };
        let skew = if rng.bool() { format!(",imbalance={:.1}", 1.0 + 7.0 * rng.f64()) } else { String::new() };
        let scales =
            ["", "", ",alpha=-0.75", ",beta=1", ",alpha=1.5,beta=-0.5", ",bias=true", ",beta=0.5,inplace=true"];
        let scale = scales[rng.usize(..7)];
        let turned = if rng.u8(..4) == 0 { ",turned=true" } else { "" };
        let density = rng.f64().powi(2);
        let shape = format!("m={m},k={k},n={n},bs={bs},density={density:.3},pattern={pattern}{skew},b={layout}");
        let pick = rng.u64(..3);
        if rng.u8(..5) == 0 {
            let (g, dtype) = (["row", "col"][rng.usize(..2)], dtype.split(',').next().unwrap_or(dtype));
            if bc != bs || dtype == "f8e4m3" {
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

/// Every setting of every variant that fits, on problems of the caller's.
fn every(device: &Cuda, texts: impl Iterator<Item = String>) -> Outcome {
    let (mut tally, mut problems, started) = (Tally::new(), 0, Instant::now());
    for text in texts {
        prove(device, &cuda::catalog(), &Bsr::parse(&text)?, (0, usize::MAX), &mut tally)?;
        problems += 1;
    }
    summary("prove", problems, &tally, started);
    Ok(())
}

/// Indices are looked at where they lie: a good matrix passes, each kind of damage has its own error. And C's own
/// former elements are the addend where no other is given.
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
