//! The sandbox: candidates run in a worker process with a device of its own until they have passed. Here is the
//! caller's side: a request comes in, "passed" or a Rejection goes out, and whatever the candidate did, the worker is
//! replaced and the caller's own lives.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use warplap_core::rejection::Rejection;
use warplap_core::sandbox::{Passed, ProofStage, Refusal, SandboxRequest};

use crate::process::{Gone, Process};
use crate::protocol::{Order, Report, Setup};
use crate::worker_setup::WorkerSetup;

/// What a worker may take for what no candidate can help: inputs and right answers, and comparing.
const DRAW: Duration = Duration::from_secs(180);
const JUDGE: Duration = Duration::from_secs(60);
/// What building may take, with a compiler's own deadline inside of it.
const BUILD: Duration = Duration::from_secs(90);

/// Stages of one proof at the most: each has a deadline of its own, and whoever began new ones without end had none.
const STAGES: u32 = 64;

/// How long after its deadline a candidate that faulted is waited for, to be told what it did.
const FAULT: Duration = Duration::from_secs(2);

/// The one worker that proves candidates on a device.
#[derive(Default)]
pub struct Sandbox {
    worker: Mutex<Option<Process>>,
    warned: AtomicBool,
}

/// How a conversation about one candidate ended.
enum Ended {
    Done(Result<Passed, Refusal>),
    /// The worker is gone and this was its candidate's doing.
    Guilty(Rejection),
    /// The worker is gone and no candidate can be blamed.
    Lost(String),
}

impl Sandbox {
    /// Lets a candidate prove itself. `None`: no worker can be had, and it may prove itself here.
    pub fn prove(
        &self,
        workers: &WorkerSetup,
        setup: impl Fn() -> Setup,
        request: &SandboxRequest,
    ) -> Option<Result<Passed, Rejection>> {
        if workers.is_off() {
            return None;
        }
        let mut place = locked(&self.worker);
        // A worker may be lost for reasons of its own (the host ran out of memory): once more with a fresh one.
        let mut lost = String::new();
        for _ in 0..2 {
            let worker = match &mut *place {
                Some(worker) => worker,
                empty => match workers.hire(setup()) {
                    Ok(worker) => empty.insert(worker),
                    Err(why) => return self.without(request, &why),
                },
            };
            match converse(worker, request) {
                Ended::Done(Ok(passed)) => return Some(Ok(passed)),
                Ended::Done(Err(Refusal::Rejected(rejection))) => return Some(Err(rejection)),
                // A library that only the caller's own program can reach (torch's, from Python).
                Ended::Done(Err(Refusal::Unknown(_))) if request.trusted => return None,
                Ended::Done(Err(Refusal::Unknown(why))) => return self.without(request, &why),
                Ended::Guilty(rejection) => {
                    *place = None;
                    return Some(Err(rejection));
                }
                Ended::Lost(why) => {
                    *place = None;
                    lost = why;
                }
            }
        }
        Some(Err(Rejection::LaunchFailed { reason: format!("the worker was lost twice: {lost}") }))
    }

    /// Starts the worker, unless there is one.
    pub fn call(&self, workers: &WorkerSetup, setup: Setup) {
        let mut place = locked(&self.worker);
        if place.is_none() && !workers.is_off() {
            *place = workers.hire(setup).ok();
        }
    }

    /// Nobody can prove it elsewhere. What is trusted may run here; anyone else is refused, because what it does to
    /// this process nobody knows.
    fn without(&self, request: &SandboxRequest, why: &str) -> Option<Result<Passed, Rejection>> {
        if !self.warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "no worker process can be had ({why}): only the reference and official libraries are raced. \
                 WARPLAP_SANDBOX=off lets every candidate run in this process, which a bad one can end"
            );
        }
        if request.trusted {
            return None;
        }
        Some(Err(Rejection::DoesNotBuild { reason: format!("not tried, no worker process can be had: {why}") }))
    }

    /// The process that proves candidates now.
    pub fn worker_id(&self) -> Option<u32> {
        locked(&self.worker).as_ref().map(Process::id)
    }
}

fn converse(worker: &mut Process, request: &SandboxRequest) -> Ended {
    let mut stage = ProofStage::Draw;
    let mut started = Instant::now();
    let mut stages = 0;
    if let Err(gone) = worker.send(&Order::Prove(request.clone())) {
        return Ended::Lost(format!("{gone:?}"));
    }
    loop {
        let limit = match stage {
            ProofStage::Draw => DRAW,
            ProofStage::Build => BUILD,
            ProofStage::Run => Duration::from_secs_f64(request.patience.clamp(0.1, 600.0)),
            ProofStage::Judge => JUDGE,
        };
        match worker.receive::<Report>(started + limit) {
            Ok((Report::Stage(next), _)) if stages < STAGES => {
                (stage, started, stages) = (next, Instant::now(), stages + 1);
            }
            Ok((Report::Stage(_), _)) => {
                worker.kill();
                return Ended::Guilty(Rejection::Crashed { reason: "the worker tells of stages without end".into() });
            }
            Ok((Report::Done { outcome, fatal: None }, _)) => return Ended::Done(outcome),
            Ok((Report::Done { outcome, fatal: Some(why) }, _)) => {
                worker.kill();
                return match outcome {
                    // It says what happened in more words than the device.
                    Err(Refusal::Rejected(rejection @ Rejection::Crashed { .. })) => Ended::Guilty(rejection),
                    _ => Ended::Guilty(Rejection::Crashed { reason: why }),
                };
            }
            Ok(_) => return Ended::Lost("it answers out of turn".into()),
            Err(Gone::Silent) => {
                let fault = if stage == ProofStage::Run { late_fault(worker) } else { None };
                worker.kill();
                return match stage {
                    ProofStage::Run => {
                        Ended::Guilty(fault.unwrap_or(Rejection::TimedOut { seconds: limit.as_secs_f64() }))
                    }
                    ProofStage::Build => {
                        let reason = format!("building it took longer than {} s", limit.as_secs());
                        Ended::Guilty(Rejection::DoesNotBuild { reason })
                    }
                    ProofStage::Draw | ProofStage::Judge => Ended::Lost(format!("silent while it should {stage:?}")),
                };
            }
            Err(Gone::Ended(how)) => {
                return match stage {
                    ProofStage::Build | ProofStage::Run => Ended::Guilty(Rejection::Crashed { reason: how }),
                    ProofStage::Draw | ProofStage::Judge => Ended::Lost(how),
                };
            }
        }
    }
}

/// What a worker that is over its time still says of a fault: a GPU may take a second to tell of one.
fn late_fault(worker: &mut Process) -> Option<Rejection> {
    let until = Instant::now() + FAULT;
    loop {
        match worker.receive::<Report>(until) {
            Ok((Report::Stage(_), _)) => {}
            Ok((Report::Done { outcome: Err(Refusal::Rejected(rejection @ Rejection::Crashed { .. })), .. }, _)) => {
                return Some(rejection);
            }
            _ => return None,
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
