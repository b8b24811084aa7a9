//! Wrong kernels against the real operations on the real CPU: each is rejected wherever it fits, none wins, none is kept
//! as measured (fault test F21). A mutant that passes is a hole in `verify`, not in the mutant.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use warplap_core::arg::Arg;
use warplap_core::candidate::{Outcome, SourceHash};
use warplap_core::catalog::Catalog;
use warplap_core::dtype::DType;
use warplap_core::engine::Tuner;
use warplap_core::erased::TypedProblem;
use warplap_core::op::Op;
use warplap_core::progress::Silent;
use warplap_core::rejection::Rejection;
use warplap_core::roofline::{Bandwidth, Ceilings};
use warplap_core::settings::{Budget, Settings};
use warplap_core::space::{Config, Space};
use warplap_core::store::Store;
use warplap_core::variant::{Fit, Kernel, Variant};
use warplap_core::verify::Case;
use warplap_cpu::Cpu;
use warplap_ops::gated::{self, Gated, GatedProblem};
use warplap_ops::gemm::{self, Gemm, GemmProblem};

use call::{Call, Wrong};

mod activations;
mod call;
mod conduct;
mod places;
mod rounding;
mod sums;

/// A wrong kernel as a variant.
struct Mutant<P, K> {
    id: &'static str,
    /// Where it is wrong; elsewhere it stands aside.
    fits: fn(&P) -> bool,
    built: K,
}

impl<O, K> Variant<O, Cpu> for Mutant<O::Problem, K>
where
    O: Op,
    K: Fn(&O::Problem) -> Box<dyn Kernel<Cpu>> + Send + Sync + 'static,
{
    fn id(&self) -> &str {
        self.id
    }
    fn source(&self) -> SourceHash {
        SourceHash::of(&[self.id])
    }
    fn fit(&self, p: &O::Problem, _: &Cpu) -> Fit {
        if (self.fits)(p) { Fit::HIGH } else { Fit::aside("might be right here") }
    }
    fn space(&self, _: &O::Problem, _: &Cpu) -> Space {
        Space::single()
    }
    fn build(&self, p: &O::Problem, _: &Config, _: &Cpu) -> Result<Box<dyn Kernel<Cpu>>, Rejection> {
        Ok((self.built)(p))
    }
}

fn wrong_products() -> impl Iterator<Item = &'static Wrong> {
    [sums::SUMS, places::PLACES, rounding::ROUNDING, conduct::CONDUCT].into_iter().flatten()
}

/// Two right ones, the reference and the library, and every wrong product. The others' spaces are large, and not on
/// trial here.
fn products() -> Catalog<Gemm, Cpu> {
    let all = gemm::cpu::catalog();
    let right = Catalog::new(all.reference().clone()).with(all.find("library").unwrap().clone());
    wrong_products().fold(right, |all, &(id, fits, act)| {
        all.with(Arc::new(Mutant { id, fits, built: move |p: &GemmProblem| call::built(p, act) }))
    })
}

/// The right ones and every wrong activation.
fn activated() -> Catalog<Gated, Cpu> {
    activations::ACTIVATIONS.iter().fold(gated::cpu::catalog(), |all, &(id, fits, of)| {
        all.with(Arc::new(Mutant { id, fits, built: move |p: &GatedProblem| activations::built(p, of) }))
    })
}

/// A CPU with ceilings so high that nothing is rejected for its time: here answers are on trial.
fn cpu() -> Arc<Cpu> {
    let cpu = Cpu::new();
    let flops = DType::ALL.map(|d| (d, 1e18)).into();
    cpu.set_ceilings(Ceilings {
        flops,
        bandwidth: vec![Bandwidth { capacity: u64::MAX, rate: 1e18 }],
        ..Ceilings::default()
    });
    Arc::new(cpu)
}

