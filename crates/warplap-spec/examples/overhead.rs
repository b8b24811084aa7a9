//! Where the time of tuning a C kernel goes: in the compiler and in trying kernels out, in the kernels themselves, and
//! the rest, which is ours. Arguments: a spec file, the search, seconds. Prints one JSON line.
#![allow(clippy::print_stdout)]

use std::sync::{Arc, Mutex};
use std::time::Instant;

use warplap::core::arg::Arg;
use warplap::core::candidate::SourceHash;
use warplap::core::catalog::Catalog;
use warplap::core::device::Device;
use warplap::core::progress::Silent;
use warplap::core::rejection::Rejection;
use warplap::core::space::{Config, Space};
use warplap::core::store::Store;
use warplap::core::variant::{Fit, Kernel, Variant};
use warplap::{Budget, Cpu, Settings, Tuner};
use warplap_spec::{KernelFile, KernelProblem, Spec};

type Spans = Arc<Mutex<Vec<(Instant, Instant)>>>;

/// A variant whose compiling and launches are written down.
struct Watched {
    inner: Arc<dyn Variant<KernelFile, Cpu>>,
    compiling: Spans,
    launches: Spans,
}

struct WatchedKernel {
    inner: Box<dyn Kernel<Cpu>>,
    launches: Spans,
}

fn note<T>(spans: &Spans, what: impl FnOnce() -> T) -> T {
    let started = Instant::now();
    let result = what();
    spans.lock().unwrap().push((started, Instant::now()));
    result
}

impl Variant<KernelFile, Cpu> for Watched {
    fn id(&self) -> &str {
        self.inner.id()
    }
    fn source(&self) -> SourceHash {
        self.inner.source()
    }
    fn fit(&self, problem: &KernelProblem, cpu: &Cpu) -> Fit {
        self.inner.fit(problem, cpu)
    }
    fn space(&self, problem: &KernelProblem, cpu: &Cpu) -> Space {
        self.inner.space(problem, cpu)
    }
    fn compile(&self, problem: &KernelProblem, config: &Config, cpu: &Cpu) -> Result<(), Rejection> {
        note(&self.compiling, || self.inner.compile(problem, config, cpu))
    }
    fn build(&self, problem: &KernelProblem, config: &Config, cpu: &Cpu) -> Result<Box<dyn Kernel<Cpu>>, Rejection> {
        let inner = self.inner.build(problem, config, cpu)?;
        Ok(Box::new(WatchedKernel { inner, launches: self.launches.clone() }))
    }
}

impl Kernel<Cpu> for WatchedKernel {
    fn launch(&self, args: &mut [Arg<'_, Cpu>], queue: &()) -> Result<(), Rejection> {
        note(&self.launches, || self.inner.launch(args, queue))
    }
}

/// Seconds covered by any of these spans.
fn covered(mut spans: Vec<(Instant, Instant)>) -> f64 {
    spans.sort();
    let (mut all, mut end) = (0.0, None::<Instant>);
    for (from, to) in spans {
        let from = end.map_or(from, |e| e.max(from));
        if to > from {
            all += (to - from).as_secs_f64();
            end = Some(to);
        }
    }
    all
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [file, search, seconds] = &arguments[..] else { return Err("expected SPEC SEARCH SECONDS".into()) };
    let spec = Spec::load(file.as_ref())?;
    spec.ready()?;
    let (compiling, launches) = (Spans::default(), Spans::default());
    let watch = |inner: &Arc<dyn Variant<KernelFile, Cpu>>| {
        Arc::new(Watched { inner: inner.clone(), compiling: compiling.clone(), launches: launches.clone() })
    };
    let own = spec.on_cpu();
    let first = Catalog::new(watch(&own.variants()[0]));
    let catalog = own.variants()[1..].iter().fold(first, |catalog, v| catalog.with(watch(v)));
    let threads = std::thread::available_parallelism()?.get();
    let cpu = Arc::new(Cpu::with_threads(threads).with_builders((threads - 1).max(1)));
    let store = Store::memory();
    // Measuring the machine's ceilings happens once and is kept: it is no part of tuning a kernel.
    cpu.get_ready(&store, f64::INFINITY);
    let budget = Budget { seconds: seconds.parse()?, ..Budget::default() };
    let tuner = Tuner::new(cpu, catalog, store, Settings { budget, search: search.clone(), ..Settings::default() });
    let started = Instant::now();
    let tuned = tuner.tune(&KernelProblem::new(&spec), &Silent)?;
    let wall = started.elapsed().as_secs_f64();
    let (compiling, launches) = (compiling.lock().unwrap().clone(), launches.lock().unwrap().clone());
    let both = covered(compiling.iter().chain(&launches).copied().collect());
    let (compiled, launched) = (covered(compiling), covered(launches.clone()));
    println!(
        r#"{{"trials": {}, "launches": {}, "wall_s": {wall:.3}, "compiling_s": {compiled:.3}, "in_kernels_s": {launched:.3}, "both_at_once_s": {:.3}, "rest_s": {:.3}, "rest_share": {:.4}}}"#,
        tuned.edition.trials.len(),
        launches.len(),
        compiled + launched - both,
        wall - both,
        (wall - both) / wall,
    );
    Ok(())
}
