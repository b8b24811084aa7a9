//! Holds the GPU's right answers of every operation that has them there to the host's, and the GPU's comparison to
//! planted mistakes.
//!
//! `cuda-right [PART OF]`: every `OF`th problem from `PART` on, so that several processes share them. Needs an NVIDIA GPU
//! and NVRTC. Prints one line a problem and fails on the first that is not as it should be.
#![allow(clippy::print_stdout)]

use std::time::Instant;

use warplap_core::array::Array;
use warplap_core::catalog::Raced;
use warplap_core::device::{Bounds, Device};
use warplap_core::op::Answer;
use warplap_core::slot::Slot;
use warplap_core::verify::poison_of;
use warplap_cuda::{Buffer, Cuda};
use warplap_ops::attention::Attention;
use warplap_ops::attention_grad::AttentionGrad;
use warplap_ops::attention_mask_grad::AttentionMaskGrad;
use warplap_ops::bsr::Bsr;
use warplap_ops::cross_entropy::CrossEntropy;
use warplap_ops::gated::Gated;
use warplap_ops::gemm::Gemm;
use warplap_ops::norm::Norm;
use warplap_ops::qgemm::Qgemm;
use warplap_ops::rope::Rope;
use warplap_ops::sampled::Sampled;
use warplap_ops::softmax::Softmax;
use warplap_ops::softmax_grad::SoftmaxGrad;

type Failed = Box<dyn std::error::Error>;

const DENSE: [&str; 22] = [
    "gemm:m=64,n=64,k=64,dtype=bf16",
    "gemm:m=70,n=65,k=130,dtype=bf16,batch=2,rms=1e-5,bias=true",
    "gemm:m=70,n=130,k=33,dtype=f16,b=col,rms=1e-3,act=silu,pair=true",
    "gemm:m=70,n=65,k=130,dtype=f32,batch=2,scale=rows,join=mul",
    "gemm:m=70,n=65,k=130,dtype=f16,scale=one,act=gelu",
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
    "gemm:m=77,n=131,k=35,dtype=f32,act=tanh",
    "gemm:m=77,n=131,k=35,dtype=bf16,bias=true,act=sigmoid",
];

const SPARSE: [&str; 11] = [
    "bsr:m=64,k=64,n=64,bs=16,density=0.5,dtype=f16",
    "bsr:m=48,k=32,n=5,bs=16,density=0.5,imbalance=1.5,b=col,dtype=bf16",
    "bsr:m=16,k=16,n=3,bs=8,density=0,dtype=f16",
    "bsr:m=320,k=448,n=264,bs=64,density=0.3,dtype=bf16",
    "bsr:m=256,k=384,n=71,bs=32,density=0.4,dtype=f32,alpha=-0.5,beta=2,turned=true",
    "bsr:m=384,k=384,n=40,bs=128,density=0.4,dtype=f16,alpha=3",
    "bsr:m=512,k=512,n=512,bs=16,density=0.1,dtype=f32,tf32=true,beta=1",
    "bsr:m=256,k=384,n=72,bs=32,density=0.4,dtype=bf16,c=col,alpha=-0.5,beta=2,bias=true",
    "bsr:m=4096,k=4096,n=512,bs=64,density=0.125,dtype=f16",
    "bsr:m=320,k=448,n=71,bs=64,density=0.3,dtype=f8e4m3,alpha=0.25,beta=2,turned=true",
    "bsr:m=384,k=384,n=40,bs=128,density=0.4,dtype=f8e4m3,c=col,bias=true",
];

const SAMPLED: [&str; 6] = [
    "sampled:m=64,k=64,n=64,bs=16,density=0.5,dtype=f16",
    "sampled:m=48,k=32,n=5,bs=16,density=0.5,imbalance=1.5,b=col,dtype=bf16",
    "sampled:m=16,k=24,n=1,bs=8,density=1,g=col,dtype=f32",
    "sampled:m=320,k=448,n=264,bs=64,density=0.3,g=col,b=col,dtype=f16",
    "sampled:m=256,k=384,n=71,bs=128,density=0.4,dtype=f32",
    "sampled:m=2048,k=2048,n=1024,bs=32,density=0.125,dtype=bf16",
];

