//! The sandbox on the stand-in library: whatever a candidate does in its worker, the caller's context lives, the worker
//! is replaced, and the reason is kept.
#![allow(unreachable_pub, dead_code, reason = "the planted operation is shared with an example")]

mod planted;
mod standin;

use std::sync::Arc;
use std::time::Duration;

use planted::{KINDS, Planted, RECITING, Sum, SumProblem, catalog, grounds, kind};
use standin::{device, scenario, worker_with};
use warplap_core::arg::Arg;
use warplap_core::array::Array;
use warplap_core::candidate::{Candidate, Outcome};
use warplap_core::device::Device;
use warplap_core::dtype::DType;
use warplap_core::engine::Tuner;
use warplap_core::measure::{Clock, Policy};
use warplap_core::progress::Silent;
use warplap_core::quarantine;
use warplap_core::rejection::Rejection;
use warplap_core::sandbox::{Passed, SandboxRequest};
use warplap_core::settings::{Budget, Settings};
use warplap_core::space::Config;
use warplap_core::store::{Store, open_or_memory};
use warplap_core::variant::Variant;
use warplap_cuda::{Cuda, ViewMut, serve_if_asked};

/// Not a test: the worker of all the others.
#[test]
fn worker() {
    serve_if_asked(&grounds());
}

fn request(kind: &Planted) -> SandboxRequest {
    let config = Config::new().with("I", 0);
    let candidate = Candidate { variant: kind.id.into(), config, source: Variant::source(kind) };
    let (problem, policy) = ("sum:n=5000".to_string(), Policy::default());
    SandboxRequest { problem, candidate, seed: 1, policy, patience: 0.5, trusted: kind.id == "reference" }
}

fn ask(cuda: &Cuda, id: &str) -> Result<Passed, Rejection> {
    cuda.sandbox(&request(&kind(id))).expect("a worker")
}

#[test]
fn every_planted_fault_is_contained_and_named() {
    let cuda = device();
    for kind in KINDS {
        let outcome = ask(&cuda, kind.id);
        let word = outcome.as_ref().map_or_else(Rejection::word, |_| "right");
        assert_eq!(word, kind.becomes, "{}: {outcome:?}", kind.id);
        assert!(cuda.context_health().is_ok(), "{} reached the caller's context", kind.id);
    }
    let passed = ask(&cuda, "good").unwrap();
    assert!(passed.error <= 1.0 && passed.seconds > 0.0);
}

type Call<A> = unsafe extern "C" fn(usize, A) -> i32;

#[test]
fn a_problem_first_met_during_a_capture_is_answered_by_the_reference_and_the_capture_lives() {
    let (cuda, store) = (Arc::new(device()), Store::memory());
    // Somebody else's stream, captured as others do it: every thread's calls count.
    // SAFETY: the stand-in library, which is loaded already; the signatures are cuda.h's.
    let library = unsafe { libloading::Library::new(standin::library()) }.unwrap();
    // SAFETY: as above.
    let begin: Call<i32> = unsafe { *library.get(b"cuStreamBeginCapture_v2\0").unwrap() };
    // SAFETY: as above.
    let end: Call<*mut usize> = unsafe { *library.get(b"cuStreamEndCapture\0").unwrap() };
    // SAFETY: as above.
    let replay: Call<usize> = unsafe { *library.get(b"cuGraphLaunch\0").unwrap() };
    let (mine, settings) = (0x0051_7eaa, Settings::default());
    // SAFETY: the stand-in takes any number for a stream.
    let queue = unsafe { cuda.foreign_stream(mine) };
    let tuner = Tuner::new(cuda.clone(), catalog(&[kind("reference"), kind("good")]), store.clone(), settings);
    let p = SumProblem { n: 300 };
    let ones = Array::filled(DType::F32, 300, 1.0);
    let (a, b, c) = (cuda.upload(&ones).unwrap(), cuda.upload(&ones).unwrap(), cuda.upload(&ones).unwrap());
    // SAFETY: begins a capture of a stream nobody else uses.
    assert_eq!(unsafe { begin(mine, 0) }, 0);
    // SAFETY: the buffer outlives the launches, and nobody else looks at it.
    let to = unsafe { ViewMut::from_raw(c.address(), DType::F32, 300) };
    let (a, b) = (Arg::Read(cuda.view(&a, 0..300)), Arg::Read(cuda.view(&b, 0..300)));
    tuner.launch(&p, &mut [a, b, Arg::Write(to)], &queue).unwrap();
    let (mut graph, chosen) = (0, tuner.choose_on(&p, &queue).unwrap());
    // SAFETY: the pointer is to a local.
    assert_eq!(unsafe { end(mine, &mut graph) }, 0, "the capture was spoiled");
    assert_eq!(chosen.candidate.variant, "reference", "nobody else has passed");
    assert_eq!(store.misses().len(), 1);
    assert_eq!(cuda.download(&c).unwrap(), ones, "a captured launch does not run");
    // SAFETY: a graph that was just made.
    assert_eq!(unsafe { replay(graph, mine) }, 0);
    assert_eq!(cuda.download(&c).unwrap(), Array::filled(DType::F32, 300, 2.0));
    assert!(!tuner.tune(&p, &Silent).unwrap().from_store, "it is raced as soon as it may be");
    assert!(store.misses().is_empty());
}

