//! Proves the CUDA kernels of attention on edge shapes and random problems, then races a few. Needs an NVIDIA GPU and
//! NVRTC.
//!
//! `cuda-attention edges [PART OF] | features [PART OF] | paged [PART OF] | packed [PART OF] | random COUNT [SEED] |
//! tune PROBLEM...`;
//! `proving/mod.rs` names the variables.
#![allow(clippy::print_stdout)]

#[path = "proving/packed.rs"]
mod packed;
#[path = "proving/paged.rs"]
mod paged;
mod proving;
#[path = "proving/score_mods.rs"]
mod score_mods;

use std::time::Instant;

use warplap_core::arg::Arg;
use warplap_core::array::Array;
use warplap_core::device::Device;
use warplap_core::dtype::DType;
use warplap_core::op::{Answer, Op};
use warplap_core::variant::{Fit, Kernel};
use warplap_cuda::Cuda;
use warplap_ops::attention::{Attention, AttentionProblem, cuda, slot};

use proving::{Outcome, Tally, numbers, open, prove, seconds, summary};

fn main() -> Outcome {
    let mut words = std::env::args().skip(1);
    let task = words.next().unwrap_or_else(|| "tune".into());
    let device = open()?;
    match task.as_str() {
        "edges" => edges(&device, numbers(words, [0, 1])),
        "features" => {
            let share = numbers(words, [0, 1]);
            all(&device, "features", score_mods::problems(share, ",lse=true"))
        }
        "packed" => all(&device, "packed", packed::problems(numbers(words, [0, 1]), ",lse=true")),
        "paged" => all(&device, "paged", paged::problems(numbers(words, [0, 1]))),
        "random" => random(&device, numbers(words, [200, 11]), seconds()),
        _ => proving::tune::<Attention>(&device, words),
    }
}

/// Lengths around the tiles, one query and one key, grouped heads, both layouts, heads of every width and alignment,
/// masks whose rows lie on 16 bytes and not, causal problems longer and wider, scales of every sign.
fn edges(device: &Cuda, [part, of]: [u64; 2]) -> Outcome {
    let lengths = [(1, 1), (63, 63), (64, 64), (65, 129), (197, 197), (1, 1000), (1000, 1), (300, 517), (517, 304)];
    let mut texts = Vec::new();
    for (sq, sk) in lengths {
        for (heads, width) in [("b=2,h=3", "d=64"), ("h=4,hkv=2", "d=128"), ("b=2,h=4,hkv=1,layout=bshd", "d=80")] {
            for rest in ["", ",causal=true", ",mask=add"] {
                texts.push(format!("{heads},sq={sq},sk={sk},{width}{rest}"));
            }
        }
    }
    for width in [
        "d=1",
        "d=7",
        "d=16",
        "d=20",
        "d=32",
        "d=50",
        "d=72",
        "d=96",
        "d=101",
        "d=112",
        "d=129",
        "d=160",
        "d=192",
        "d=233",
        "d=256",
        "d=64,dv=128",
        "d=128,dv=64",
        "d=192,dv=128",
        "d=16,dv=256",
        "d=7,dv=256",
        "d=300",
    ] {
        for rest in ["sq=150,sk=210", "sq=77,sk=300,causal=true,layout=bshd", "sq=130,sk=136,mask=add", "sq=1,sk=500"] {
            texts.push(format!("b=2,h=4,hkv=2,{width},{rest}"));
        }
    }
    // Few queries of many heads, on both sides of what the kernel of decoding packs into a block.
    for (h, hkv, sq) in [(1, 1, 8), (8, 1, 1), (9, 1, 1), (32, 8, 1), (16, 1, 2), (33, 1, 1), (8, 2, 31), (16, 2, 16)] {
        for sk in [1, 15, 17, 777, 4096] {
            texts.push(format!("b=3,h={h},hkv={hkv},sq={sq},sk={sk},d=128"));
            texts.push(format!("h={h},hkv={hkv},sq={sq},sk={sk},d=64,causal=true,mask=add"));
        }
    }
    // More tiles than multiprocessors, so that blocks that stay take several; and scales that scores are bent by.
    for rest in ["", ",causal=true", ",mask=add", ",causal=true,mask=add", ",scale=-0.3", ",scale=0", ",scale=1e-25"] {
        texts.push(format!("b=4,h=16,sq=700,sk=520,d=64{rest}"));
        texts.push(format!("b=3,h=16,hkv=4,sq=600,sk=900,d=128,layout=bshd{rest}"));
        texts.push(format!("b=4,h=16,sq=400,sk=333,d=256{rest}"));
        texts.push(format!("h=2,sq=100,sk=100,d=40{rest}"));
    }
    let (mut tally, mut problems, started, catalog) = (Tally::new(), 0, Instant::now(), cuda::catalog());
    let dealt = texts.iter().flat_map(|t| ["f16", "bf16"].map(|dtype| format!("{t},dtype={dtype}")));
    for (turn, text) in dealt.enumerate().filter(|(i, _)| *i as u64 % of.max(1) == part) {
        // Other configs of the same kernels from problem to problem.
        prove(device, &catalog, &Attention::parse(&text)?, (turn as u64 / 2, 2), &mut tally)?;
        problems += 1;
    }
    problems += lowest(device, [part, of], &mut tally)?;
    summary("edges", problems, &tally, started);
    Ok(())
}