const NORM: [&str; 13] = [
    "norm:rows=1,n=1,dtype=f32",
    "norm:rows=13,n=77,dtype=f16",
    "norm:rows=64,n=4096,dtype=bf16,residual=true",
    "norm:rows=100,n=768,dtype=f32,kind=layer,bias=true",
    "norm:rows=31,n=1000,dtype=f16,kind=layer,residual=true,bias=true,eps=0.001",
    "norm:rows=5,n=300,dtype=bf16,weight=false,bias=true",
    "norm:rows=9,n=257,dtype=f32,kind=layer,weight=false",
    "norm:rows=9,n=257,dtype=f16,kind=layer,before=true,dropout=0.3",
    "norm:rows=100,n=768,dtype=bf16,residual=true,before=true,dropout=0.1",
    "norm:rows=4096,n=4096,dtype=bf16,kind=layer,residual=true,bias=true",
    "norm:rows=31,n=1000,dtype=bf16,residual=true,quant=f8e4m3",
    "norm:rows=100,n=768,dtype=f16,kind=layer,bias=true,quant=i8",
    "norm:rows=9,n=257,dtype=f32,residual=true,before=true,dropout=0.2,quant=i8",
];

const ATTENTION: [&str; 25] = [
    "attention:b=2,h=4,hkv=2,sq=100,sk=130,d=40,dtype=bf16,mask=tiles,tile=32,over=each,lse=true",
    "attention:b=2,h=2,sq=70,sk=300,d=16,dtype=f32,mask=tiles,tile=64,live=75,causal=true,corner=bottom",
    "attention:h=1,sq=1,d=1,dtype=f32,lse=true",
    "attention:h=2,sq=64,d=64,dtype=bf16",
    "attention:b=2,h=3,sq=65,sk=33,d=17,dtype=f32",
    "attention:b=2,h=4,hkv=2,sq=70,sk=130,d=40,dv=24,dtype=f16,lse=true",
    "attention:h=6,hkv=1,sq=31,sk=97,d=8,dv=200,dtype=bf16",
    "attention:h=2,sq=200,sk=200,d=64,dtype=f16,causal=true",
    "attention:h=2,sq=300,sk=50,d=32,dtype=bf16,causal=true",
    "attention:b=3,h=4,hkv=2,sq=3,sk=200,d=32,dtype=bf16,page=16,lengths=true,layout=bshd,lse=true",
    "attention:b=3,h=4,sq=70,sk=200,d=32,dtype=f16,page=48,causal=true,corner=bottom,alibi=true,lengths=true",
    "attention:b=3,h=2,sq=5,sk=90,d=16,dtype=f32,lengths=true,window=20",
    "attention:b=2,h=2,sq=50,sk=300,d=32,dtype=f32,causal=true",
    "attention:b=5,h=4,hkv=2,sq=197,d=64,dtype=bf16,tq=500,layout=bshd,causal=true,lse=true",
    "attention:b=6,h=2,sq=65,sk=300,d=40,dv=24,dtype=f16,tq=200,tk=800,causal=true,corner=bottom,alibi=true,lse=true",
    "attention:b=3,h=2,sq=70,sk=40,d=8,dtype=f32,tq=90,tk=75,softcap=2,mask=add,over=each,dropout=0.3,lse=true",
    "attention:h=2,sq=100,sk=140,d=16,dtype=f16,mask=add,lse=true",
    "attention:b=3,h=4,hkv=2,sq=90,sk=77,d=48,dtype=bf16,causal=true,mask=add,scale=-0.4,layout=bshd,lse=true",
    "attention:b=2,h=8,hkv=2,sq=1,sk=1000,d=128,dtype=f16,layout=bshd,lse=true",
    "attention:h=1,sq=40,sk=40,d=1024,dv=1000,dtype=f32,scale=0.5",
    "attention:b=2,h=2,sq=128,sk=4000,d=128,dtype=f32,scale=0",
    "attention:b=2,h=16,sq=2048,d=128,dtype=bf16",
    "attention:b=2,h=4,hkv=2,sq=70,sk=130,d=40,window=9,corner=bottom,alibi=true,dtype=f16,lse=true",
    "attention:b=2,h=4,sq=130,sk=70,d=24,causal=true,corner=bottom,mask=add,over=heads,dtype=f32,lse=true",
    "attention:b=2,h=4,sq=70,sk=90,d=24,softcap=3,window=30,causal=true,mask=add,over=each,dtype=bf16,lse=true",
];