#[test]
fn a_fatal_code_replaces_the_worker_and_a_clean_one_does_not() {
    for (code, fatal) in [(1, false), (701, false), (720, false), (700, true), (716, true), (719, true), (999, true)] {
        let cuda = worker_with(&format!("cuLaunchKernelEx:2:{code}"));
        let outcome = ask(&cuda, "good");
        let crashed = matches!(&outcome, Err(Rejection::Crashed { reason }) if reason.contains(&code.to_string()));
        assert!(outcome.is_err() && crashed == fatal, "{code}: {outcome:?}");
        assert_eq!(cuda.worker_id().is_none(), fatal, "{code}");
    }
}

#[test]
fn a_canary_that_does_not_sing_ends_the_worker_after_a_clean_error() {
    // A launch is refused cleanly, and when the canary is sent the context turns out to be gone.
    let cuda = worker_with("cuLaunchKernelEx:1:701,cuCtxSynchronize:1:700");
    assert!(matches!(ask(&cuda, "good"), Err(Rejection::Crashed { .. })));
    assert_eq!(cuda.worker_id(), None);
}

#[test]
fn a_worker_that_dies_before_it_runs_anything_is_no_candidates_fault() {
    let cuda = worker_with("cuMemAllocFromPoolAsync:1:die");
    assert!(matches!(ask(&cuda, "good"), Err(Rejection::LaunchFailed { reason }) if reason.contains("lost twice")));
}

fn settings() -> Settings {
    let budget = Budget { seconds: 20.0, good_enough: 0.0, ..Budget::default() };
    Settings { budget, search: "exhaustive".into(), eps: 0.5, ..Settings::default() }
}

fn few(ids: &[&str]) -> Vec<Planted> {
    ids.iter().map(|id| kind(id)).collect()
}

fn tuner(cuda: &Arc<Cuda>, kinds: &[Planted], store: &Store) -> Tuner<Sum, Cuda> {
    Tuner::new(cuda.clone(), catalog(kinds), store.clone(), settings())
}

#[test]
fn who_failed_is_not_tried_again_by_the_next_process_and_who_passed_needs_no_worker() {
    let folder = tempfile::tempdir().unwrap();
    let open = || open_or_memory(Some(&folder.path().join("store"))).store;
    let kinds = few(&["reference", "good", "illegal_address", "wrong", "endless", "out_of_memory", "bad_source"]);
    let (cuda, store) = (Arc::new(device()), open());
    let first = tuner(&cuda, &kinds, &store).tune(&SumProblem { n: 5000 }, &Silent).unwrap().edition;
    assert!(cuda.context_health().is_ok());
    let fate = |id: &str| match &first.trials.iter().find(|t| t.candidate.variant == id).unwrap().outcome {
        Outcome::Rejected(r) if r.word() != "outpaced" => r.word(),
        _ => "right",
    };
    kinds.iter().for_each(|k| assert_eq!(fate(k.id), k.becomes, "{}", k.id));

    // Another process, another store object, the record gone: only what is in quarantine is left out.
    let (cuda, store) = (Arc::new(device()), open());
    let quarantined = quarantine::all(&store);
    let names: Vec<&str> = quarantined.iter().map(|(_, q)| q.candidate.variant.as_str()).collect();
    assert_eq!(names, ["endless", "illegal_address", "wrong"]);
    assert!(quarantined.iter().all(|(slug, q)| *slug == cuda.fingerprint().slug() && q.problem == "sum:n=5000"));
    store.entries().iter().for_each(|e| assert!(store.remove(e).unwrap()));
    let good = few(&["reference", "good", "illegal_address", "wrong", "endless"]);
    let second = tuner(&cuda, &good, &store).tune(&SumProblem { n: 5000 }, &Silent).unwrap().edition;
    assert_eq!(cuda.worker_id(), None, "somebody who had passed or failed was asked again");
    let skipped: Vec<&str> =
        second.skipped.iter().filter(|s| s.reason.contains("quarantine")).map(|s| s.variant.as_str()).collect();
    assert_eq!(skipped.len(), 3, "{:?}", second.skipped);
    assert_eq!(second.trials.len(), 2);

    // Let go, it is tried again.
    for (slug, one) in &quarantined {
        assert!(quarantine::clear(&store, slug, one).unwrap());
    }
    let again = Settings { again: true, ..settings() };
    let few = few(&["reference", "good", "wrong"]);
    let third = Tuner::<Sum, Cuda>::new(cuda.clone(), catalog(&few), store.clone(), again);
    third.tune(&SumProblem { n: 5000 }, &Silent).unwrap();
    // On a noisy machine the edition that is kept may be the second one, so the quarantine is what is asked.
    let names: Vec<String> = quarantine::all(&store).into_iter().map(|(_, q)| q.candidate.variant).collect();
    assert_eq!(names, ["wrong"]);
}

