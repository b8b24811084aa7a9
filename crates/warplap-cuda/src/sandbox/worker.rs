//! The worker's side: orders come in on standard input, reports go out; it ends with its caller.

use std::io::stdin;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;

use warplap_core::catalog::Catalog;
use warplap_core::op::Op;
use warplap_core::rejection::Rejection;
use warplap_core::sandbox::{Passed, Prove, ProvingGround, Refusal, SandboxRequest, Stage};

use super::crew::this_program_serves;
use super::pool::{COMPILE, version};
use super::process::ASKED;
use super::protocol::{self, CompileOrder, Order, Report, Setup};
use crate::device::Cuda;
use crate::error::{Class, CudaError};
use crate::nvrtc::Compiler;

/// One operation a worker can prove candidates of.
pub struct Ground {
    op: &'static str,
    open: Box<dyn Fn(Arc<Cuda>) -> Box<dyn Prove>>,
}

impl Ground {
    /// The proving ground of an operation over a catalog, which must hold the caller's variants with the caller's code.
    pub fn of<O: Op>(catalog: impl Fn() -> Catalog<O, Cuda> + 'static) -> Self {
        let open = move |device| -> Box<dyn Prove> { Box::new(ProvingGround::new(device, catalog())) };
        Ground { op: O::NAME, open: Box::new(open) }
    }

    /// The proving ground of an operation whose catalog is known only when a candidate comes: what `open` gives finds it.
    pub fn by<O: Op>(open: impl Fn(Arc<Cuda>) -> Box<dyn Prove> + 'static) -> Self {
        Ground { op: O::NAME, open: Box::new(open) }
    }
}

/// Serves as a worker and never returns, if this process was started as one; else returns at once and lets this program
/// be started as a worker later. To be called at the top of `main`, before anything is printed or started.
pub fn serve_if_asked(grounds: &[Ground]) {
    this_program_serves();
    let Some(caller) = std::env::var(ASKED).ok().and_then(|id| id.parse::<i32>().ok()) else { return };
    // The environment of a worker may be inherited by a program that it was not meant for.
    if std::os::unix::process::parent_id() != caller.unsigned_abs() {
        return;
    }
    let _ = serve(grounds, caller);
    std::process::exit(0);
}

fn serve(grounds: &[Ground], caller: i32) -> std::io::Result<()> {
    die_with(caller);
    let mut socket = UnixStream::from(stdin().as_fd().try_clone_to_owned()?);
    let orders = listen(socket.try_clone()?);
    let Ok(Order::Setup(setup)) = orders.recv() else { return Ok(()) };
    let mut worker = match Worker::new(grounds, &setup) {
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
                let told = |stage: Stage| protocol::write(&mut &socket, &Report::Stage(stage), &[]);
                let (outcome, fatal) = worker.prove(&request, &mut |stage| drop(told(stage)));
                protocol::write(&mut socket, &Report::Done { outcome, fatal }, &[])?;
            }
        }
    }
    Ok(())
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

struct Worker<'g> {
    grounds: &'g [Ground],
    device: Option<Arc<Cuda>>,
    compiler: Option<Compiler>,
    open: Option<(&'static str, Box<dyn Prove>)>,
}

impl<'g> Worker<'g> {
    fn new(grounds: &'g [Ground], setup: &Setup) -> Result<Self, String> {
        if setup.version != version() {
            return Err(format!("the worker is warplap {}, its caller {}", version(), setup.version));
        }
        let open = |ordinal: i32| {
            let device = Cuda::open(ordinal).map_err(|e| format!("the worker has no device: {e}"))?.without_sandbox();
            Ok(Arc::new(match &setup.artifacts {
                Some(directory) => device.with_artifacts(directory),
                None => device,
            }))
        };
        let device = setup.ordinal.map(open).transpose().map_err(|e: String| e)?;
        // A compiler that is not there is found out once and not for every kernel.
        let compiler = if device.is_none() { Some(Compiler::find().map_err(|e| e.to_string())?) } else { None };
        Ok(Worker { grounds, device, compiler, open: None })
    }

    fn compile(&self, order: &CompileOrder) -> Result<(Vec<u8>, String), String> {
        let compiler = self.compiler.as_ref().ok_or("this worker does not compile")?;
        let headers: Vec<(&str, &str)> = order.headers.iter().map(|(n, t)| (n.as_str(), t.as_str())).collect();
        compiler.compile(&order.name, &order.text, &headers, &order.options, Instant::now() + COMPILE).map_err(|e| {
            match e {
                CudaError::Compile(why) => why,
                other => other.to_string(),
            }
        })
    }

    /// What became of a candidate, and why this process cannot go on, if so.
    fn prove(
        &mut self,
        request: &SandboxRequest,
        stage: &mut dyn FnMut(Stage),
    ) -> (Result<Passed, Refusal>, Option<String>) {
        let Some(device) = self.device.clone() else {
            return (Err(Refusal::Unknown("this worker only compiles".into())), None);
        };
        let outcome = self.ground(&device, &request.problem).and_then(|ground| ground.prove(request, stage));
        let broken = match &outcome {
            Ok(_) => None,
            // Any error may have left the context unusable: ask it.
            Err(_) => device.canary().err(),
        };
        match (outcome, broken) {
            (Err(Refusal::Rejected(rejection)), Some(error)) if error.class() == Class::Fatal => {
                let reason = match rejection {
                    Rejection::Crashed { reason } | Rejection::LaunchFailed { reason } => reason,
                    other => format!("{other}; {error}"),
                };
                (Err(Refusal::Rejected(Rejection::Crashed { reason })), Some(error.to_string()))
            }
            (outcome, broken) => (outcome, broken.map(|e| e.to_string())),
        }
    }

    fn ground(&mut self, device: &Arc<Cuda>, problem: &str) -> Result<&mut Box<dyn Prove>, Refusal> {
        let name = problem.split(':').next().unwrap_or_default();
        let known = self.grounds.iter().find(|g| g.op == name);
        let ground =
            known.ok_or_else(|| Refusal::Unknown(format!("the worker does not know the operation '{name}'")))?;
        let open = self.open.take().filter(|(op, _)| *op == ground.op);
        Ok(&mut self.open.insert(open.unwrap_or_else(|| (ground.op, (ground.open)(device.clone())))).1)
    }
}
