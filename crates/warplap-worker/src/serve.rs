//! The worker's side: orders come in on standard input, reports go out; it ends with its caller.

use std::io::stdin;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;

use warplap_core::rejection::Rejection;
use warplap_core::sandbox::{Passed, ProofStage, Refusal, SandboxRequest};
use warplap_core::worker_entry::Prove;

use crate::device_hooks::{Class, Compile, Ground, Hosted};
use crate::pool::COMPILE;
use crate::process::ASKED;
use crate::protocol::{self, CompileOrder, Order, Report, Setup, version};
use crate::worker_setup::this_program_serves;

type Started<'g> = Result<Box<dyn Work + 'g>, String>;

/// What a worker does on one kind of device.
pub struct Service<'g> {
    kind: &'static str,
    start: Box<dyn Fn(&Setup) -> Started<'g> + 'g>,
}

impl<'g> Service<'g> {
    /// Proves candidates of these operations on a device, and compiles for it.
    pub fn of<D: Hosted>(grounds: &'g [Ground<D>]) -> Self {
        let start = move |setup: &Setup| -> Started<'g> {
            match setup.ordinal {
                Some(ordinal) => {
                    let device = D::host(ordinal, setup.artifacts.as_deref());
                    let device = device.map_err(|e| format!("the worker has no device: {e}"))?;
                    Ok(Box::new(Prover { grounds, device: Arc::new(device), open: None }))
                }
                // A compiler that is not there is found out once and not for every kernel.
                None => Ok(Box::new(D::find_compiler().map(Compiling)?)),
            }
        };
        Service { kind: D::kind(), start: Box::new(start) }
    }
}

/// Serves as a worker and never returns, if this process was started as one; else returns at once and lets this program
/// be started as a worker later. To be called at the top of `main`, before anything is printed or started.
pub fn serve_if_asked(services: &[Service<'_>]) {
    this_program_serves();
    let Some(caller) = warplap_core::environment::text(ASKED).and_then(|id| id.parse::<i32>().ok()) else { return };
    // The environment of a worker may be inherited by a program that it was not meant for.
    if std::os::unix::process::parent_id() != caller.unsigned_abs() {
        return;
    }
    let _ = serve(services, caller);
    std::process::exit(0);
}

fn serve(services: &[Service<'_>], caller: i32) -> std::io::Result<()> {
    die_with(caller);
    let mut socket = UnixStream::from(stdin().as_fd().try_clone_to_owned()?);
    let orders = listen(socket.try_clone()?);
    let Ok(Order::Setup(setup)) = orders.recv() else { return Ok(()) };
    let mut worker = match start(services, &setup) {
        Ok(worker) => worker,
        Err(why) => return protocol::write(&mut socket, &Report::Refused(why), &[]),
    };
    protocol::write(&mut socket, &Report::Ready, &[])?;
    for order in orders {
        match order {
            Order::Setup(_) => break,
            Order::Compile(order) => match worker.compile(&order) {
                Ok((image, log)) => protocol::write(&mut socket, &Report::Compiled(log), &image)?,
                Err(why) => protocol::write(&mut socket, &Report::DoesNotCompile(why), &[])?,
            },
            Order::Prove(request) => {
                let message = |stage: ProofStage| protocol::write(&mut &socket, &Report::Stage(stage), &[]);
                let (outcome, fatal) = worker.prove(&request, &mut |stage| drop(message(stage)));
                protocol::write(&mut socket, &Report::Done { outcome, fatal }, &[])?;
            }
        }
    }
    Ok(())
}

fn start<'g>(services: &[Service<'g>], setup: &Setup) -> Started<'g> {
    if setup.version != version() {
        return Err(format!("the worker is warplap {}, its caller {}", version(), setup.version));
    }
    let service = services.iter().find(|s| s.kind == setup.kind);
    (service.ok_or_else(|| format!("the worker knows no device of the kind '{}'", setup.kind))?.start)(setup)
}

/// Asks the kernel to end this process when its caller ends.
fn die_with(caller: i32) {
    #[cfg(target_os = "linux")]
    {
        let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
        // It may have ended before the kernel was asked.
        if rustix::process::getppid().is_some_and(|id| id.as_raw_nonzero().get() != caller) {
            end_now();
        }
    }
}

/// Ends this process whatever its other threads wait for: they may be inside of the driver.
fn end_now() -> ! {
    let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    std::process::abort()
}

/// Reads orders on a thread of its own, so that the caller's end is seen also while a candidate hangs.
fn listen(mut socket: UnixStream) -> Receiver<Order> {
    let (orders, taken) = channel();
    std::thread::spawn(move || {
        while let Ok((order, _)) = protocol::read::<Order>(&mut socket) {
            if orders.send(order).is_err() {
                return;
            }
        }
        end_now()
    });
    taken
}

/// What became of a candidate, and why this process cannot go on, if so.
type Proved = (Result<Passed, Refusal>, Option<String>);

/// What a worker that is set up can be told to do.
trait Work {
    fn compile(&self, _order: &CompileOrder) -> Result<(Vec<u8>, String), String> {
        Err("this worker does not compile".into())
    }

    fn prove(&mut self, _request: &SandboxRequest, _stage: &mut dyn FnMut(ProofStage)) -> Proved {
        (Err(Refusal::Unknown("this worker only compiles".into())), None)
    }
}

struct Compiling<C>(C);

impl<C: Compile> Work for Compiling<C> {
    fn compile(&self, order: &CompileOrder) -> Result<(Vec<u8>, String), String> {
        self.0.compile(order, Instant::now() + COMPILE)
    }
}

struct Prover<'g, D> {
    grounds: &'g [Ground<D>],
    device: Arc<D>,
    open: Option<(&'static str, Box<dyn Prove>)>,
}

impl<D: Hosted> Work for Prover<'_, D> {
    fn prove(&mut self, request: &SandboxRequest, stage: &mut dyn FnMut(ProofStage)) -> Proved {
        let outcome = self.ground(&request.problem).and_then(|ground| ground.prove(request, stage));
        let fault = match &outcome {
            Ok(_) => None,
            // Any error may have left the device unusable: ask it.
            Err(_) => self.device.health().err(),
        };
        match (outcome, fault) {
            (Err(Refusal::Rejected(rejection)), Some(fault)) if fault.class == Class::Fatal => {
                let reason = match rejection {
                    Rejection::Crashed { reason } | Rejection::LaunchFailed { reason } => reason,
                    other => format!("{other}; {}", fault.reason),
                };
                (Err(Refusal::Rejected(Rejection::Crashed { reason })), Some(fault.reason))
            }
            (outcome, fault) => (outcome, fault.map(|f| f.reason)),
        }
    }
}

impl<D> Prover<'_, D> {
    fn ground(&mut self, problem: &str) -> Result<&mut Box<dyn Prove>, Refusal> {
        let name = problem.split(':').next().unwrap_or_default();
        let known = self.grounds.iter().find(|g| g.op == name);
        let ground =
            known.ok_or_else(|| Refusal::Unknown(format!("the worker does not know the operation '{name}'")))?;
        let open = self.open.take().filter(|(op, _)| *op == ground.op);
        Ok(&mut self.open.insert(open.unwrap_or_else(|| (ground.op, (ground.open)(self.device.clone())))).1)
    }
}
