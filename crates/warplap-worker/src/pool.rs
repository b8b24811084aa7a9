//! The pool: compiler processes, one for every thread that compiles. A compiler library in one process may take its
//! stages one at a time; several processes do not wait for each other, and a compiler that crashes or never ends takes
//! nobody with it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::process::{Gone, Process};
use crate::protocol::{CompileOrder, Order, Report, Setup};
use crate::worker_setup::WorkerSetup;

/// What one kernel may take to compile; the slowest of ours takes two seconds.
pub const COMPILE: Duration = Duration::from_secs(60);

/// Compilers that wait for work.
pub struct Pool {
    idle: Mutex<Vec<Process>>,
    closed: AtomicBool,
    /// Which device's sources they compile.
    kind: &'static str,
    /// How long one source may take.
    pub deadline: Duration,
}

impl Pool {
    /// A pool without processes yet, for sources of a kind of device.
    pub fn new(kind: &'static str) -> Self {
        Pool { idle: Mutex::default(), closed: AtomicBool::new(false), kind, deadline: COMPILE }
    }

    /// Compiles in another process: the image and the log, or what the compiler said. `None` where there is no other
    /// process to be had.
    pub fn compile(&self, workers: &WorkerSetup, order: &CompileOrder) -> Option<Result<(Vec<u8>, String), String>> {
        if workers.is_off() || self.closed.load(Ordering::Relaxed) {
            return None;
        }
        let waiting = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut process = match waiting {
            Some(process) => process,
            None => match workers.hire(Setup::compiler(self.kind)) {
                Ok(process) => process,
                Err(why) => {
                    if !self.closed.swap(true, Ordering::Relaxed) {
                        tracing::info!("kernels are compiled in this process, one after the other: {why}");
                    }
                    return None;
                }
            },
        };
        let answer = process
            .send(&Order::Compile(order.clone()))
            .and_then(|()| process.receive::<Report>(Instant::now() + self.deadline));
        let failed = |why: String| Some(Err(why));
        match answer {
            Ok((report @ (Report::Compiled(_) | Report::DoesNotCompile(_)), image)) => {
                self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(process);
                match report {
                    Report::Compiled(log) => Some(Ok((image, log))),
                    Report::DoesNotCompile(why) => failed(why),
                    _ => None,
                }
            }
            Ok(_) => failed("the compiler answers out of turn".into()),
            // Dropping it ends it.
            Err(Gone::Silent) => failed(format!("it took longer than {:.1} s", self.deadline.as_secs_f64())),
            Err(Gone::Ended(how)) => failed(format!("the compiler crashed: {how}")),
        }
    }
}
