//! Proves the CUDA kernels of the dense product on edge shapes, then races a few shapes. Needs an NVIDIA GPU and NVRTC.
//!
//! `cuda-gemm edges | fused | pairs | norms | build PROBLEM... | tune PROBLEM... | screen PROBLEM...`
//! - `edges`: sampled configs of every variant on ragged, padded, unaligned and batched shapes, against double
//!   precision
//! - `fused`: the same with every bias and activation, the first config of each own kernel
//! - `pairs`: sampled configs of every variant that takes two B, on edge shapes
//! - `norms`: sampled configs of every variant with an RMSNorm in front or given factors, on edge shapes
//! - `build`: compiles what `tune` and `screen` may need, so that they need not
//! - `tune`: the tuner's winner, then beside cuBLASLt's first choice in one interleaved race
//! - `screen`: the same without proofs, for products whose right answer takes the host long
//!
//! `WARPLAP_SECONDS` (budget of one race), `WARPLAP_ARTIFACTS` (a folder), `WARPLAP_POLICY` (any of the words stream,
//! cold, back-to-back; else graph, hot and in use), `WARPLAP_SHARD` (`2/8`: the third of eight processes that share
//! `edges`, `fused`, `pairs`, `norms`, `build`) and `WARPLAP_ONLY` (variants that `edges`, `fused`, `pairs` and `norms`
//! prove, in place of all).
#![allow(clippy::print_stdout)]

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Instant;

use warplap_core::device::Device;
use warplap_core::engine::Tuner;
use warplap_core::erased::TypedProblem;
use warplap_core::measure::{CacheState, Clock, Policy, Queueing};
use warplap_core::op::Op;
use warplap_core::problem::Problem;
use warplap_core::progress::Silent;
use warplap_core::rejection::Rejection;
use warplap_core::settings::{Budget, Settings};
use warplap_core::space::Config;
use warplap_core::store::Store;
use warplap_core::variant::{Fit, Kernel, Priority, Variant};
use warplap_core::verify::Case;
use warplap_cuda::Cuda;
use warplap_ops::gemm::{Activation, Gemm, GemmProblem, cuda};

type Failed = Box<dyn std::error::Error>;

fn main() -> Result<(), Failed> {
    let mut words = std::env::args().skip(1);
    let task = words.next().unwrap_or_else(|| "tune".into());
    let problems = words.map(|text| Gemm::parse(&text)).collect::<Result<Vec<_>, _>>()?;
    let mut device = Cuda::open(0)?;
    if let Some(folder) = std::env::var_os("WARPLAP_ARTIFACTS") {
        device = device.with_artifacts(folder.as_ref());
    }
    let device = Arc::new(device);
    match task.as_str() {
        "edges" => edges(&device),
        "fused" => fused(&device),
        "pairs" => pairs(&device),
        "norms" => norms(&device),
        "build" => build(&device, &problems),
        "screen" => problems.iter().try_for_each(|p| screen(&device, p)),
        _ => {
            println!("{:?}", device.chip());
            println!("{:?}", device.fingerprint().soft);
            tune(&device, &problems)
        }
    }
}

/// Whether the i-th piece of work is this process's.
fn mine(i: usize) -> bool {
    let shard = std::env::var("WARPLAP_SHARD").unwrap_or_default();
    let parts = shard.split_once('/').and_then(|(i, n)| Some((i.parse::<usize>().ok()?, n.parse::<usize>().ok()?)));
    parts.is_none_or(|(part, of)| i % of.max(1) == part)
}

fn policy() -> Policy {
    let words = std::env::var("WARPLAP_POLICY").unwrap_or_default();
    let queueing = if words.contains("stream") { Queueing::Stream } else { Queueing::Graph };
    let cache = if words.contains("cold") { CacheState::Cold } else { CacheState::Hot };
    let clock = if words.contains("back-to-back") { Clock::BackToBack } else { Clock::Use };
    Policy { queueing, cache, clock }
}

