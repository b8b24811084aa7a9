//! Holds the GPU's right answers of whole graphs to the host's, and what they are made of: numbers that are widened,
//! moved by what they may be off by, and compared there.
//!
//! `cuda-graph-right`: needs an NVIDIA GPU and NVRTC. Prints one line a graph and fails on the first that is not as it
//! should be. `--large` also tells how long a layer of 4096 rows of 4096 takes there.
#![allow(clippy::print_stdout)]

use std::time::Instant;

use warplap::core::array::Array;
use warplap::core::device::Device;
use warplap::core::shift::Shift;
use warplap::core::tolerance::Tolerance;
use warplap::cuda::{Buffer, View};
use warplap::graph::{Builder, Fused, Graphs, Turn};
use warplap::{Activation, Cuda, DType, Error, Mode, Op, Session};

type Failed = Box<dyn std::error::Error>;
type Made = Result<Fused<Cuda>, Error>;
type Make = fn(&mut Builder<Cuda>, DType) -> Made;

/// Graphs by their names, and how many times either's bound may be the other's: of many rows the host looks at some.
const GRAPHS: [(&str, Make, f64); 8] = [
    ("layer", |g, dtype| layer(g, dtype, 37, 77, 131), 1.0),
    ("layer of many rows", |g, dtype| layer(g, dtype, 8192, 128, 64), 1.5),
    ("one node", one, 1.0),
    ("gated pair", pair, 1.0),
    ("heads", heads, 1.0),
    ("heads by rows", by_rows, 1.0),
    ("masked rows", masked, 1.0),
    ("read twice", twice, 1.0),
];

/// x + down(silu(gate(norm(x))) ∘ up(norm(x))); x is itself a sum.
fn layer(g: &mut Builder<Cuda>, dtype: DType, rows: u64, n: u64, wide: u64) -> Made {
    let (x, residual) = (g.input("x", dtype, &[rows, n]), g.input("residual", dtype, &[rows, n]));
    let gain = g.input("gain", dtype, &[n]);
    let (gate, up) = (g.input("gate", dtype, &[wide, n]), g.input("up", dtype, &[wide, n]));
    let down = g.input("down", dtype, &[n, wide]);
    let sum = g.add(x, residual)?;
    let h = g.rms_norm(sum, gain, 1e-6)?;
    let open = g.linear(h, gate)?;
    let open = g.silu(open)?;
    let passed = g.linear(h, up)?;
    let passed = g.mul(open, passed)?;
    let y = g.linear(passed, down)?;
    let y = g.add(y, sum)?;
    g.output("y", y).output("sum", sum).build()
}

fn one(g: &mut Builder<Cuda>, dtype: DType) -> Made {
    let (x, w, bias) = (g.input("x", dtype, &[50, 33]), g.input("w", dtype, &[65, 33]), g.input("bias", dtype, &[65]));
    let y = g.linear_bias(x, w, bias)?;
    g.output("y", y).build()
}

/// A LayerNorm, two products with biases, gelu of one times the other, and a product the other way round.
fn pair(g: &mut Builder<Cuda>, dtype: DType) -> Made {
    let (x, gain, shift) =
        (g.input("x", dtype, &[3, 11, 100]), g.input("gain", dtype, &[100]), g.input("shift", dtype, &[100]));
    let (wa, wb) = (g.input("wa", dtype, &[51, 100]), g.input("wb", dtype, &[51, 100]));
    let (ba, bb) = (g.input("ba", dtype, &[51]), g.input("bb", dtype, &[51]));
    let last = g.input("last", dtype, &[51, 70]);
    let h = g.layer_norm(x, gain, shift, 1e-5)?;
    let (a, b) = (g.linear_bias(h, wa, ba)?, g.linear_bias(h, wb, bb)?);
    let y = g.gated(a, b, Activation::Gelu)?;
    let y = g.matmul(y, last)?;
    let y = g.activation(y, Activation::Tanh)?;
    g.output("y", y).build()
}

/// Attention of heads, not causal, and a product behind it.
fn heads(g: &mut Builder<Cuda>, dtype: DType) -> Made {
    let (b, h, s, d) = (2, 4, 29, 24);
    let q = g.input("q", dtype, &[b, h, s, d]);
    let [k, v] = ["k", "v"].map(|name| g.input(name, dtype, &[b, 2, 45, d]));
    let w = g.input("w", dtype, &[19, d]);
    let (q, v) = (g.silu(q)?, g.relu(v)?);
    let y = g.attention(q, k, v, false)?;
    let y = g.linear(y, w)?;
    g.output("y", y).build()
}