const GRADIENTS: [&str; 17] = [
    "attention_grad:b=2,h=4,hkv=2,sq=100,sk=130,d=40,dtype=bf16,mask=tiles,tile=32,over=each",
    "attention_grad:b=2,h=2,sq=170,d=16,dtype=f32,mask=tiles,tile=64,live=75,causal=true,over=heads,alibi=true",
    "attention_grad:h=1,sq=1,d=1,dtype=f32",
    "attention_grad:b=2,h=3,sq=65,sk=33,d=17,dtype=f32",
    "attention_grad:b=5,h=4,hkv=2,sq=197,d=64,dtype=bf16,tq=500,layout=bshd,causal=true",
    "attention_grad:b=6,h=2,sq=65,sk=300,d=40,dv=24,dtype=f16,tq=200,tk=800,causal=true,corner=bottom,alibi=true",
    "attention_grad:b=3,h=2,sq=70,sk=40,d=8,dtype=f32,tq=90,tk=75,softcap=2,mask=add,over=each,dropout=0.3",
    "attention_grad:b=2,h=4,hkv=2,sq=70,sk=130,d=40,dv=24,dtype=f16",
    "attention_grad:h=6,hkv=1,sq=31,sk=97,d=8,dv=200,dtype=bf16",
    "attention_grad:h=2,sq=300,sk=50,d=32,dtype=bf16,causal=true",
    "attention_grad:b=2,h=2,sq=50,sk=300,d=150,dtype=f32,causal=true",
    "attention_grad:h=2,sq=100,sk=140,d=16,dtype=f16,mask=add",
    "attention_grad:b=3,h=4,hkv=2,sq=90,sk=77,d=48,dtype=bf16,causal=true,mask=add,scale=-0.4,layout=bshd",
    "attention_grad:b=1,h=4,sq=1024,d=128,dtype=bf16,causal=true",
    "attention_grad:b=2,h=4,hkv=2,sq=70,sk=130,d=40,window=9,corner=bottom,alibi=true,dtype=f16",
    "attention_grad:b=2,h=4,sq=130,sk=70,d=24,causal=true,corner=bottom,mask=add,over=heads,dtype=f32",
    "attention_grad:b=2,h=4,sq=70,sk=90,d=24,softcap=3,window=30,causal=true,mask=add,over=each,dtype=bf16",
];

const MASKS: [&str; 6] = [
    "attention_mask_grad:h=1,sq=1,d=1,dtype=f32,mask=add",
    "attention_mask_grad:b=2,h=4,hkv=2,sq=70,sk=130,d=40,dv=24,dtype=f16,mask=add,over=heads",
    "attention_mask_grad:b=3,h=4,hkv=2,sq=90,sk=77,d=48,dtype=bf16,causal=true,mask=add,scale=-0.4,layout=bshd",
    "attention_mask_grad:b=2,h=4,sq=130,sk=70,d=24,causal=true,corner=bottom,mask=add,over=batches,dtype=f32,alibi=true",
    "attention_mask_grad:b=2,h=4,sq=70,sk=90,d=24,softcap=3,window=30,mask=add,over=each,dtype=bf16,dropout=0.3",
    "attention_mask_grad:b=2,h=4,sq=512,d=128,dtype=bf16,mask=add",
];

/// Sums of signed bytes are exact: nothing is allowed beside them.
const BYTES: [&str; 7] = [
    "qgemm:m=64,n=64,k=64,out=bf16,scale=tensor",
    "qgemm:m=1,n=1,k=1,out=f32,scale=none",
    "qgemm:m=77,n=131,k=259,out=f16,scale=row",
    "qgemm:m=65,n=130,k=33,out=bf16,scale=row,fast=true",
    "qgemm:m=33,n=300,k=700,out=f32,scale=block",
    "qgemm:m=129,n=129,k=128,out=bf16,scale=block",
    "qgemm:m=1024,n=1024,k=2048,out=bf16,scale=block",
];