/// The configs of a variant that are tried: a few of each, compiling takes longer than proving.
fn sampled(configs: Vec<Config>, most: usize) -> impl Iterator<Item = Config> {
    let step = configs.len().div_ceil(most).max(1);
    configs.into_iter().step_by(step)
}

/// Proves sampled configs of every variant on problems, so many of each own kernel.
fn prove(device: &Cuda, what: &str, texts: &[String], most: usize) -> Result<(), Failed> {
    let (mut right, mut wrong) = (0, 0);
    let catalog = cuda::catalog();
    let only = std::env::var("WARPLAP_ONLY").unwrap_or_default();
    let asked = |id: &str| only.is_empty() || only.split(',').any(|one| one == id);
    for (_, text) in texts.iter().enumerate().filter(|(turn, _)| mine(*turn)) {
        // Not every shape goes with every type.
        let Ok(p) = Gemm::parse(text) else { continue };
        let mut case = Case::new(&TypedProblem::new(&p, &catalog), device, 7)?;
        let fits = |v: &dyn Variant<Gemm, Cuda>| asked(v.id()) && matches!(v.fit(&p, device), Fit::Fits(_));
        for variant in catalog.variants().iter().filter(|v| fits(&***v)) {
            let most = if variant.is_library() { 16 } else { most };
            for config in sampled(variant.space(&p, device).configs(), most) {
                let proof = variant
                    .build(&p, &config, device)
                    .and_then(|kernel| case.verify(&*kernel, device).map(|p| p.error))
                    .and_then(|error| case.inputs_untouched(device).map(|()| error));
                match proof {
                    Ok(_) => right += 1,
                    // The library has fewer proposals for some shapes.
                    Err(Rejection::DoesNotBuild { .. }) if variant.is_library() => {}
                    Err(why) => {
                        wrong += 1;
                        println!("WRONG {text}: {}[{config}]: {why}", variant.id());
                    }
                }
            }
        }
    }
    println!("{what}: {right} right, {wrong} not");
    Ok(())
}

fn edges(device: &Cuda) -> Result<(), Failed> {
    let shapes = [
        "m=8,n=8,k=8",
        "m=129,n=136,k=8",
        "m=257,n=1032,k=72,ldc=1040",
        "m=300,n=200,k=200,ldb=312,lda=312",
        "m=64,n=2056,k=4104",
        "m=520,n=776,k=1096",
        "m=1,n=1000,k=1000",
        "m=3,n=203,k=336,ldb=336,ldc=208",
        "m=17,n=1000,k=1000",
        "m=7,n=13,k=5",
        "m=131,n=67,k=259,align=4",
        "m=130,n=70,k=130,lda=133,ldb=131,ldc=71,align=4",
        "m=100,n=260,k=36,lda=108,ldb=268,ldc=262,align=8",
        "m=64,n=64,k=64,batch=3",
        "m=136,n=200,k=72,batch=5,ldc=208",
        "m=2,n=264,k=520,batch=4",
        "m=20,n=136,k=264,batch=2",
        "m=37,n=53,k=29,batch=3,align=4",
    ];
    let mut texts = Vec::new();
    for shape in shapes {
        for layout in ["", ",b=col", ",a=col", ",a=col,b=col"] {
            let dtypes = ["bf16", "f16", "f32", "f32,tf32=true"];
            texts.extend(dtypes.map(|dtype| format!("gemm:{shape},dtype={dtype}{layout}")));
        }
    }
    prove(device, "edges", &texts, 3)
}

