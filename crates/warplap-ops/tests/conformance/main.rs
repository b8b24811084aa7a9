//! Every variant of every operation against the right answer: edge problems × sampled configs. A new variant is
//! covered by being listed, a new operation by its list of edge problems: the rest is said by its signature.

use warplap_core::arg::{Arg, ScalarArg};
use warplap_core::array::Array;
use warplap_core::catalog::Catalog;
use warplap_core::device::Device;
use warplap_core::dtype::DType;
use warplap_core::erased::TypedProblem;
use warplap_core::op::Op;
use warplap_core::slot::{Role, Signature};
use warplap_core::variant::{Fit, Kernel};
use warplap_core::verify::Case;
use warplap_cpu::Cpu;

mod attention;
mod attention_grad;
mod attention_mask_grad;
mod bsr;
mod cross_entropy;
mod gated;
mod gemm;
#[path = "../../../warplap-cpu/tests/installed/mod.rs"]
mod installed;
mod norm;
mod norm_grad;
mod packed;
mod qgemm;
mod rope;
mod sampled;
mod softmax;
mod softmax_grad;

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
enum Bent {
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
        for bent in [Bent::Present, Bent::Short, Bent::Typed] {
            if slot.is_empty() && !matches!(bent, Bent::Present) || slot.role == Role::Scalar {
                continue;
            }
            let outcome = with_bent(signature, (i, bent), cpu, |args| kernel.launch(args, &()));
            assert!(outcome.is_err(), "{text}: '{}' is bent ({bent:?}), and launched", slot.name);
        }
    }
}

/// Hands arguments to a body that are those of a signature, but for the bent one.
fn with_bent<R>(
    signature: &Signature,
    (bent_at, bent): (usize, Bent),
    cpu: &Cpu,
    body: impl FnOnce(&mut [Arg<'_, Cpu>]) -> R,
) -> R {
    let bent = |i: usize| Some(bent).filter(|_| i == bent_at);
    let slots = || signature.slots().iter().enumerate();
    let memory = slots().map(|(i, slot)| {
        let dtype = match (bent(i), slot.dtype) {
            (Some(Bent::Typed), DType::I32) => DType::F32,
            (Some(Bent::Typed), _) => DType::I32,
            (_, dtype) => dtype,
        };
        let len = if matches!(bent(i), Some(Bent::Short)) { slot.len() - 1 } else { slot.len() };
        let present = slot.present != matches!(bent(i), Some(Bent::Present));
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

/// One test an operation that needs nothing from outside.
macro_rules! conforming {
    ($($op:ident: $test:ident),* $(,)?) => {
        $(#[test]
        fn $test() {
            conform(&warplap_ops::$op::cpu::catalog(), &$op::problems());
        })*
    };
}

#[test]
fn every_gemm_variant_is_right_on_edge_problems() {
    gemm::with_a_library();
    conform(&warplap_ops::gemm::cpu::catalog(), &gemm::problems());
}

conforming! {
    attention: every_attention_variant_is_right_on_edge_problems,
    attention_grad: every_attention_grad_variant_is_right_on_edge_problems,
    attention_mask_grad: every_attention_mask_grad_variant_is_right_on_edge_problems,
    bsr: every_bsr_variant_is_right_on_edge_problems,
    sampled: every_sampled_variant_is_right_on_edge_problems,
    norm: every_norm_variant_is_right_on_edge_problems,
    norm_grad: every_norm_grad_variant_is_right_on_edge_problems,
    qgemm: every_qgemm_variant_is_right_on_edge_problems,
    cross_entropy: every_cross_entropy_variant_is_right_on_edge_problems,
    softmax: every_softmax_variant_is_right_on_edge_problems,
    rope: every_rope_variant_is_right_on_edge_problems,
    gated: every_gated_variant_is_right_on_edge_problems,
    softmax_grad: every_softmax_grad_variant_is_right_on_edge_problems,
}
