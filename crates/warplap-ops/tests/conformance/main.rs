//! Every variant of every operation against the right answer: edge problems × sampled configs. A new variant is
//! covered by being listed, a new operation by its `edges.rs`: the rest is said by its
//! signature.

use std::thread::JoinHandle;

use warplap_core::arg::{Arg, ScalarArg};
use warplap_core::array::Array;
use warplap_core::catalog::{Catalog, Raced};
use warplap_core::device::Device;
use warplap_core::dtype::DType;
use warplap_core::erased::TypedProblem;
use warplap_core::op::Op;
use warplap_core::slot::{Role, Signature};
use warplap_core::variant::{Fit, Kernel};
use warplap_core::verify::Case;
use warplap_cpu::Cpu;
use warplap_ops::gemm::GemmProblem;
use warplap_ops::registry::{self, Known, Visitor};

#[path = "../../../warplap-cpu/tests/installed/mod.rs"]
mod installed;
mod packed;

/// Configs tried per variant and problem; all of them where there are no more.
const SAMPLED: usize = 6;

fn conform<O: Op>(catalog: &Catalog<O, Cpu>, problems: &[String]) {
    let cpu = Cpu::new();
    let mut rng = fastrand::Rng::with_seed(11);
    let mut wrong = Vec::new();
    for text in problems {
        let problem = O::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"));
        let card = TypedProblem::new(&problem, catalog);
        let mut cases = [1, 2].map(|seed| Case::new(&card, &cpu, seed).unwrap_or_else(|e| panic!("{text}: {e}")));
        for variant in catalog.variants() {
            if let Fit::Aside(_) = variant.fit(&problem, &cpu) {
                assert_ne!(variant.id(), catalog.reference().id(), "{text}: the reference fits everything");
                continue;
            }
            let mut configs = variant.space(&problem, &cpu).configs();
            rng.shuffle(&mut configs);
            configs.truncate(SAMPLED);
            assert!(!configs.is_empty(), "{text}: {} fits but has no legal config", variant.id());
            for config in configs {
                let outcome = variant.build(&problem, &config, &cpu).and_then(|kernel| {
                    refuses_what_does_not_fit(&*kernel, &O::signature(&problem), &cpu, text);
                    cases.iter_mut().try_for_each(|c| c.verify(&*kernel, &cpu).map(|_| ()))
                });
                if let Err(rejection) = outcome {
                    wrong.push(format!("{text} {}[{config}]: {rejection}", variant.id()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} of them:\n{}", wrong.len(), wrong.join("\n"));
}

/// What is wrong with one argument of a launch.
#[derive(Clone, Copy, Debug)]
enum Corruption {
    /// It is not there, or it is there where the problem has none.
    Present,
    /// Its buffer holds one element less than the slot spans.
    Short,
    /// Its buffer is of another type.
    Typed,
}

/// Bends each argument in turn. No kernel may ever see one: its unsafe code relies on the signature.
fn refuses_what_does_not_fit(kernel: &dyn Kernel<Cpu>, signature: &Signature, cpu: &Cpu, text: &str) {
    for (i, slot) in signature.slots().iter().enumerate() {
        for corruption in [Corruption::Present, Corruption::Short, Corruption::Typed] {
            if slot.is_empty() && !matches!(corruption, Corruption::Present) || slot.role == Role::Scalar {
                continue;
            }
            let outcome = with_corrupted_argument(signature, (i, corruption), cpu, |args| kernel.launch(args, &()));
            assert!(outcome.is_err(), "{text}: '{}' is corrupt ({corruption:?}), and launched", slot.name);
        }
    }
}

/// Hands arguments to a body that are those of a signature, but for the bent one.
fn with_corrupted_argument<R>(
    signature: &Signature,
    (corrupted_slot, corruption): (usize, Corruption),
    cpu: &Cpu,
    body: impl FnOnce(&mut [Arg<'_, Cpu>]) -> R,
) -> R {
    let corruption_of = |i: usize| Some(corruption).filter(|_| i == corrupted_slot);
    let slots = || signature.slots().iter().enumerate();
    let memory = slots().map(|(i, slot)| {
        let dtype = match (corruption_of(i), slot.dtype) {
            (Some(Corruption::Typed), DType::I32) => DType::F32,
            (Some(Corruption::Typed), _) => DType::I32,
            (_, dtype) => dtype,
        };
        let len = if matches!(corruption_of(i), Some(Corruption::Short)) { slot.len() - 1 } else { slot.len() };
        let present = slot.present != matches!(corruption_of(i), Some(Corruption::Present));
        (present && slot.role != Role::Scalar)
            .then(|| (cpu.upload(&Array::filled(dtype, len, 0.0)).expect("memory"), len))
    });
    let mut memory: Vec<Option<_>> = memory.collect();
    let mut args: Vec<Arg<'_, Cpu>> = Vec::new();
    for ((_, slot), memory) in slots().zip(&mut memory) {
        args.push(match (slot.role, memory) {
            (Role::Scalar, _) if slot.present => Arg::Scalar(ScalarArg::Int(0)),
            (_, None) => Arg::Absent,
            (Role::Out | Role::InOut, Some((buffer, len))) => Arg::Write(cpu.view_mut(buffer, 0..*len)),
            (_, Some((buffer, len))) => Arg::Read(cpu.view(buffer, 0..*len)),
        });
    }
    body(&mut args)
}

/// Every operation in turn, each on a thread of its own; `WARPLAP_OPERATION` names a single one.
struct Conforming {
    only: Option<String>,
    running: Vec<(&'static str, JoinHandle<()>)>,
}

impl Visitor for Conforming {
    fn visit<O: Known>(&mut self) {
        if self.only.as_deref().is_none_or(|only| only == O::NAME) {
            let run = || conform(&<O as Raced<Cpu>>::catalog(), &O::edges());
            self.running.push((O::NAME, std::thread::spawn(run)));
        }
    }
}

#[test]
fn every_variant_of_every_operation_is_right_on_edge_problems() {
    with_a_library();
    let mut all = Conforming { only: std::env::var("WARPLAP_OPERATION").ok(), running: Vec::new() };
    registry::each(&mut all);
    assert!(!all.running.is_empty(), "WARPLAP_OPERATION names none");
    let failed: Vec<&str> =
        all.running.into_iter().filter_map(|(name, thread)| thread.join().is_err().then_some(name)).collect();
    assert!(failed.is_empty(), "wrong: {failed:?}");
}

/// Sees to it that a BLAS library races: the one that `WARPLAP_BLAS` names, or NumPy's.
fn with_a_library() {
    if std::env::var_os("WARPLAP_BLAS").is_none() && cfg!(target_os = "linux") {
        let [numpy, _] = installed::libraries().expect("nobody said off");
        // SAFETY: what reads the environment here goes through std, or comes later on this thread.
        unsafe { std::env::set_var("WARPLAP_BLAS", numpy) };
    }
    let (catalog, cpu) = (warplap_ops::gemm::cpu::catalog(), Cpu::new());
    let blas = catalog.find("blas").expect("it is listed");
    let wanted = cfg!(target_os = "linux") && std::env::var_os("WARPLAP_BLAS").is_some_and(|v| v != "off");
    let fit = blas.fit(&GemmProblem::new(64, 64, 64, DType::F32), &cpu);
    assert!(fit == Fit::HIGH || !wanted, "{fit:?}");
}
