//! The crew: which program serves as a worker, and how one is set up. What comes out is a process that has said it is
//! ready.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use warplap_core::environment;

use crate::process::{ASKED, Gone, Process, Program};
use crate::protocol::{Order, Report, Setup};

/// How long a worker may take to be ready: it opens the device.
const START: Duration = Duration::from_secs(30);

/// Whether this program has said that it serves when asked.
static SERVES: AtomicBool = AtomicBool::new(false);

pub(crate) fn this_program_serves() {
    SERVES.store(true, Ordering::Relaxed);
}

/// Who works for a device.
#[derive(Clone, Debug, Default)]
pub struct WorkerSetup {
    chosen: Option<(PathBuf, Vec<OsString>)>,
    environment: Vec<(OsString, OsString)>,
    off: bool,
}

impl WorkerSetup {
    /// As `WARPLAP_SANDBOX` says: `off` lets every candidate run in the caller's process.
    pub fn usual() -> Self {
        WorkerSetup { off: environment::var("WARPLAP_SANDBOX").is_some_and(|v| v == "off"), ..WorkerSetup::default() }
    }

    /// Lets a program serve, instead of the one found by itself.
    pub fn choose(&mut self, path: PathBuf, arguments: Vec<OsString>) {
        self.chosen = Some((path, arguments));
    }

    /// Sets a variable in the environment of every worker to come.
    pub fn set(&mut self, name: impl Into<OsString>, value: impl Into<OsString>) {
        self.environment.push((name.into(), value.into()));
    }

    /// Lets every candidate run in the caller's process.
    pub fn send_home(&mut self) {
        self.off = true;
    }

    /// Whether the user wants no workers at all.
    pub fn is_off(&self) -> bool {
        self.off
    }

    /// The program: the caller's choice, `WARPLAP_WORKER`, this very program where it serves, or a `warplap` beside it.
    /// Never a program of which nobody said that it serves: it would do again what this one does.
    fn program(&self) -> Result<Program, String> {
        if env::var_os(ASKED).is_some() {
            return Err("this process was itself started as a worker".into());
        }
        let called = |path, arguments| Program { path, arguments, environment: self.environment.clone() };
        let plain = |path: PathBuf| called(path, Vec::new());
        if let Some((path, arguments)) = &self.chosen {
            return Ok(called(path.clone(), arguments.clone()));
        }
        if let Some(path) = environment::var("WARPLAP_WORKER") {
            return Ok(plain(path.into()));
        }
        let this = env::current_exe().map_err(|e| format!("this program's own file is not known: {e}"))?;
        if SERVES.load(Ordering::Relaxed) {
            return Ok(plain(this));
        }
        let beside = this.with_file_name("warplap");
        if beside.is_file() && beside != this {
            return Ok(plain(beside));
        }
        Err("no program serves as one: call warplap::worker::serve_if_asked() at the top of main, or set WARPLAP_WORKER \
             to the program warplap"
            .into())
    }

    /// Starts a worker and waits until it is ready.
    pub(crate) fn hire(&self, setup: Setup) -> Result<Process, String> {
        if self.off {
            return Err("workers are switched off".into());
        }
        let program = self.program()?;
        let path = program.path.display().to_string();
        let mut process = Process::start(&program).map_err(|e| format!("{path}: {e}"))?;
        let answer = process
            .send(&Order::Setup(setup))
            .and_then(|()| process.receive::<Report>(Instant::now() + START))
            .map(|(report, _)| report);
        match answer {
            Ok(Report::Ready) => Ok(process),
            Ok(Report::Refused(why)) => Err(why),
            Ok(_) => Err(format!("{path} answers out of turn")),
            Err(Gone::Silent) => Err(format!("{path} does not answer: does its main call serve_if_asked()?")),
            Err(Gone::Ended(how)) => Err(format!("{path}: {how}")),
        }
    }
}
