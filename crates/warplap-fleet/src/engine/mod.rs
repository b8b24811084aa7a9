//! Engines: jobs come in; each is run on a device of its class, again where it was lost, and events go out.
//!
//! Every engine runs `warplap fleet work` where the devices are. It keeps no truth: what was done is in the store.

pub mod here;
pub mod ray;
pub mod slurm;
mod tries;

use std::ffi::OsString;
use std::io;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::jobs::{Class, Event, Job, LineError};

/// How often a job is tried before it counts as failed.
pub const TRIES: u32 = 3;

/// Seconds of work that engines hand over at once: a place costs a second or so, and what is lost with it is done again.
pub const BATCH_SECONDS: f64 = 45.0;

/// Why an engine cannot work.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// A program of it cannot be run.
    #[error("{program} cannot be run: {source} ({remedy})")]
    Program {
        /// Its name.
        program: String,
        /// What the system said.
        source: io::Error,
        /// What to do.
        remedy: String,
    },
    /// A program of it ended with bad news.
    #[error("{program}: {why}")]
    Said {
        /// Its name.
        program: String,
        /// What it said.
        why: String,
    },
    /// A line of it cannot be read.
    #[error("{program}: {source}")]
    Line {
        /// Its name.
        program: String,
        /// What is wrong with the line.
        source: LineError,
    },
    /// A file of it cannot be read or written.
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// Places jobs on machines.
pub trait Engine {
    /// The devices there are, one line each; several may be of one class.
    fn classes(&mut self) -> Result<Vec<Class>, EngineError>;

    /// Runs jobs until each has had its last event, or until `stop` says so. Events come as they happen.
    fn run(
        &mut self,
        jobs: Vec<Job>,
        stop: &(dyn Fn() -> bool + Sync),
        tell: &mut dyn FnMut(Event),
    ) -> Result<(), EngineError>;
}

/// How the program `warplap` is started: its words, with the store where one is named.
#[derive(Clone, Debug)]
pub struct Program {
    /// The program and its first arguments.
    pub words: Vec<OsString>,
}

impl Program {
    /// Its `fleet work` with some arguments, not started yet.
    fn work<S: Into<OsString>>(&self, arguments: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new(&self.words[0]);
        command.args(&self.words[1..]).args(["fleet", "work"]).args(arguments.into_iter().map(Into::into));
        command
    }
}

/// Starts a program whose stdin and stdout are ours.
fn start(command: &mut Command, remedy: &str) -> Result<Child, EngineError> {
    let program = command.get_program().to_string_lossy().into_owned();
    let spawned = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    spawned.map_err(|source| EngineError::Program { program, source, remedy: remedy.to_string() })
}

/// How a program ended; one that is not over after a while is killed.
fn await_end(child: &mut Child, within: Duration) -> io::Result<ExitStatus> {
    let until = Instant::now() + within;
    while Instant::now() < until {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    child.kill()?;
    child.wait()
}

/// What a program says on stdout until it ends well.
fn said(command: &mut Command, remedy: &str) -> Result<String, EngineError> {
    let program = command.get_program().to_string_lossy().into_owned();
    let ended = command.stdin(Stdio::null()).output();
    let ended =
        ended.map_err(|source| EngineError::Program { program: program.clone(), source, remedy: remedy.into() })?;
    if !ended.status.success() {
        let words = String::from_utf8_lossy(&ended.stderr);
        let why = words.lines().rev().find(|l| !l.trim().is_empty()).unwrap_or("it said nothing");
        return Err(EngineError::Said { program, why: format!("{why} ({})", ended.status) });
    }
    Ok(String::from_utf8_lossy(&ended.stdout).into_owned())
}

/// The classes in lines of a program.
fn classes_in(program: &str, text: &str) -> Result<Vec<Class>, EngineError> {
    let lines = text.lines().filter(|l| l.starts_with('{'));
    let read = |l| Class::read(l).map_err(|source| EngineError::Line { program: program.to_string(), source });
    lines.map(read).collect()
}

/// Seconds that a job takes about: its race, and what stands around it.
fn seconds(job: &Job) -> f64 {
    job.budget * 1.2 + 0.2
}

/// Jobs of one class in batches of [`BATCH_SECONDS`], in their order. There are at least as many batches as `places`,
/// where there are jobs enough.
fn batches(jobs: Vec<Job>, places: usize) -> Vec<Vec<Job>> {
    let all: f64 = jobs.iter().map(seconds).sum();
    let most = BATCH_SECONDS.min(all / places.max(1) as f64);
    let (mut batches, mut room): (Vec<Vec<Job>>, f64) = (Vec::new(), 0.0);
    for job in jobs {
        let takes = seconds(&job);
        match batches.last_mut() {
            Some(last) if takes <= room + 1e-9 => last.push(job),
            _ => {
                batches.push(vec![job]);
                room = most;
            }
        }
        room -= takes;
    }
    batches
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jobs::example;

    #[test]
    fn a_batch_is_some_seconds_of_work_and_every_place_gets_one() {
        let jobs: Vec<Job> = (0..200).map(|n| Job { budget: 4.0, ..example(&n.to_string()) }).collect();
        let made = batches(jobs.clone(), 2);
        assert!(made.iter().all(|b| b.iter().map(seconds).sum::<f64>() <= BATCH_SECONDS), "{}", made.len());
        assert_eq!(made.concat(), jobs);
        assert_eq!(batches(jobs[..4].to_vec(), 4).len(), 4);
        let long = vec![Job { budget: 600.0, ..example("a") }, example("b")];
        assert_eq!(batches(long, 1).len(), 2);
        assert!(batches(Vec::new(), 3).is_empty());
    }
}