const SOFTMAX: [&str; 5] = [
    "softmax:rows=1,n=1,dtype=f32",
    "softmax:rows=13,n=77,dtype=f16,scale=-0.3",
    "softmax:rows=24,n=40,dtype=bf16,mask=2,each=12,scale=0.125",
    "softmax:rows=100,n=768,dtype=f32,mask=100",
    "softmax:rows=1024,n=4096,dtype=bf16",
];

const SOFTMAX_GRAD: [&str; 3] = [
    "softmax_grad:rows=1,n=1,dtype=f32",
    "softmax_grad:rows=13,n=77,dtype=f16,scale=-0.3",
    "softmax_grad:rows=1024,n=4096,dtype=bf16",
];

const ENTROPY: [&str; 6] = [
    "cross_entropy:rows=1,n=1,dtype=f32,grad=true",
    "cross_entropy:rows=13,n=77,dtype=f16,labels=i32,grad=true,smoothing=0.1,zloss=0.01",
    "cross_entropy:rows=100,n=1000,dtype=f32,reduction=sum,ignore=3",
    "cross_entropy:rows=31,n=300,dtype=bf16,grad=true,reduction=sum,smoothing=0.2",
    "cross_entropy:rows=64,n=32000,dtype=bf16,grad=true,zloss=0.0001",
    "cross_entropy:rows=64,n=32000,dtype=bf16,grad=true,kept=true",
];

const GATED: [&str; 8] = [
    "gated:rows=1,n=1,dtype=f32",
    "gated:rows=13,n=77,dtype=f16,act=gelu,join=add,lda=80",
    "gated:rows=31,n=520,dtype=bf16,act=gelu_tanh,lda=1040,ldb=1040",
    "gated:rows=100,n=768,dtype=f32,act=tanh,join=none",
    "gated:rows=100,n=768,dtype=f16,act=sigmoid",
    "gated:rows=9,n=36,dtype=bf16,act=relu,ldb=100",
    "gated:rows=64,n=1024,dtype=f32,act=none,join=add",
    "gated:rows=4096,n=14336,dtype=bf16,act=silu",
];

const ROPE: [&str; 7] = [
    "rope:rows=1,h=1,d=2,dtype=f32",
    "rope:rows=13,h=4,hk=2,d=80,rot=32,n=5,dtype=f16,wide=true,positions=i32",
    "rope:rows=31,h=3,hk=1,d=64,dtype=bf16,table=f32,pairs=interleaved,back=true",
    "rope:rows=9,h=6,d=48,rot=20,n=40,dtype=f16,pairs=interleaved,plain=2,bias=true,positions=i64,ldt=33",
    "rope:rows=64,h=10,d=128,dtype=bf16,plain=2,bias=true,inplace=true,ld=1400",
    "rope:rows=33,h=2,hk=2,d=64,dtype=f32,inplace=true,ld=150,ldk=160,back=true",
    "rope:rows=4096,h=32,hk=8,d=128,dtype=bf16",
];

/// Elements of a guard band, and what they hold.
const GUARD: usize = 256;
const BAND: f64 = -1024.0;

fn main() -> Result<(), Failed> {
    let mut given = std::env::args().skip(1).map(|word| word.parse::<usize>());
    let mut number = |usual| given.next().unwrap_or(Ok(usual));
    let (part, of) = (number(0)?, number(1)?.max(1));
    let mut proof = Proof { device: Cuda::open(0)?, part, of, turn: 0, right: 0 };
    proof.held::<Gemm>(&DENSE)?;
    proof.held::<Bsr>(&SPARSE)?;
    proof.held::<Sampled>(&SAMPLED)?;
    proof.held::<Norm>(&NORM)?;
    proof.held::<Qgemm>(&BYTES)?;
    proof.held::<Softmax>(&SOFTMAX)?;
    proof.held::<SoftmaxGrad>(&SOFTMAX_GRAD)?;
    proof.held::<CrossEntropy>(&ENTROPY)?;
    proof.held::<Rope>(&ROPE)?;
    proof.held::<Gated>(&GATED)?;
    proof.held::<AttentionGrad>(&GRADIENTS)?;
    proof.held::<AttentionMaskGrad>(&MASKS)?;
    proof.held::<Attention>(&ATTENTION)?;
    println!("{} of {} problems are right", proof.right, proof.turn);
    Ok(())
}