/// Masks with entries as low as their type goes, as programs write them in place of -inf: a row of nothing else weighs
/// its keys alike, and beside any other entry they count nothing.
fn lowest(device: &Cuda, [part, of]: [u64; 2], tally: &mut Tally) -> Result<u64, Box<dyn std::error::Error>> {
    let (mut turn, mut problems, catalog) = (0, 0, cuda::catalog());
    for dtype in ["f16", "bf16"] {
        for rest in
            ["h=4,sq=8,sk=777,d=128", "h=2,sq=130,sk=256,d=64", "h=9,sq=150,sk=333,d=128", "h=2,sq=64,sk=600,d=80"]
        {
            for scale in ["", ",scale=2", ",scale=-0.3", ",causal=true"] {
                turn += 1;
                if turn % of.max(1) != part {
                    continue;
                }
                let p = Attention::parse(&format!("{rest},dtype={dtype},mask=add{scale}"))?;
                let case = Lowest::drawn(&p);
                // The lowest f16 leaves a float32 eight bits behind the point.
                let allowed = if p.dtype == DType::F16 { 4.0 } else { 1.0 };
                for variant in catalog.variants().iter().filter(|v| matches!(v.fit(&p, device), Fit::Fits(_))) {
                    let configs = variant.space(&p, device).configs();
                    for config in configs.iter().step_by(configs.len().div_ceil(3).max(1)) {
                        // What spills registers never races.
                        let Ok(kernel) = variant.build(&p, config, device) else { continue };
                        let worst = case.worst(device, &*kernel)?;
                        let entry = tally.entry(format!("lowest {}", variant.id())).or_default();
                        entry[usize::from(worst > allowed)] += 1;
                        if worst > allowed {
                            println!("{}: {}[{config}]: {worst:.1} of the error", Attention::text(&p), variant.id());
                        }
                    }
                }
                problems += 1;
            }
        }
    }
    Ok(problems)
}

/// Inputs with such a mask, and what is right for them.
struct Lowest {
    inputs: Vec<Array>,
    right: Answer,
}

impl Lowest {
    /// Of five rows one of the lowest alone, one where the others are -inf, and one with a few ordinary entries.
    fn drawn(p: &AttentionProblem) -> Self {
        let mut inputs = Attention::draw(p, &mut fastrand::Rng::with_seed(3));
        let least = if p.dtype == DType::F16 { -65504.0 } else { -3.3895313892515355e38 };
        let drawn = inputs[slot::MASK].to_f64();
        let entry = |i: usize| match (i / p.sk as usize % 5, i % 3) {
            (0, _) | (1, 0) | (2, 1 | 2) => least,
            (1, _) => f64::NEG_INFINITY,
            _ => drawn[i],
        };
        inputs[slot::MASK] = Array::from_f64(p.dtype, (0..drawn.len()).map(entry));
        let right = Attention::answer(p, &inputs).remove(0);
        Lowest { inputs, right }
    }