fn fused(device: &Cuda) -> Result<(), Failed> {
    let shapes = [
        "m=200,n=328,k=72,dtype=bf16",
        "m=64,n=1032,k=264,dtype=f16,b=col",
        "m=520,n=776,k=1096,dtype=bf16,b=col,ldc=784",
        "m=2,n=264,k=136,dtype=f16",
        "m=1,n=1000,k=1000,dtype=bf16,b=col",
        "m=77,n=131,k=35,dtype=f16",
        "m=131,n=67,k=259,dtype=bf16,align=4",
        "m=77,n=131,k=35,dtype=f32",
        "m=200,n=328,k=72,dtype=f32,tf32=true,b=col",
        "m=70,n=72,k=40,dtype=bf16,batch=3",
        "m=37,n=53,k=29,dtype=f32,batch=2",
    ];
    let mut texts = Vec::new();
    for shape in shapes {
        for (act, bias) in Activation::ALL.into_iter().flat_map(|act| [(act, false), (act, true)]).skip(1) {
            texts.push(format!("gemm:{shape},bias={bias},act={act}"));
        }
    }
    prove(device, "fused", &texts, 1)
}

fn pairs(device: &Cuda) -> Result<(), Failed> {
    let shapes = [
        "m=8,n=8,k=8,dtype=bf16",
        "m=16,n=1000,k=264,dtype=bf16,b=col",
        "m=64,n=1032,k=520,dtype=f16,ldc=1040",
        "m=33,n=70,k=328,dtype=bf16,b=col,ldc=72",
        "m=1,n=1000,k=1000,dtype=bf16,b=col",
        "m=3,n=200,k=136,dtype=f16",
        "m=2,n=264,k=520,dtype=f16,batch=4",
        "m=256,n=1000,k=136,dtype=bf16,b=col",
        "m=300,n=264,k=72,dtype=f16,b=col,ldb=80,ldc=272",
        "m=136,n=200,k=72,dtype=bf16,b=col,batch=5,ldc=208",
        "m=129,n=136,k=8,dtype=f16,a=col,b=col",
        "m=520,n=776,k=1096,dtype=bf16,a=col",
        "m=2100,n=2056,k=200,dtype=bf16,b=col",
        "m=2100,n=2056,k=200,dtype=f16",
        "m=77,n=131,k=35,dtype=f16",
        "m=77,n=131,k=35,dtype=f16,b=col",
        "m=131,n=67,k=259,dtype=bf16,align=4",
        "m=130,n=70,k=130,dtype=f16,a=col,lda=133,ldb=131,ldc=71,align=4",
        "m=200,n=328,k=72,dtype=f32,tf32=true,b=col",
        "m=200,n=328,k=72,dtype=f32,tf32=true,a=col",
        "m=37,n=53,k=29,dtype=f32,batch=2",
    ];
    let of = |act: &str| shapes.iter().map(|shape| format!("gemm:{shape},act={act},pair=true")).collect::<Vec<_>>();
    prove(device, "pairs", &of("silu"), 6)?;
    prove(device, "other pairs", &[of("none"), of("gelu")].concat(), 1)
}

fn norms(device: &Cuda) -> Result<(), Failed> {
    let shapes = [
        "m=8,n=8,k=8,dtype=bf16",
        "m=16,n=1000,k=264,dtype=bf16,b=col",
        "m=16,n=4096,k=4096,dtype=bf16,b=col",
        "m=64,n=1032,k=520,dtype=f16,ldc=1040",
        "m=100,n=520,k=1032,dtype=f16,b=col",
        "m=1,n=1000,k=1000,dtype=bf16,b=col",
        "m=3,n=200,k=136,dtype=f16,batch=4",
        "m=256,n=1000,k=136,dtype=bf16,b=col",
        "m=300,n=264,k=72,dtype=f16,b=col,lda=80,ldb=80,ldc=272",
        "m=136,n=200,k=72,dtype=bf16,b=col,batch=5,ldc=208",
        "m=2100,n=2056,k=200,dtype=bf16,b=col",
        "m=520,n=776,k=1096,dtype=f16",
        "m=77,n=131,k=35,dtype=f16",
        "m=131,n=67,k=259,dtype=bf16,align=4",
        "m=200,n=328,k=72,dtype=f32,tf32=true,b=col",
        "m=37,n=53,k=29,dtype=f32,batch=2",
    ];
    let of = |rest: &str| shapes.iter().map(|shape| format!("gemm:{shape},{rest}")).collect::<Vec<_>>();
    prove(device, "norms in front", &of("rms=1e-5"), 8)?;
    prove(device, "norms and what is behind", &of("rms=1e-3,bias=true,act=silu,join=add"), 3)?;
    prove(device, "norms of pairs", &of("rms=1e-5,act=silu,pair=true"), 3)?;
    prove(device, "given factors", &[of("scale=rows,bias=true"), of("scale=one,pair=true")].concat(), 2)
}