/// The device, this process's share of the problems, and how many there were.
struct Proof {
    device: Cuda,
    part: usize,
    of: usize,
    turn: usize,
    right: usize,
}

impl Proof {
    /// Holds the device's answers to an operation's problems to the host's.
    fn held<O: Raced<Cuda>>(&mut self, problems: &[&str]) -> Result<(), Failed> {
        for text in problems {
            if self.turn % self.of == self.part {
                held_one::<O>(&self.device, text).map_err(|why| format!("{text}: {why}"))?;
                self.right += 1;
            }
            self.turn += 1;
        }
        Ok(())
    }
}

fn held_one<O: Raced<Cuda>>(device: &Cuda, text: &str) -> Result<(), Failed> {
    let catalog = O::catalog();
    let (p, oracle) = (&O::parse(text)?, catalog.oracle().ok_or("no oracle")?);
    let inputs = O::draw(p, &mut fastrand::Rng::with_seed(11));
    let (host, signature) = (O::answer(p, &inputs), O::signature(p));
    let read: Vec<Option<Buffer>> = signature
        .slots()
        .iter()
        .zip(&inputs)
        .map(|(slot, a)| slot.is_read().then(|| device.upload(a)).transpose())
        .collect::<Result<_, _>>()?;
    let views: Vec<_> = read.iter().zip(&inputs).map(|(b, a)| b.as_ref().map(|b| device.view(b, 0..a.len()))).collect();
    oracle.answer(p, &views, device)?;
    let started = Instant::now();
    let far = oracle.answer(p, &views, device)?;
    let seconds = started.elapsed().as_secs_f64();
    if far.len() != host.len() {
        return Err(format!("{} answers are not {}", far.len(), host.len()).into());
    }
    let (mut worst, mut planted) = (0f64, 0);
    for ((far, host), slot) in far.iter().zip(&host).zip(signature.written()) {
        let values = device.download(&far.values)?.to_f64();
        let off = |(x, y): (&f64, &f64)| {
            if x.is_nan() || y.is_nan() { f64::from(x.is_nan() != y.is_nan()) } else { (x - y).abs() }
        };
        worst = values.iter().zip(&host.values).map(off).fold(worst, f64::max);
        if values.len() != host.values.len() || worst > 1e-9 {
            return Err(format!("{}: the answers differ by {worst}", slot.name).into());
        }
        let same = |x: f64, y: f64| (x - y).abs() <= 1e-9 * y.abs();
        if !same(far.tolerance.floor, host.tolerance.floor) || far.tolerance.relative != host.tolerance.relative {
            return Err(format!("{}: {:?} is not {:?}", slot.name, far.tolerance, host.tolerance).into());
        }
        planted += mistakes(device, slot, host, &far.values)?;
    }
    println!("RIGHT {text}: off by {worst:.1e}, {:.2} ms; {planted} mistakes seen", seconds * 1e3);
    Ok(())
}

/// Plants mistakes into a right output and asks the device for each; gives how many there were.
fn mistakes(device: &Cuda, slot: &Slot, host: &Answer, right: &Buffer) -> Result<usize, Failed> {
    let len = host.values.len();
    let bounds = Bounds { guard: GUARD, guard_value: BAND, tolerance: host.tolerance };
    let band = || std::iter::repeat_n(BAND, GUARD);
    let whole: Vec<f64> = band().chain(host.values.iter().copied()).chain(band()).collect();
    let seal = device.seal(right)?;
    let share = |values: &[f64]| -> Result<f64, Failed> {
        // An output of whole numbers holds the nearest, and none stands for what was never written.
        let whole = |v: f64| if v.is_nan() { poison_of(slot.dtype) } else { v.round() };
        let held = values.iter().map(|v| if slot.dtype.is_whole() { whole(*v) } else { *v });
        let output = device.upload(&Array::from_f64(slot.dtype, held))?;
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
    let middle = (0..=len / 2).rev().find(|at| !host.values[*at].is_nan()).unwrap_or(0);
    places.push((GUARD + middle, host.values[middle] + 3.0 * host.tolerance.allowed(host.values[middle]) + 1e-30));
    places.extend(slot.padding().first().map(|gap| (GUARD + gap.start, 0.0)));
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