/// Tunes problems with mutants in the race: all of them are rejected wherever they fit, and each fits somewhere.
fn all_are_rejected<O: Op>(catalog: impl Fn() -> Catalog<O, Cpu>, mutants: &BTreeSet<&str>, problems: &[&str]) {
    let cpu = cpu();
    let mut rejected: BTreeSet<&str> = BTreeSet::new();
    let mut passed = Vec::new();
    for (seed, text) in problems.iter().enumerate() {
        let problem = O::parse(text).unwrap();
        let store = Store::memory();
        let budget = Budget { seconds: 60.0, good_enough: 2.0, ..Budget::default() };
        let settings = Settings { budget, seed: seed as u64, search: "exhaustive".into(), ..Settings::default() };
        let tuner = Tuner::new(cpu.clone(), catalog(), store, settings);
        tuner.tune(&problem, &Silent).unwrap();
        let record = tuner.record(&problem).unwrap();
        let edition = &record.editions[0];
        let named = [Some(&edition.verdict.winner), edition.verdict.runner_up.as_ref()].into_iter().flatten();
        for candidate in named.chain(&edition.verdict.ties) {
            assert!(!mutants.contains(candidate.variant.as_str()), "{text}: {candidate}");
        }
        for trial in &edition.trials {
            let Some(mutant) = mutants.get(trial.candidate.variant.as_str()) else { continue };
            match &trial.outcome {
                Outcome::Rejected(
                    Rejection::WrongAnswer { .. } | Rejection::Crashed { .. } | Rejection::LaunchFailed { .. },
                ) => {
                    rejected.insert(mutant);
                }
                other => passed.push(format!("{text}: {mutant}: {other:?}")),
            }
        }
    }
    assert!(passed.is_empty(), "{} passed:\n{}", passed.len(), passed.join("\n"));
    let untried: Vec<_> = mutants.difference(&rejected).collect();
    assert!(untried.is_empty(), "never tried: {untried:?}");
}

const PRODUCTS: [&str; 7] = [
    "gemm:m=9,n=17,k=9,dtype=f32",
    "gemm:m=67,n=67,k=67,dtype=f32",
    "gemm:m=33,n=41,k=70,dtype=f32,lda=77,ldb=48,ldc=43,align=4",
    "gemm:m=19,n=21,k=515,dtype=f16",
    "gemm:m=19,n=21,k=515,dtype=bf16",
    "gemm:m=65,n=34,k=129,dtype=f32,a=col,b=col",
    "gemm:m=25,n=1025,k=9,dtype=f32",
];

#[test]
fn every_mutant_is_rejected_wherever_it_fits_and_none_wins_or_is_kept_as_measured() {
    let mutants: BTreeSet<&str> = wrong_products().map(|m| m.0).collect();
    assert!(mutants.len() >= 40, "{}", mutants.len());
    all_are_rejected(products, &mutants, &PRODUCTS);
}

#[test]
fn activations_that_are_wrong_far_from_zero_alone_are_rejected() {
    let mutants: BTreeSet<&str> = activations::ACTIVATIONS.iter().map(|m| m.0).collect();
    let acts = ["gelu_tanh", "silu", "tanh", "sigmoid"];
    let problems = acts.map(|act| ["f32", "bf16"].map(|d| format!("gated:rows=64,n=96,dtype={d},act={act}")));
    all_are_rejected(activated, &mutants, &problems.as_flattened().iter().map(String::as_str).collect::<Vec<_>>());
}

#[test]
fn a_kernel_that_writes_into_its_inputs_is_found_out() {
    let cpu = cpu();
    let problem = Gemm::parse("gemm:m=16,n=16,k=16,dtype=f32").unwrap();
    struct Scribbler(GemmProblem);
    impl Kernel<Cpu> for Scribbler {
        fn launch(&self, args: &mut [Arg<'_, Cpu>], _: &()) -> Result<(), Rejection> {
            let memory = Mutex::default();
            let mut call = Call::new(&self.0, args, 1, &memory)?;
            call.right();
            // SAFETY: none, on purpose: the input is the case's own heap memory and nobody reads it meanwhile.
            unsafe { (call.address as *mut f32).write_volatile(0.75) };
            Ok(())
        }
    }
    let mut case = Case::new(&TypedProblem::new(&problem, &gemm::cpu::catalog()), &*cpu, 1).unwrap();
    assert!(case.verify(&Scribbler(problem), &*cpu).is_ok());
    let error = case.inputs_untouched(&*cpu).unwrap_err();
    assert!(error.to_string().contains("input 'a'"), "{error}");
}