/// Heads that projections give, turned by given positions with a bias, causal attention, and a projection back.
fn by_rows(g: &mut Builder<Cuda>, dtype: DType) -> Made {
    let (b, s, h, hk, d) = (2, 21, 3, 1, 16);
    let (x, wq) = (g.input("x", dtype, &[b, s, 40]), g.input("wq", dtype, &[h * d, 40]));
    let [wk, wv] = ["wk", "wv"].map(|name| g.input(name, dtype, &[hk * d, 40]));
    let [cos, sin] = ["cos", "sin"].map(|name| g.input(name, DType::F32, &[33, 5]));
    let positions = g.input("positions", DType::I32, &[b, s]);
    let (bias, last) = (g.input("bias", dtype, &[(h + hk) * d]), g.input("last", dtype, &[40, h * d]));
    let q = g.linear(x, wq)?;
    let q = g.reshape(q, &[b, s, h, d])?;
    let (k, v) = (g.linear(x, wk)?, g.linear(x, wv)?);
    let (k, v) = (g.reshape(k, &[b, s, hk, d])?, g.reshape(v, &[b, s, hk, d])?);
    let (q, k) = g.rope_pair(q, k, Turn::by(cos, sin).at(positions).biased(bias))?;
    let y = g.attention_by_rows(q, k, v, true)?;
    let y = g.reshape(y, &[b, s, h * d])?;
    let y = g.linear(y, last)?;
    let y = g.add(y, x)?;
    g.output("y", y).output("k", k).build()
}

/// Scores of turned heads, scaled and masked, with a mask that is for several rows.
fn masked(g: &mut Builder<Cuda>, dtype: DType) -> Made {
    let (x, mask) = (g.input("x", dtype, &[4, 13, 6, 20]), g.input("mask", dtype, &[4, 1, 1, 20]));
    let [cos, sin] = ["cos", "sin"].map(|name| g.input(name, dtype, &[13, 20]));
    let y = g.rope(x, Turn::by(cos, sin).interleaved().wide())?;
    let y = g.softmax_masked(y, mask, 2.5)?;
    let y = g.softmax(y)?;
    g.output("y", y).build()
}

fn twice(g: &mut Builder<Cuda>, dtype: DType) -> Made {
    let (x, gain) = (g.input("x", dtype, &[301, 97]), g.input("gain", dtype, &[97]));
    let (a, b) = (g.gelu(x)?, g.rms_norm(x, gain, 1e-5)?);
    let c = g.gated(a, a, Activation::Sigmoid)?;
    let d = g.add(b, c)?;
    let d = g.add(d, a)?;
    g.output("d", d).output("b", b).build()
}

fn main() -> Result<(), Failed> {
    warplap::worker::serve_if_asked();
    let session = Session::builder().in_memory().mode(Mode::Off).cuda(0)?;
    let device = &**session.device();
    for len in [1, 255, 100_003] {
        doubles(device, len).map_err(|why| format!("{len} numbers: {why}"))?;
    }
    let mut count = 0;
    for (name, make, times) in GRAPHS {
        for dtype in [DType::F32, DType::F16, DType::Bf16] {
            let fused = make(&mut session.graph(), dtype)?;
            held(device, &fused, times).map_err(|why| format!("{name}, {dtype}: {why}")).map(|text| {
                println!("RIGHT {name}, {dtype}: {text}");
                count += 1;
            })?;
        }
    }
    println!("{count} graphs are right");
    if std::env::args().any(|arg| arg == "--large") {
        let fused = layer(&mut session.graph(), DType::Bf16, 4096, 4096, 10_240)?;
        let inputs = Graphs::draw(fused.problem(), &mut fastrand::Rng::with_seed(11));
        for _ in 0..2 {
            let (seconds, _) = far(device, &fused, &inputs)?;
            println!("TIMED a layer of 4096 rows of 4096: {seconds:.2} s for its right answers");
        }
    }
    Ok(())
}

/// The device's answers to inputs that it is given, with the seconds they took there.
fn far(device: &Cuda, fused: &Fused<Cuda>, inputs: &[Array]) -> Result<(f64, Vec<(Buffer, Tolerance)>), Failed> {
    let upload = |array: &Array| (!array.is_empty()).then(|| device.upload(array)).transpose();
    let read: Vec<Option<Buffer>> = inputs.iter().map(upload).collect::<Result<_, _>>()?;
    let views: Vec<Option<View<'_>>> = read.iter().map(|buffer| buffer.as_ref().map(View::from)).collect();
    let oracle = fused.tuner().catalog().oracle().ok_or("the graph has no oracle")?;
    let started = Instant::now();
    let answers = oracle.answer(fused.problem(), &views, device)?;
    device.synchronize()?;
    Ok((started.elapsed().as_secs_f64(), answers.into_iter().map(|far| (far.values, far.tolerance)).collect()))
}