#[test]
fn a_kernel_that_recites_its_last_answer_does_not_win() {
    let cuda = Arc::new(device());
    for clock in [Clock::Use, Clock::BackToBack] {
        let settings = Settings { policy: Policy { clock, ..Cuda::usual_policy() }, ..settings() };
        let tuner = Tuner::new(cuda.clone(), catalog(RECITING), Store::memory(), settings);
        let tuned = tuner.tune(&SumProblem { n: 3000 }, &Silent).unwrap();
        let said: Vec<String> = tuned.edition.trials.iter().map(|t| format!("{:?}", t.outcome)).collect();
        assert_eq!(tuned.edition.verdict.winner.variant, "plodding", "{said:#?}");
        assert!(said.iter().any(|s| s.contains("WrongAnswer")), "{said:#?}");
    }
}

#[test]
fn candidates_are_compiled_ahead_in_other_processes_and_raced_right() {
    let (cuda, store) = (Arc::new(device()), Store::memory());
    assert!(cuda.builders() >= 1);
    let kinds = [kind("reference"), Planted { repeat: 12, ..kind("good") }];
    let edition = tuner(&cuda, &kinds, &store).tune(&SumProblem { n: 999 }, &Silent).unwrap().edition;
    assert_eq!(edition.trials.iter().filter(|t| t.is_right()).count(), 13);
}

#[test]
fn a_compiler_that_dies_or_never_ends_costs_its_own_kernel_alone() {
    let cuda = device().with_compile_deadline(Duration::from_secs(1));
    let source = |text| warplap_cuda::Source { entry: "sum", text, headers: &[], defines: Vec::new() };
    let dies = cuda.compile(&source("//@ add\n//! compiler dies\n"));
    assert!(matches!(&dies, Err(Rejection::DoesNotBuild { reason }) if reason.contains("crashed")), "{dies:?}");
    let hangs = cuda.compile(&source("//@ add\n//! compiler hangs\n"));
    assert!(
        matches!(&hangs, Err(Rejection::DoesNotBuild { reason }) if reason.contains("longer than 1.0 s")),
        "{hangs:?}"
    );
    assert_eq!(cuda.compile(&source("//@ add\nvoid sum()")), Ok(()));
}

#[test]
fn where_no_worker_can_be_had_only_the_trusted_run_here() {
    for program in ["/nonexistent/program", "/bin/true"] {
        let cuda = standin::opened().with_worker(program, [""; 0]);
        assert!(cuda.sandbox(&request(&kind("reference"))).is_none(), "{program}");
        let refused = cuda.sandbox(&request(&kind("good"))).unwrap();
        assert!(matches!(&refused, Err(Rejection::DoesNotBuild { reason }) if reason.contains(program)), "{refused:?}");
    }
    assert!(standin::opened().without_sandbox().sandbox(&request(&kind("good"))).is_none());
}

#[test]
fn a_worker_with_other_code_is_not_believed() {
    let cuda = device();
    let mut other = request(&kind("good"));
    other.candidate.source.0.push('x');
    assert!(
        matches!(cuda.sandbox(&other), Some(Err(Rejection::DoesNotBuild { reason })) if reason.contains("caller's code"))
    );
    other.problem = "nonesuch:n=1".into();
    assert!(
        matches!(cuda.sandbox(&other), Some(Err(Rejection::DoesNotBuild { reason })) if reason.contains("nonesuch"))
    );
}

#[test]
fn without_a_driver_there_is_one_line_and_no_worker() {
    let output = scenario("opens_no_device", &[("WARPLAP_CUDA_DRIVER", "/nonexistent/libcuda.so")]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
#[ignore = "run by without_a_driver_there_is_one_line_and_no_worker"]
fn opens_no_device() {
    let said = Cuda::open(0).expect_err("no device").to_string();
    assert!(said.starts_with("no CUDA device") && !said.contains('\n'), "{said}");
}
