//! Holds the GPU's right answers of products, dense and block-sparse, to the host's, and the GPU's comparison to planted mistakes.
//!
//! Needs an NVIDIA GPU and NVRTC. Prints one line a problem and fails on the first that is not as it should be.
#![allow(clippy::print_stdout)]

use std::time::Instant;

use warplap_core::array::Array;
use warplap_core::device::{Bounds, Device};
use warplap_core::dtype::DType;
use warplap_core::op::{Answer, Op};
use warplap_core::oracle::Oracle;
use warplap_cuda::{Buffer, Cuda};
use warplap_ops::bsr::{self, Bsr};
use warplap_ops::gemm::{self, Gemm};

type Failed = Box<dyn std::error::Error>;

const DENSE: [&str; 16] = [
    "gemm:m=64,n=64,k=64,dtype=bf16",
    "gemm:m=1,n=1,k=1,dtype=f16",
    "gemm:m=777,n=333,k=555,dtype=bf16",
    "gemm:m=129,n=65,k=17,dtype=f16,a=col",
    "gemm:m=65,n=130,k=33,dtype=bf16,b=col",
    "gemm:m=100,n=70,k=51,dtype=f32,a=col,b=col",
    "gemm:m=50,n=60,k=70,dtype=f16,lda=72,ldb=64,ldc=67",
    "gemm:m=50,n=60,k=70,dtype=f32,a=col,b=col,lda=56,ldb=71,ldc=61,batch=3",
    "gemm:m=33,n=31,k=29,dtype=bf16,batch=5",
    "gemm:m=1,n=500,k=300,dtype=f16,ldc=512",
    "gemm:m=512,n=256,k=1024,dtype=f32,tf32=true",
    "gemm:m=2048,n=2048,k=2048,dtype=bf16",
    "gemm:m=77,n=131,k=35,dtype=f16,ldc=140,batch=2,bias=true",
    "gemm:m=77,n=131,k=35,dtype=f32,bias=true,act=gelu",
    "gemm:m=200,n=328,k=72,dtype=bf16,b=col,bias=true,act=gelu_tanh",
    "gemm:m=200,n=328,k=72,dtype=f32,tf32=true,act=silu",
];

const SPARSE: [&str; 8] = [
    "bsr:m=64,k=64,n=64,bs=16,density=0.5,dtype=f16",
    "bsr:m=48,k=32,n=5,bs=16,density=0.5,imbalance=1.5,b=col,dtype=bf16",
    "bsr:m=16,k=16,n=3,bs=8,density=0,dtype=f16",
    "bsr:m=320,k=448,n=264,bs=64,density=0.3,dtype=bf16",
    "bsr:m=256,k=384,n=71,bs=32,density=0.4,dtype=f32,alpha=-0.5,beta=2,turned=true",
    "bsr:m=384,k=384,n=40,bs=128,density=0.4,dtype=f16,alpha=3",
    "bsr:m=512,k=512,n=512,bs=16,density=0.1,dtype=f32,tf32=true,beta=1",
    "bsr:m=4096,k=4096,n=512,bs=64,density=0.125,dtype=f16",
];

/// Elements of a guard band, and what they hold.
const GUARD: usize = 256;
const BAND: f64 = -1024.0;

fn main() -> Result<(), Failed> {
    let device = Cuda::open(0)?;
    let (dense, sparse) = (gemm::cuda::catalog(), bsr::cuda::catalog());
    let (dense, sparse) = (dense.oracle().ok_or("no oracle")?, sparse.oracle().ok_or("no oracle")?);
    for text in DENSE {
        let p = Gemm::parse(text)?;
        held::<Gemm>(&device, dense, &p, [p.n, p.ldc])?;
    }
    for text in SPARSE {
        let p = Bsr::parse(text)?;
        held::<Bsr>(&device, sparse, &p, [p.n, p.n])?;
    }
    Ok(())
}

