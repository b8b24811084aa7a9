//! Proves the CUDA kernels of attention's gradients on edge shapes and random problems, then races a few. Needs an NVIDIA
//! GPU and NVRTC.
//!
//! `cuda-attention-grad edges [PART OF] | features [PART OF] | packed [PART OF] | random COUNT [SEED] | tune
//! PROBLEM...`; `proving/mod.rs` names the variables.
#![allow(clippy::print_stdout)]

#[path = "proving/packed.rs"]
mod packed;
mod proving;
#[path = "proving/score_mods.rs"]
mod score_mods;

use std::time::Instant;

use warplap_core::op::Op;
use warplap_cuda::Cuda;
use warplap_ops::attention_grad::{AttentionGrad, cuda};

use proving::{Outcome, Tally, numbers, open, prove, seconds, summary};

fn main() -> Outcome {
    let mut words = std::env::args().skip(1);
    let task = words.next().unwrap_or_else(|| "tune".into());
    let device = open()?;
    match task.as_str() {
        "edges" => edges(&device, numbers(words, [0, 1])),
        "features" => all(&device, "features", score_mods::problems(numbers(words, [0, 1]), "")),
        "packed" => all(&device, "packed", packed::problems(numbers(words, [0, 1]), "")),
        "random" => random(&device, numbers(words, [200, 11]), seconds()),
        _ => proving::tune::<AttentionGrad>(&device, words),
    }
}

/// Lengths around the tiles, one query and one key, grouped heads, both layouts, heads of every width and alignment,
/// masks, causal problems longer and wider, scales of every sign.
fn edges(device: &Cuda, [part, of]: [u64; 2]) -> Outcome {
    let lengths = [(1, 1), (63, 63), (64, 64), (65, 129), (127, 197), (1, 1000), (1000, 1), (300, 517), (517, 304)];
    let mut texts = Vec::new();
    for (sq, sk) in lengths {
        for (heads, width) in [("b=2,h=3", "d=64"), ("h=4,hkv=2", "d=128"), ("b=2,h=4,hkv=1,layout=bshd", "d=80")] {
            for rest in ["", ",causal=true", ",mask=add"] {
                texts.push(format!("{heads},sq={sq},sk={sk},{width}{rest}"));
            }
        }
    }
    let odd = ["1", "7", "16", "20", "32", "50", "72", "96", "101", "112", "129", "160", "192", "233", "256", "300"];
    let unequal = ["64,dv=128", "128,dv=64", "192,dv=128", "16,dv=256", "7,dv=250"];
    for width in odd.into_iter().chain(unequal) {
        for rest in ["sq=150,sk=210", "sq=77,sk=300,causal=true,layout=bshd", "sq=130,sk=136,mask=add"] {
            texts.push(format!("b=2,h=4,hkv=2,d={width},{rest}"));
        }
    }
    // More tiles than multiprocessors, and scales that scores are bent by.
    for rest in ["", ",causal=true", ",causal=true,mask=add", ",scale=-0.3", ",scale=0", ",scale=1"] {
        texts.push(format!("b=4,h=16,sq=700,sk=520,d=64{rest}"));
        texts.push(format!("b=3,h=16,hkv=4,sq=600,sk=900,d=128,layout=bshd{rest}"));
    }
    let (mut tally, mut problems, started, catalog) = (Tally::new(), 0, Instant::now(), cuda::catalog());
    let dealt = texts.iter().flat_map(|t| ["f16", "bf16"].map(|dtype| format!("{t},dtype={dtype}")));
    for (turn, text) in dealt.enumerate().filter(|(i, _)| *i as u64 % of.max(1) == part) {
        // Other configs of the same kernels from problem to problem.
        prove(device, &catalog, &AttentionGrad::parse(&text)?, (turn as u64 / 2, 2), &mut tally)?;
        problems += 1;
    }
    summary("edges", problems, &tally, started);
    Ok(())
}

/// Random problems over all that a problem can say; every variant that fits is proved on one setting, of three that it is
/// proved on again and again.
fn random(device: &Cuda, [count, seed]: [u64; 2], seconds: f64) -> Outcome {
    let (mut tally, mut problems, started, catalog) = (Tally::new(), 0, Instant::now(), cuda::catalog());
    let mut rng = fastrand::Rng::with_seed(seed);
    while problems < count && started.elapsed().as_secs_f64() < seconds {
        let (h, hkv) = [(1, 1), (2, 1), (3, 3), (4, 2), (6, 2), (8, 8), (5, 1)][rng.usize(..7)];
        let mut length = || match rng.u8(..4) {
            0 => rng.u64(1..=20),
            1 => rng.u64(1..=140),
            2 => rng.u64(100..=700),
            _ => [63, 64, 65, 127, 128, 129, 192, 256, 384][rng.usize(..9)],
        };
        let (sq, sk, b) = (length(), length(), [1, 1, 2, 3][rng.usize(..4)]);
        let width = ["64", "64", "128", "128", "80", "96", "256", "33"][rng.usize(..8)];
        let mask = if rng.u8(..3) == 0 { ",mask=add" } else { "" };
        let causal = if rng.bool() { ",causal=true" } else { "" };
        let scale = ["", "", "", ",scale=1", ",scale=-0.1"][rng.usize(..5)];
        let (dtype, layout) = (["f16", "bf16"][rng.usize(..2)], ["bhsd", "bshd"][rng.usize(..2)]);
        let text = format!(
            "b={b},h={h},hkv={hkv},sq={sq},sk={sk},d={width},dtype={dtype}{mask}{causal}{scale},layout={layout}"
        );
        prove(device, &catalog, &AttentionGrad::parse(&text)?, (rng.u64(..3), 1), &mut tally)?;
        problems += 1;
    }
    summary("random", problems, &tally, started);
    Ok(())
}

/// Proves two configs of every kernel on each of these.
fn all(device: &Cuda, what: &str, texts: Vec<(u64, String)>) -> Outcome {
    let (mut tally, mut problems, started, catalog) = (Tally::new(), 0, Instant::now(), cuda::catalog());
    for (turn, text) in texts {
        prove(device, &catalog, &AttentionGrad::parse(&text)?, (turn, 2), &mut tally)?;
        problems += 1;
    }
    summary(what, problems, &tally, started);
    Ok(())
}