/// Holds the device's answers of a graph to the host's, and says by how much they differ.
fn held(device: &Cuda, fused: &Fused<Cuda>, times: f64) -> Result<String, Failed> {
    let inputs = Graphs::draw(fused.problem(), &mut fastrand::Rng::with_seed(11));
    let host = Graphs::answer(fused.problem(), &inputs);
    far(device, fused, &inputs)?;
    let (seconds, far) = far(device, fused, &inputs)?;
    if far.len() != host.len() {
        return Err(format!("{} answers are not {}", far.len(), host.len()).into());
    }
    let (mut worst, mut least, mut most) = (0f64, f64::INFINITY, 0f64);
    for (i, ((values, tolerance), host)) in far.iter().zip(&host).enumerate() {
        let values = device.download(values)?.to_f64();
        if values.len() != host.values.len() {
            return Err(format!("output {i}: {} numbers are not {}", values.len(), host.values.len()).into());
        }
        // Beside the error that is allowed, so that small numbers count too.
        let off = |(x, y): (&f64, &f64)| (x - y).abs() / (1.0 + y.abs());
        let off = values.iter().zip(&host.values).map(off).fold(0.0, larger);
        worst = larger(worst, off);
        if off.is_nan() || off > 1e-9 {
            return Err(format!("output {i}: the answers differ by {off}").into());
        }
        let same = tolerance.floor == host.tolerance.floor;
        let share = if same { 1.0 } else { tolerance.floor / host.tolerance.floor };
        (least, most) = (least.min(share), most.max(share));
        // What errors do is a difference of numbers that are nearly the same.
        let allowed = times * (1.0 + 1e-5);
        if !(share <= allowed && share * allowed >= 1.0) || tolerance.relative != host.tolerance.relative {
            return Err(format!("output {i}: {tolerance:?} is not {:?}", host.tolerance).into());
        }
    }
    Ok(format!("off by {worst:.1e}, bounds {least:.6} to {most:.6} of the host's, {:.2} ms", seconds * 1e3))
}

/// The larger of two; what is no number stays.
fn larger(a: f64, b: f64) -> f64 {
    if b > a || b.is_nan() { b } else { a }
}

/// Holds the device's own numbers in double precision to the host's.
fn doubles(device: &Cuda, len: usize) -> Result<(), Failed> {
    let mut rng = fastrand::Rng::with_seed(len as u64);
    for dtype in [DType::F16, DType::Bf16, DType::F32, DType::F64] {
        let array = Array::random(dtype, len, &mut rng);
        let buffer = device.upload(&array)?;
        let wide = device.widen((&buffer).into())?;
        if device.download(&wide)? != Array::F64(array.to_f64()) {
            return Err(format!("{dtype} is widened to something else").into());
        }
    }
    let tolerance = Tolerance { relative: 1e-3, floor: 1e-4 };
    for shift in [Shift::Any(1), Shift::Signs(2), Shift::Up, Shift::Away] {
        let mut values: Vec<f64> = (0..len).map(|_| 8.0 * rng.f64() - 4.0).collect();
        values[len / 2] = f64::INFINITY;
        let (mut there, stream) = (device.upload(&Array::F64(values.clone()))?, shift.stream(5));
        let before = device.widen((&there).into())?;
        device.shift(&mut there, shift, stream, tolerance)?;
        let right = values.clone();
        shift.put_on(&mut values, stream, 0, tolerance);
        let moved = device.download(&there)?.to_f64();
        // A device adds and multiplies at once.
        let off = |(x, y): (&f64, &f64)| if x == y { 0.0 } else { (x - y).abs() };
        let off = moved.iter().zip(&values).map(off).fold(0.0, larger);
        if off.is_nan() || off > 4e-15 {
            return Err(format!("{shift:?} moves numbers {off} further than on the host").into());
        }
        let apart =
            moved.iter().zip(&right).map(|(x, y)| (x - y).abs()).filter(|off| off.is_finite()).fold(0.0, larger);
        let result = device.distance(&there, &before)?;
        if result != apart {
            return Err(format!("{shift:?}: the distance is {result}, expected {apart}").into());
        }
    }
    println!("RIGHT {len} numbers are widened, moved and compared");
    Ok(())
}