/// Holds the device's answer to a problem to the host's; `n` elements a row of the output, `ldc` from row to row.
fn held<O: Op>(device: &Cuda, oracle: &dyn Oracle<O, Cuda>, p: &O::Problem, [n, ldc]: [u64; 2]) -> Result<(), Failed> {
    let text = O::text(p);
    let inputs = O::draw(p, &mut fastrand::Rng::with_seed(11));
    let host = O::answer(p, &inputs).remove(0);
    let signature = O::signature(p);
    let read: Vec<Option<Buffer>> = signature
        .slots()
        .iter()
        .zip(&inputs)
        .map(|(slot, a)| slot.is_read().then(|| device.upload(a)).transpose())
        .collect::<Result<_, _>>()?;
    let views: Vec<_> = read.iter().zip(&inputs).map(|(b, a)| b.as_ref().map(|b| device.view(b, 0..a.len()))).collect();
    oracle.answer(p, &views, device)?;
    let started = Instant::now();
    let far = oracle.answer(p, &views, device)?.remove(0);
    let seconds = started.elapsed().as_secs_f64();
    let values = device.download(&far.values)?.to_f64();
    let off = |(x, y): (&f64, &f64)| {
        if x.is_nan() || y.is_nan() { f64::from(x.is_nan() != y.is_nan()) } else { (x - y).abs() }
    };
    let worst = values.iter().zip(&host.values).map(off).fold(0.0, f64::max);
    if values.len() != host.values.len() || worst > 1e-9 {
        return Err(format!("{text}: the answers differ by {worst}").into());
    }
    let same = |x: f64, y: f64| (x - y).abs() <= 1e-9 * y.abs();
    if !same(far.tolerance.floor, host.tolerance.floor) || far.tolerance.relative != host.tolerance.relative {
        return Err(format!("{text}: {:?} is not {:?}", far.tolerance, host.tolerance).into());
    }
    let dtype = signature.written().next().ok_or("no output")?.dtype;
    let planted = mistakes(device, dtype, &host, &far.values, n as usize, ldc as usize)?;
    println!("RIGHT {text}: off by {worst:.1e}, {:.2} ms; {planted} mistakes seen", seconds * 1e3);
    Ok(())
}

/// Plants mistakes into a right output and asks the device for each; gives how many there were.
fn mistakes(device: &Cuda, dtype: DType, host: &Answer, right: &Buffer, n: usize, ldc: usize) -> Result<usize, Failed> {
    let len = host.values.len();
    let bounds = Bounds { guard: GUARD, guard_value: BAND, tolerance: host.tolerance };
    let band = || std::iter::repeat_n(BAND, GUARD);
    let whole: Vec<f64> = band().chain(host.values.iter().copied()).chain(band()).collect();
    let seal = device.seal(right)?;
    let share = |values: &[f64]| -> Result<f64, Failed> {
        let output = device.upload(&Array::from_f64(dtype, values.iter().copied()))?;
        let compared = device.compare(&output, right, bounds)?;
        if compared.seal != seal {
            return Err("the seal of the answer changes by reading it".into());
        }
        Ok(compared.share)
    };
    let fine = share(&whole)?;
    if fine > 1.0 {
        return Err(format!("a right output takes {fine} of what is allowed").into());
    }
    let mut places = vec![(0, 0.0), (GUARD - 1, 0.0), (GUARD, f64::NAN), (GUARD + len - 1, f64::NAN)];
    places.extend([(GUARD + len, f64::NAN), (len + 2 * GUARD - 1, 0.0)]);
    let middle = len / 2 / ldc * ldc;
    places.push((GUARD + middle, host.values[middle] + 3.0 * host.tolerance.allowed(host.values[middle]) + 1e-30));
    if ldc > n && len > n {
        places.push((GUARD + n, 0.0));
    }
    for (at, value) in &places {
        let mut changed = whole.clone();
        changed[*at] = *value;
        let seen = share(&changed)?;
        if seen <= 1.0 {
            return Err(format!("{value} at {at} of {len} was not seen: {seen}").into());
        }
    }
    let mut other = device.download(right)?.to_f64();
    other.swap(0, len - 1);
    other[len / 2] += 1.0;
    if device.seal(&device.upload(&Array::F64(other))?)? == seal {
        return Err("another answer has the same seal".into());
    }
    Ok(places.len() + 1)
}