/// What may race for a problem.
fn entries(device: &Cuda, p: &GemmProblem, least: Priority) -> Vec<(String, Config)> {
    let catalog = cuda::catalog();
    let fits = catalog.variants().iter().filter(|v| matches!(v.fit(p, device), Fit::Fits(f) if f >= least));
    fits.flat_map(|v| v.space(p, device).configs().into_iter().map(|c| (v.id().to_string(), c))).collect()
}

fn build(device: &Cuda, problems: &[GemmProblem]) -> Result<(), Failed> {
    let (catalog, mut built, mut turn) = (cuda::catalog(), 0, 0);
    for p in problems {
        for (id, config) in entries(device, p, Priority::High) {
            turn += 1;
            if id == "cublaslt" || !mine(turn) {
                continue;
            }
            match catalog.find(&id).ok_or("no such variant")?.build(p, &config, device) {
                Ok(_) => built += 1,
                Err(why) => println!("{}: {id}[{config}]: {why}", Gemm::text(p)),
            }
        }
    }
    println!("built {built}");
    Ok(())
}

/// Times kernels in turn and gives the median seconds of each.
fn race(device: &Cuda, p: &GemmProblem, kernels: &[Box<dyn Kernel<Cuda>>], rounds: usize) -> Result<Vec<f64>, Failed> {
    let card = TypedProblem::new(p, &cuda::catalog());
    let first = Case::without_answer(&card, device, 1)?;
    let sets = device.sets(policy(), first.footprint()).max(1);
    let mut cases = vec![first];
    for seed in 2..=sets as u64 {
        cases.push(Case::without_answer(&card, device, seed)?);
    }
    let cases = RefCell::new(cases);
    let mut laps = Vec::new();
    for kernel in kernels {
        let launch = |queue: &_, set: usize| cases.borrow_mut()[set].launch(&**kernel, device, queue);
        laps.push(device.lap(policy(), &vec![Vec::new(); sets], Box::new(launch)).ok());
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
    Ok(samples.into_iter().map(median).collect())
}

fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples.get(samples.len() / 2).copied().unwrap_or(f64::INFINITY)
}

/// A winner beside the library's first choice, in one interleaved race: microseconds of both.
fn beside(device: &Cuda, p: &GemmProblem, id: &str, config: &Config) -> Result<(f64, f64), Failed> {
    let catalog = cuda::catalog();
    let library = catalog.find("cublaslt").ok_or("no library in the list")?;
    let first = Config::new().with("choice", 0i64).with("workspace", 32i64);
    let kernels = vec![
        catalog.find(id).ok_or("no such variant")?.build(p, config, device).map_err(|e| e.to_string())?,
        library.build(p, &first, device).map_err(|e| e.to_string())?,
    ];
    let times = race(device, p, &kernels, 41)?;
    Ok((times[0] * 1e6, times[1] * 1e6))
}

fn line(p: &GemmProblem, id: &str, config: &Config, (ours, theirs): (f64, f64), rest: &str) {
    println!(
        "RATIO {:.3} {} [{}] {id}[{config}] {ours:.2} us ({:.0} TF), cublaslt {theirs:.2} us; {rest}",
        theirs / ours,
        Gemm::text(p),
        policy(),
        p.work().flops / ours * 1e-6
    );
}

