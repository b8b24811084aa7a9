//! A worker process as its caller sees it: started, spoken to with a deadline, ended for good.
//!
//! The conversation is over a socket on the worker's standard input; what the worker prints goes into a short memory
//! that explains its death, never to the user.

use std::ffi::OsString;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::protocol;

/// Tells a program that it was started to serve, and for which process.
pub(crate) const ASKED: &str = "WARPLAP_SERVE";

/// How long the last words of a worker that has ended are waited for.
const LAST_WORDS: Duration = Duration::from_millis(200);

/// Bytes of what a worker printed that are remembered.
const TAIL: usize = 16 << 10;

/// How long a message may take to be written: a worker that is at all alive reads at once.
const WRITE: Duration = Duration::from_secs(10);

/// The program that serves as a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// Its file.
    pub path: PathBuf,
    /// What it is called with.
    pub arguments: Vec<OsString>,
    /// Variables of its environment besides the caller's.
    pub environment: Vec<(OsString, OsString)>,
}

/// Why nothing was heard of a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Gone {
    /// It did not answer in time.
    Silent,
    /// It ended, and how.
    Ended(String),
}

/// A worker process. Dropping it ends it.
pub(crate) struct Process {
    child: Child,
    ended: Option<ExitStatus>,
    pub(crate) socket: UnixStream,
    printed: Arc<Mutex<Vec<u8>>>,
    /// Reads what it prints, until nobody is left who could.
    reader: thread::JoinHandle<()>,
}

impl Process {
    pub(crate) fn start(program: &Program) -> io::Result<Self> {
        let (socket, theirs) = UnixStream::pair()?;
        socket.set_write_timeout(Some(WRITE))?;
        let (output, their_output) = io::pipe()?;
        let mut command = Command::new(&program.path);
        command
            .args(&program.arguments)
            .envs(program.environment.iter().map(|(name, value)| (name, value)))
            .env(ASKED, std::process::id().to_string())
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::from(OwnedFd::from(their_output.try_clone()?)))
            .stderr(Stdio::from(OwnedFd::from(their_output)))
            // Ctrl-C is the caller's to answer.
            .process_group(0);
        let child = spawn(command)?;
        let printed = Arc::new(Mutex::default());
        let remembered = printed.clone();
        let reader = thread::Builder::new().name("warplap-output".into());
        let reader = reader.spawn(move || remember(output, &remembered))?;
        Ok(Process { child, ended: None, socket, printed, reader })
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn send(&mut self, message: &impl Serialize) -> Result<(), Gone> {
        protocol::write(&mut self.socket, message, &[]).map_err(|e| self.gone(&e))
    }

    /// The next message, if it comes before the deadline.
    pub(crate) fn receive<T: DeserializeOwned>(&mut self, deadline: Instant) -> Result<(T, Vec<u8>), Gone> {
        protocol::read(&mut self.until(deadline)).map_err(|e| self.gone(&e))
    }

