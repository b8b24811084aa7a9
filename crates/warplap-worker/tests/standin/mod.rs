//! A stand-in device, compiler and operation: candidates do what their names say, and this very program is the worker.

use std::env;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use warplap_core::candidate::{Candidate, SourceHash};
use warplap_core::measure::Policy;
use warplap_core::rejection::Rejection;
use warplap_core::sandbox::{Passed, ProofStage, Refusal, SandboxRequest};
use warplap_core::space::Config;
use warplap_core::worker_entry::Prove;
use warplap_worker::{Class, Compile, CompileOrder, Fault, Ground, Hosted, Sandbox, Service, Setup, WorkerSetup};

/// Says to a worker that its device cannot be opened.
pub const NO_DEVICE: &str = "STANDIN_HAS_NO_DEVICE";

/// A device that is well until somebody breaks it.
#[derive(Default)]
pub struct Standin {
    broken: AtomicBool,
    tired: AtomicBool,
}

impl Hosted for Standin {
    type Compiler = Echo;

    fn kind() -> &'static str {
        "standin"
    }

    fn host(_: i32, _: Option<&Path>) -> Result<Self, String> {
        match env::var(NO_DEVICE) {
            Ok(why) => Err(why),
            Err(_) => Ok(Standin::default()),
        }
    }

    fn find_compiler() -> Result<Echo, String> {
        Ok(Echo)
    }

    fn health(&self) -> Result<(), Fault> {
        let fault = |class, reason: &str| Err(Fault { class, reason: reason.into() });
        match (self.broken.load(Ordering::SeqCst), self.tired.load(Ordering::SeqCst)) {
            (true, _) => fault(Class::Fatal, "the device is gone"),
            (_, true) => fault(Class::Clean, "the device refuses"),
            _ => Ok(()),
        }
    }
}

/// A compiler that gives back what it was given, unless it is told to do worse.
pub struct Echo;

impl Compile for Echo {
    fn compile(&self, order: &CompileOrder, _: Instant) -> Result<(Vec<u8>, String), String> {
        match &order.text[..] {
            "dies" => std::process::abort(),
            "hangs" => sleep(Duration::from_secs(60)),
            "slow" => sleep(Duration::from_millis(500)),
            "errs" => return Err("line 1: no such word".into()),
            _ => {}
        }
        Ok((order.text.clone().into_bytes(), format!("{} in process {}", order.name, std::process::id())))
    }
}

struct Acting(Arc<Standin>);

impl Prove for Acting {
    fn prove(&mut self, request: &SandboxRequest, stage: &mut dyn FnMut(ProofStage)) -> Result<Passed, Refusal> {
        let act = &request.candidate.variant[..];
        let refused = || Err(Rejection::LaunchFailed { reason: "refused".into() }.into());
        stage(ProofStage::Draw);
        if act == "dies_drawing" {
            std::process::abort();
        }
        stage(ProofStage::Build);
        match act {
            "aborts" => std::process::abort(),
            // SAFETY: none: nothing is mapped there, and that is the point. Only a worker ever comes here.
            "segfaults" => unsafe { std::ptr::without_provenance_mut::<u8>(64).write_volatile(1) },
            "exits" => std::process::exit(0),
            "panics" => panic!("planted"),
            "begins_for_ever" => loop {
                stage(ProofStage::Run);
                std::thread::sleep(Duration::from_millis(1));
            },
            "builds_slowly" => sleep(Duration::from_millis(700)),
            "is_unknown" => return Err(Refusal::Unknown("nobody is called so".into())),
            _ => {}
        }
        stage(ProofStage::Run);
        match act {
            "hangs" => sleep(Duration::from_secs(600)),
            // A device may take a while to tell of a fault.
            "faults_late" => {
                sleep(Duration::from_millis(1200));
                self.0.broken.store(true, Ordering::SeqCst);
                return Err(Rejection::Crashed { reason: "told late".into() }.into());
            }
            "is_refused" => return refused(),
            "breaks" => {
                self.0.broken.store(true, Ordering::SeqCst);
                return refused();
            }
            "tires" => {
                self.0.tired.store(true, Ordering::SeqCst);
                return refused();
            }
            _ => {}
        }
        stage(ProofStage::Judge);
        match act {
            "is_wrong" => Err(Rejection::WrongAnswer { error: 9.0, allowed: 1.0, reason: "off".into() }.into()),
            _ => Ok(Passed { error: 0.5, seconds: 1e-6 }),
        }
    }
}

/// Serves with the stand-in device, if this process was started to.
pub fn serve() {
    let grounds = [Ground::named("act", |device| Box::new(Acting(device)))];
    warplap_worker::serve_if_asked(&[Service::of::<Standin>(&grounds)]);
}

/// Arguments with which this program, started again, runs one test: the worker, or a scenario that must have a process
/// of its own.
fn only(test: &str) -> [String; 4] {
    ["--exact", test, "--nocapture", "--include-ignored"].map(String::from)
}

/// This very program as the worker.
pub fn worker_setup() -> WorkerSetup {
    let mut workers = WorkerSetup::usual();
    workers.choose(env::current_exe().unwrap(), only("worker").map(Into::into).to_vec());
    workers
}

/// A test of this program in a process of its own.
pub fn scenario(test: &str) -> Command {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(only(test));
    command
}

/// A candidate that does what its name says.
pub fn request(act: &str) -> SandboxRequest {
    let candidate = Candidate { variant: act.into(), config: Config::new(), source: SourceHash::of(&[act]) };
    let (problem, policy) = ("act:n=1".to_string(), Policy::default());
    SandboxRequest { problem, candidate, seed: 1, policy, patience: 0.5, trusted: false }
}

/// Lets a candidate prove itself in a worker of this crew, if one is to be had.
pub fn prove(sandbox: &Sandbox, workers: &WorkerSetup, request: &SandboxRequest) -> Option<Result<Passed, Rejection>> {
    sandbox.prove(workers, || Setup::prover(Standin::kind(), 0, None), request)
}

/// As [`prove`], where there is a worker.
pub fn ask(sandbox: &Sandbox, act: &str) -> Result<Passed, Rejection> {
    prove(sandbox, &worker_setup(), &request(act)).expect("a worker")
}