    /// The largest share of the allowed error that a kernel takes; what is no number is wrong.
    fn worst(&self, device: &Cuda, kernel: &dyn Kernel<Cuda>) -> Result<f64, Box<dyn std::error::Error>> {
        let right = &self.right;
        let mut out = device.upload(&Array::filled(self.inputs[0].dtype(), right.values.len(), f64::NAN))?;
        let upload = |a: &Array| (!a.is_empty()).then(|| device.upload(a)).transpose();
        let buffers = self.inputs.iter().map(upload).collect::<Result<Vec<_>, _>>()?;
        let read = |b| Arg::Read(device.view(b, 0..usize::MAX));
        let mut args: Vec<Arg<'_, Cuda>> = buffers.iter().map(|b| b.as_ref().map_or(Arg::Absent, read)).collect();
        args[slot::OUT] = Arg::Write(device.view_mut(&mut out, 0..right.values.len()));
        kernel.launch(&mut args, device.queue())?;
        drop(args);
        let got = device.download(&out)?.to_f64();
        let shares = got.iter().zip(&right.values).map(|(g, r)| (g - r).abs() / right.tolerance.allowed(*r));
        Ok(shares.fold(0.0, |worst, s| if s.is_nan() { f64::INFINITY } else { s.max(worst) }))
    }
}

/// Random small problems over all that a problem can say; every variant that fits is proved on one setting, of three
/// that it is proved on again and again.
fn random(device: &Cuda, [count, seed]: [u64; 2], seconds: f64) -> Outcome {
    let (mut tally, mut problems, started, catalog) = (Tally::new(), 0, Instant::now(), cuda::catalog());
    let mut rng = fastrand::Rng::with_seed(seed);
    while problems < count && started.elapsed().as_secs_f64() < seconds {
        let (h, hkv) = [(1, 1), (2, 1), (3, 3), (4, 2), (6, 2), (8, 8), (5, 1), (32, 8)][rng.usize(..8)];
        let mut length = || match rng.u8(..5) {
            0 => rng.u64(1..=20),
            1 => rng.u64(1..=140),
            2 => rng.u64(100..=400),
            3 => rng.u64(300..=1100),
            _ => [63, 64, 65, 127, 128, 129, 192, 256, 384][rng.usize(..9)],
        };
        let (sq, sk) = (length(), length());
        let width = ["64", "64", "128", "128", "80", "96", "256", "192,dv=128", "72", "33"][rng.usize(..10)];
        // Rows of a mask that lie on 16 bytes as often as not.
        let mask = rng.u8(..3) == 0;
        let sk = if mask && rng.bool() { sk.next_multiple_of(8) } else { sk };
        let b = [1, 1, 2, 3, 24][rng.usize(..5)];
        let dtype = ["f16", "bf16"][rng.usize(..2)];
        let rest = [if mask { ",mask=add" } else { "" }, if rng.bool() { ",causal=true" } else { "" }].concat();
        let scale = ["", "", "", ",scale=1", ",scale=-0.1"][rng.usize(..5)];
        let layout = ["bhsd", "bshd"][rng.usize(..2)];
        let text =
            format!("b={b},h={h},hkv={hkv},sq={sq},sk={sk},d={width},dtype={dtype}{rest}{scale},layout={layout}");
        prove(device, &catalog, &Attention::parse(&text)?, (rng.u64(..3), 1), &mut tally)?;
        problems += 1;
    }
    summary("random", problems, &tally, started);
    Ok(())
}

/// Proves two configs of every kernel on each of these.
fn all(device: &Cuda, what: &str, texts: Vec<(u64, String)>) -> Outcome {
    let (mut tally, mut problems, started, catalog) = (Tally::new(), 0, Instant::now(), cuda::catalog());
    for (turn, text) in texts {
        prove(device, &catalog, &Attention::parse(&text)?, (turn, 2), &mut tally)?;
        problems += 1;
    }
    summary(what, problems, &tally, started);
    Ok(())
}
