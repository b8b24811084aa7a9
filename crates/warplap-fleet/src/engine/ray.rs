//! The engine of a Ray cluster: the driver `python -m warplap.fleet.ray` takes the job lines and gives the event lines.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::process::Command;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use super::{Engine, EngineError, Program, await_end, classes_in, said, start};
use crate::jobs::{Class, Event, Job, State};

const REMEDY: &str = "WARPLAP_PYTHON names a Python that has the packages warplap and ray";
const DRIVER: &str = "the Ray driver";
/// How often the word to stop is listened for.
const LOOK: Duration = Duration::from_millis(100);
/// How long a driver may take to leave its cluster.
const ENDING: Duration = Duration::from_secs(60);

/// A Ray cluster.
pub struct Ray {
    program: Program,
    python: OsString,
    address: Option<String>,
}

impl Ray {
    /// The cluster at an address (with `None`: the one Ray finds, or one of this machine alone), whose nodes start
    /// workers by `program`.
    pub fn new(program: Program, python: OsString, address: Option<String>) -> Ray {
        Ray { program, python, address }
    }

    fn driver(&self) -> Command {
        let mut command = Command::new(&self.python);
        command.args(["-m", "warplap.fleet.ray"]);
        if let Some(address) = &self.address {
            command.args(["--address", address]);
        }
        command
    }
}

impl Engine for Ray {
    fn classes(&mut self) -> Result<Vec<Class>, EngineError> {
        let text = said(self.driver().args(["--probe", "--"]).args(&self.program.words), REMEDY)?;
        classes_in(DRIVER, &text)
    }

    fn run(
        &mut self,
        jobs: Vec<Job>,
        stop: &(dyn Fn() -> bool + Sync),
        tell: &mut dyn FnMut(Event),
    ) -> Result<(), EngineError> {
        let mut child = start(self.driver().arg("--").args(&self.program.words), REMEDY)?;
        let mut open: std::collections::BTreeSet<String> = jobs.iter().map(|job| job.id.clone()).collect();
        let (to, from) = (child.stdin.take(), child.stdout.take());
        let (send, lines) = channel();
        let reader = std::thread::spawn(move || {
            for line in from.into_iter().flat_map(|from| BufReader::new(from).lines().map_while(Result::ok)) {
                if send.send(line).is_err() {
                    break;
                }
            }
        });
        let text: String = jobs.iter().map(|job| job.line() + "\n").collect();
        // A driver reads when it has seen its cluster; one that ended before has said why, and its end is heard below.
        let writer = std::thread::spawn(move || to.is_none_or(|mut to| to.write_all(text.as_bytes()).is_ok()));
        let mut wrong = None;
        loop {
            match lines.recv_timeout(LOOK) {
                Ok(line) => match Event::read(&line) {
                    Ok(event) if event.state == State::Alive => {}
                    Ok(event) => {
                        if event.state.is_last() {
                            open.remove(&event.id);
                        }
                        tell(event);
                    }
                    Err(source) => wrong = Some(EngineError::Line { program: DRIVER.into(), source }),
                },
                Err(RecvTimeoutError::Timeout) if stop() => break,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        let status = await_end(&mut child, if stop() { Duration::ZERO } else { ENDING })?;
        let _ = (writer.join(), reader.join());
        match wrong {
            Some(wrong) if !open.is_empty() => Err(wrong),
            _ if !open.is_empty() && !stop() => {
                let why = format!("it ended with {} jobs open ({status}); run it again to go on", open.len());
                Err(EngineError::Said { program: DRIVER.into(), why })
            }
            _ => Ok(()),
        }
    }
}
