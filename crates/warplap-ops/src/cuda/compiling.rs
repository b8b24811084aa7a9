//! The compiler of the tests, so that kernels are compiled on machines without CUDA. Chips to compile for come with it.

use std::collections::{HashMap, HashSet};
use std::sync::{LazyLock, Mutex};

use warplap_core::variant::Fit;
use warplap_cuda::{Chip, Compiler, Cubin, Source};

use super::plan::{CudaKernelSpec, Plan};
use super::right::Width;
use super::{early, installed};

/// The compiler; `None`, said aloud, where `WARPLAP_NO_NVRTC=1` says that there shall be none. A missing Python or
/// network is a failure: a kernel that nobody compiled is not a tested one.
pub(crate) fn compiler() -> Option<Compiler> {
    if installed::is_unwanted() {
        return None;
    }
    if std::env::var_os("WARPLAP_NVRTC").is_some() {
        return Some(Compiler::find().unwrap_or_else(|why| panic!("WARPLAP_NVRTC: {why}")));
    }
    let folder = installed::folder();
    Some(Compiler::within(&folder).unwrap_or_else(|why| panic!("{why}; {}", installed::REMEDY)))
}

/// Whether tests compile all they know; a fair sample of it otherwise.
pub(crate) fn is_long() -> bool {
    std::env::var_os("WARPLAP_LONG").is_some()
}

/// Capabilities that what runs on every chip is compiled for: one before Hopper, Hopper and one after it, and in the
/// long form those between.
pub(crate) fn chips() -> &'static [(u32, u32)] {
    if is_long() { &[(8, 0), (8, 9), (9, 0), (10, 0), (12, 0)] } else { &[(8, 0), (9, 0), (12, 0)] }
}

/// What was met by this process's tests.
#[derive(Default)]
struct Met {
    texts: HashSet<String>,
    /// By test, kernel and chip.
    counts: HashMap<String, usize>,
}

/// Whether a source is to be compiled: once, and in the short form only the first, second and thirty-sixth that a test
/// has of one kernel and chip. So every test compiles each of its kernels for each of its chips, and the sample goes
/// through all its problems; odd and even numbers take turns, as first and last configs do in most tests.
fn is_due(source: &Source, arch: &str) -> bool {
    static MET: LazyLock<Mutex<Met>> = LazyLock::new(Mutex::default);
    let mut met = MET.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    // Many operations have a kernel of one name: a text is known by where it lies.
    let kernel = source.text.as_ptr() as usize;
    if !met.texts.insert(format!("{kernel} {:?} {arch}", source.defines)) {
        return false;
    }
    let test = std::thread::current().name().unwrap_or_default().to_string();
    let count = met.counts.entry(format!("{test} {kernel} {arch}")).or_default();
    *count += 1;
    is_long() || [1, 2, 36].contains(count)
}

/// A chip of a capability, with the shared memory such chips have.
pub(crate) fn chip(capability: (u32, u32)) -> Chip {
    let shared_memory = match capability {
        (8, 0) => 166_912,
        (8, _) | (12, _) => 101_376,
        _ => 232_448,
    };
    Chip { name: "a chip to compile for".into(), capability, shared_memory, ..Chip::h200() }
}

/// Compiles a plan for a chip and checks what the assembler says of it against what the host counted.
pub(crate) fn check(plan: &Plan, chip: &Chip, compiler: &Compiler, what: &str) {
    check_with_spills(plan, chip, compiler, what, 0);
}

/// The same for kernels that may keep so many bytes of a thread in memory.
pub(crate) fn check_with_spills(plan: &Plan, chip: &Chip, compiler: &Compiler, what: &str, bytes: u32) {
    if !is_due(&plan.source, &chip.arch()) {
        return;
    }
    let cubin = plan.source.compile(compiler, &chip.arch());
    let Cubin { image, report } = cubin.unwrap_or_else(|why| panic!("{what} on {}: {why}", chip.arch()));
    if plan.overlap {
        early::check(&image, what);
    }
    let what = format!("{what} on {}: {report:?}", chip.arch());
    assert_eq!(report.refusal(), None, "{what}");
    assert!(report.spill_bytes <= bytes, "{what}");
    assert!(report.registers > 0 && report.registers * plan.threads <= 65536, "{what}");
    assert!(plan.shared + u64::from(report.shared_bytes) <= chip.shared_memory, "{what}: {} asked for", plan.shared);
}

/// Compiles a kernel that no limit is known for.
pub(crate) fn check_builds(source: &Source, chip: &Chip, compiler: &Compiler, what: &str) {
    if is_due(source, &chip.arch()) {
        let cubin = source.compile(compiler, &chip.arch());
        assert!(cubin.is_ok(), "{what}: {} on {}: {cubin:?}", source.entry, chip.arch());
    }
}

/// Compiles the kernel of a right answer for a capability: nothing spills, its shared memory is what every block has.
pub(crate) fn check_right(source: &Source, capability: (u32, u32), what: &str) {
    let (Some(compiler), arch) = (compiler(), chip(capability).arch()) else { return };
    if !is_due(source, &arch) {
        return;
    }
    let report = source.compile(&compiler, &arch).unwrap_or_else(|why| panic!("{what} on {arch}: {why}")).report;
    assert!(report.refusal().is_none() && report.spill_bytes == 0, "{what} on {arch}: {report:?}");
    assert!(report.shared_bytes <= 49_152, "{what} on {arch}: {report:?}");
}

/// Compiles it for inputs as they are drawn and for such as are right answers themselves.
pub(crate) fn check_widths(source: &dyn Fn(Width) -> Source, capability: (u32, u32), what: &str) {
    check_right(&source(Width::Own), capability, what);
    check_right(&source(Width::Double), capability, &format!("{what}, of doubles"));
}

/// Compiles the first and the last config of a kernel that fits a problem.
pub(crate) fn check_ends<P: 'static>(twin: &dyn CudaKernelSpec<P>, p: &P, capability: (u32, u32), text: &str) {
    let Some(compiler) = compiler() else { return };
    let chip = chip(capability);
    assert!(matches!(twin.fit(p, &chip), Fit::Fits(_)), "{text}: {}", twin.id());
    let configs = twin.space(p, &chip).configs();
    let ends = [configs.first(), configs.last().filter(|_| configs.len() > 1)];
    for config in ends.into_iter().flatten() {
        let plan = twin.plan(p, config, &chip).unwrap_or_else(|why| panic!("{text}: {why}"));
        let what = format!("{text}: {} {config}", twin.id());
        check(&plan, &chip, &compiler, &what);
        let beside = twin.beside(p, config, &chip).unwrap_or_else(|why| panic!("{text}: {why}"));
        beside.first.iter().chain(&beside.last).for_each(|plan| check(plan, &chip, &compiler, &what));
    }
}