    /// What it says before a deadline.
    pub(crate) fn until(&self, deadline: Instant) -> Timed<'_> {
        Timed { socket: &self.socket, deadline }
    }

    pub(crate) fn gone(&mut self, error: &io::Error) -> Gone {
        match error.kind() {
            io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => Gone::Silent,
            io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => {
                Gone::Ended(self.epitaph())
            }
            _ => Gone::Ended(format!("the worker could not be understood: {error}")),
        }
    }

    /// How it ended, and the last thing it printed.
    fn epitaph(&mut self) -> String {
        // It closed its socket, so it is ending; one that only pretends to is helped along.
        let until = Instant::now() + Duration::from_secs(2);
        let status = loop {
            match self.status() {
                None if Instant::now() < until => thread::sleep(Duration::from_millis(2)),
                status => break status,
            }
        };
        // What it printed last may still be on its way.
        let until = Instant::now() + LAST_WORDS;
        while status.is_some() && !self.reader.is_finished() && Instant::now() < until {
            thread::sleep(Duration::from_millis(1));
        }
        let how = match status.map(|s| (s.signal(), s.code())) {
            Some((Some(signal), _)) => format!("the worker died of signal {signal}{}", named(signal)),
            Some((_, Some(code))) => format!("the worker ended with exit code {code}"),
            _ => "the worker closed its pipe".to_string(),
        };
        match self.last_words() {
            Some(words) => format!("{how}: {words}"),
            None => how,
        }
    }

    /// The last thing it printed, in short.
    pub(crate) fn last_words(&self) -> Option<String> {
        let printed = locked(&self.printed);
        let words = last_words(&String::from_utf8_lossy(&printed))?;
        Some(words.chars().filter(|c| !c.is_control()).take(200).collect())
    }

    /// How it ended, if it has. Whoever is left of its group ends then: while nobody waited for it, the group's number
    /// is nobody else's.
    fn status(&mut self) -> Option<ExitStatus> {
        use rustix::process::{WaitId, WaitIdOptions, waitid};
        if self.ended.is_none() {
            let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
            let ended = self.pid().is_some_and(|id| !matches!(waitid(WaitId::Pid(id), look), Ok(None)));
            if ended {
                self.signal(rustix::process::Signal::KILL);
                self.ended = self.child.wait().ok();
            }
        }
        self.ended
    }

    fn pid(&self) -> Option<rustix::process::Pid> {
        i32::try_from(self.child.id()).ok().and_then(rustix::process::Pid::from_raw)
    }

    /// Sends a signal to its group, unless it has ended.
    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        if let Some(id) = self.pid().filter(|_| self.ended.is_none()) {
            let _ = rustix::process::kill_process_group(id, signal);
        }
    }

    /// Ends it and everything it started, and waits until it is gone.
    pub(crate) fn kill(&mut self) {
        if self.status().is_none() {
            // The group first; a child that has not made its group yet is killed by its own number.
            self.signal(rustix::process::Signal::KILL);
            let _ = self.child.kill();
            self.ended = self.child.wait().ok();
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// What explains a death best: a panic's place and message, else the last line.
fn last_words(text: &str) -> Option<String> {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    match lines.iter().rposition(|line| line.contains("panicked at")) {
        Some(at) => Some(lines[at..].iter().take(2).copied().collect::<Vec<_>>().join(" ")),
        None => lines.last().map(|line| line.to_string()),
    }
}

fn named(signal: i32) -> &'static str {
    match signal {
        4 => " (illegal instruction)",
        6 => " (abort)",
        7 => " (bus error)",
        8 => " (arithmetic)",
        9 => " (killed)",
        11 => " (segmentation fault)",
        14 => " (alarm)",
        24 => " (processor time spent)",
        31 => " (a system call that kernels have no business with)",
        _ => "",
    }
}

/// Reads with what is left of a deadline as its time limit.
pub(crate) struct Timed<'s> {
    socket: &'s UnixStream,
    deadline: Instant,
}

impl Read for Timed<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.socket.set_read_timeout(Some(left))?;
        self.socket.read(buffer)
    }
}

/// Keeps the end of what is printed, however much it is.
fn remember(mut output: impl Read, printed: &Mutex<Vec<u8>>) {
    let mut buffer = [0; 4096];
    while let Ok(count @ 1..) = output.read(&mut buffer) {
        let mut printed = locked(printed);
        printed.extend_from_slice(&buffer[..count]);
        let over = printed.len().saturating_sub(TAIL);
        printed.drain(..over);
    }
}

type Job = (Command, Sender<io::Result<Child>>);

/// Starts a process from a thread that lives as long as this process does: a worker asks the kernel to end it when the
/// thread that started it ends.
fn spawn(command: Command) -> io::Result<Child> {
    static STARTER: Mutex<Option<(u32, Sender<Job>)>> = Mutex::new(None);
    let (answer, answered) = channel();
    {
        let mut starter = locked(&STARTER);
        // A forked process has no threads but the one that forked.
        let jobs = match &*starter {
            Some((id, jobs)) if *id == std::process::id() => jobs.clone(),
            _ => {
                let (jobs, waiting) = channel::<Job>();
                thread::Builder::new().name("warplap-starter".into()).spawn(move || {
                    for (mut command, answer) in waiting {
                        let _ = answer.send(command.spawn());
                    }
                })?;
                starter.insert((std::process::id(), jobs)).1.clone()
            }
        };
        jobs.send((command, answer)).map_err(|_| io::Error::other("nobody is left to start it"))?;
    }
    answered.recv().unwrap_or_else(|_| Err(io::Error::other("nobody is left to start it")))
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
