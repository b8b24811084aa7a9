//! The engine of this machine: one `fleet work` for each GPU and one for the CPU. A job that ends its worker is tried
//! again in a fresh one, and given up after its tries.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::tries::Tries;
use super::{Engine, EngineError, Program, await_end, classes_in, said, start};
use crate::jobs::{Class, Event, Job, State};

/// How often somebody with nothing to do looks again.
const LOOK: Duration = Duration::from_millis(20);
/// How long a worker may take to end after it was told to.
const ENDING: Duration = Duration::from_secs(20);

const REMEDY: &str = "WARPLAP_PROGRAM names the program";

/// All devices of this machine.
pub struct Here {
    program: Program,
    classes: Vec<Class>,
}

impl Here {
    /// Workers are started by `program`.
    pub fn new(program: Program) -> Here {
        Here { program, classes: Vec::new() }
    }
}

impl Engine for Here {
    fn classes(&mut self) -> Result<Vec<Class>, EngineError> {
        let text = said(&mut self.program.work(["--probe"]), REMEDY)?;
        self.classes = classes_in("fleet work --probe", &text)?;
        Ok(self.classes.clone())
    }

    fn run(
        &mut self,
        jobs: Vec<Job>,
        stop: &(dyn Fn() -> bool + Sync),
        tell: &mut dyn FnMut(Event),
    ) -> Result<(), EngineError> {
        if self.classes.is_empty() {
            self.classes()?;
        }
        let tries = Mutex::new(Tries::of(jobs, &self.classes, "this machine has no device of that class", tell));
        let (send, events) = channel();
        let started = std::thread::scope(|scope| {
            let places: Vec<_> = (self.classes.iter())
                .map(|class| {
                    let place = Place { program: &self.program, class, tries: &tries, stop, events: send.clone() };
                    scope.spawn(move || place.work())
                })
                .collect();
            drop(send);
            events.into_iter().for_each(&mut *tell);
            let ends = places.into_iter().map(|place| place.join());
            ends.map(|end| end.unwrap_or(Ok(()))).collect::<Vec<_>>()
        });
        let left = !tries.into_inner().unwrap_or_else(PoisonError::into_inner).is_empty();
        // A device whose worker does not start harms nobody where another one did its jobs.
        started.into_iter().find(|end| end.is_err() && left).unwrap_or(Ok(()))
    }
}

/// One device, and where its jobs come from.
struct Place<'e> {
    program: &'e Program,
    class: &'e Class,
    tries: &'e Mutex<Tries>,
    stop: &'e (dyn Fn() -> bool + Sync),
    events: Sender<Event>,
}

/// A worker that is running.
struct Worker {
    child: Child,
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
}

impl Place<'_> {
    /// Until there is nothing left for this device. The thread lives as long as its workers: a parent's death is told to
    /// them by the thread that started them.
    fn work(&self) -> Result<(), EngineError> {
        let mut worker: Option<Worker> = None;
        while !(self.stop)() {
            let job = self.tries(|tries| tries.next(|job| self.class.suits(job)));
            let Some(job) = job else {
                if self.tries(|tries| tries.is_empty()) {
                    break;
                }
                std::thread::sleep(LOOK);
                continue;
            };
            let running = match worker.take().map_or_else(|| self.start(), Ok) {
                Ok(running) => worker.insert(running),
                Err(e) => {
                    self.lost(&job, &e.to_string());
                    return Err(e);
                }
            };
            if let Err(why) = self.run(running, &job) {
                let why = format!("{why}{}", running.ended());
                worker = None;
                self.lost(&job, &why);
            }
        }
        if let Some(mut worker) = worker {
            worker.end();
        }
        Ok(())
    }

    fn start(&self) -> Result<Worker, EngineError> {
        let Class { name, card, .. } = self.class;
        let mut command = self.program.work(["--device", name.as_str()]);
        if !card.is_empty() {
            command.args(["--card", card]);
        }
        let mut child = start(&mut command, REMEDY)?;
        let (to, from) = (child.stdin.take(), child.stdout.take());
        let from = from.ok_or_else(|| std::io::Error::other("a worker without a way out"))?;
        Ok(Worker { child, to, from: BufReader::new(from) })
    }

    /// One job: its line goes in, its events come out. An error is the worker's end.
    fn run(&self, worker: &mut Worker, job: &Job) -> Result<(), String> {
        let to = worker.to.as_mut().ok_or("the worker hears nothing")?;
        let sent = writeln!(to, "{}", job.line()).and_then(|()| to.flush());
        sent.map_err(|_| "the worker ended".to_string())?;
        let mut line = String::new();
        loop {
            line.clear();
            if worker.from.read_line(&mut line).unwrap_or(0) == 0 {
                return Err("the worker ended in the middle of it".into());
            }
            let event = Event::read(line.trim_end()).map_err(|e| format!("the worker said what is no event: {e}"))?;
            if event.state == State::Alive {
                continue;
            }
            let last = event.state.is_last();
            self.tries(|tries| tries.hear(&event));
            let _ = self.events.send(event);
            if last {
                return Ok(());
            }
        }
    }

    fn lost(&self, job: &Job, why: &str) {
        if let Some(event) = self.tries(|tries| tries.lose(&job.id, &self.class.node, why)) {
            let _ = self.events.send(event);
        }
    }

    fn tries<R>(&self, with: impl FnOnce(&mut Tries) -> R) -> R {
        with(&mut self.tries.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Worker {
    /// How it ended, for people.
    fn ended(&mut self) -> String {
        let _ = self.child.kill();
        self.child.wait().map_or(String::new(), |status| format!(" ({status})"))
    }

    /// Lets it end by itself, for a while.
    fn end(&mut self) {
        self.to = None;
        let _ = await_end(&mut self.child, ENDING);
    }
}