fn screen(device: &Cuda, p: &GemmProblem) -> Result<(), Failed> {
    let (catalog, started) = (cuda::catalog(), Instant::now());
    let mut built = Vec::new();
    for (id, config) in entries(device, p, Priority::High) {
        if let Ok(kernel) = catalog.find(&id).ok_or("no such variant")?.build(p, &config, device) {
            built.push(((id, config), kernel));
        }
    }
    let (names, kernels): (Vec<_>, Vec<_>) = built.into_iter().unzip();
    let mut times = race(device, p, &kernels, 5)?;
    let mut order: Vec<usize> = (0..names.len()).collect();
    order.sort_by(|a, b| times[*a].total_cmp(&times[*b]));
    // The best few once more, with more rounds; the best of the library among them.
    let mut few: Vec<usize> = order.iter().copied().take(6).collect();
    few.extend(
        order.iter().copied().filter(|i| names[*i].0 == "cublaslt" && !few.contains(i)).take(2).collect::<Vec<_>>(),
    );
    let mut kernels: Vec<_> = kernels.into_iter().map(Some).collect();
    let again: Vec<_> = few.iter().filter_map(|i| kernels[*i].take()).collect();
    drop(kernels);
    for (i, time) in few.iter().zip(race(device, p, &again, 31)?) {
        times[*i] = time;
    }
    drop(again);
    order = few;
    order.sort_by(|a, b| times[*a].total_cmp(&times[*b]));
    let best = |own: bool| order.iter().find(|i| (names[**i].0 != "cublaslt") == own).copied();
    let (id, config) = &names[*order.first().ok_or("nothing fits")?];
    let both = beside(device, p, id, config)?;
    let own = best(true)
        .map_or(String::new(), |i| format!("best own {}[{}] {:.2} us", names[i].0, names[i].1, times[i] * 1e6));
    let library =
        best(false).map_or(String::new(), |i| format!("best library [{}] {:.2} us", names[i].1, times[i] * 1e6));
    line(
        p,
        id,
        config,
        both,
        &format!("{own}, {library}; {} tried, {:.1} s", names.len(), started.elapsed().as_secs_f64()),
    );
    Ok(())
}

fn tune(device: &Arc<Cuda>, problems: &[GemmProblem]) -> Result<(), Failed> {
    let seconds = std::env::var("WARPLAP_SECONDS").ok().and_then(|s| s.parse().ok()).unwrap_or(20.0);
    let budget = Budget { seconds, ..Budget::default() };
    let settings = Settings { budget, policy: policy(), ..Settings::default() };
    let tuner = Tuner::new(device.clone(), cuda::catalog(), Store::memory(), settings);
    for problem in problems {
        let started = Instant::now();
        let tuned = match tuner.tune(problem, &Silent) {
            Ok(tuned) => tuned,
            Err(why) => {
                println!("{}: {why}", Gemm::text(problem));
                continue;
            }
        };
        let trials = &tuned.edition.trials;
        let winner = &tuned.edition.verdict.winner;
        let best = |library: bool| {
            let own = trials.iter().filter(|t| (t.candidate.variant == "cublaslt") == library);
            own.filter_map(|t| t.median_us().map(|us| (us, t))).min_by(|a, b| a.0.total_cmp(&b.0))
        };
        let show = |what: &str, library| {
            best(library).map_or(String::new(), |(us, t)| format!("{what} {} {us:.2} us, ", t.candidate))
        };
        let rest = format!(
            "{}{}{} trials, {} right, {:.1} s",
            show("best own", false),
            show("best library", true),
            trials.len(),
            trials.iter().filter(|t| t.is_right()).count(),
            started.elapsed().as_secs_f64()
        );
        let both = beside(device, problem, &winner.variant, &winner.config)?;
        line(problem, &winner.variant, &winner.config, both, &rest);
        let unexpected = |t: &&warplap_core::candidate::Trial| !t.is_right() && t.candidate.variant != "cublaslt";
        for trial in trials.iter().filter(unexpected).take(2) {
            println!("   {}: {:?}", trial.candidate, trial.outcome);
        }
    }
    if let Some(ceilings) = device.ceilings() {
        println!("{ceilings:?}");
    }
    Ok(())
}
