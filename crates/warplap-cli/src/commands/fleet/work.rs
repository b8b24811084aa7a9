//! `warplap fleet work`: job lines come in on stdin; each is answered from the store or raced on this device, alone, and
//! event lines go out. It ends when stdin does, and with whoever started it.

use std::io::{BufRead, Read};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::Args;
use warplap::any::{AnyDevice, Wanted, kinds};
use warplap::core::engine::{AnyTuner, Tuned};
use warplap::core::progress::Observer;
use warplap::core::store::Store;
use warplap::{Cpu, How, Mode, Settings, Stop};
use warplap_fleet::gpu_lock::{GpuLock, usual_dir};
use warplap_fleet::jobs::{Class, Event, Job, JobPart, MOST_LINE, State};

use super::fault::Fault;
use crate::console::Console;
use crate::failure::{Exit, Failure};
use crate::machine::{self, Machine};
use crate::race_args::search_name;
use crate::suite;

/// How long a worker waits for a card that somebody else races on.
const PATIENCE: Duration = Duration::from_secs(3600);

/// Arguments of `fleet work`.
#[derive(Args)]
pub(crate) struct Work {
    /// The device to work on: cpu, cuda or cuda:N
    #[arg(long, value_name = "DEVICE", default_value = "auto")]
    device: Wanted,
    /// CPU threads to race with (default: all there are); a CPU with fewer is another class
    #[arg(long, value_name = "N", env = "WARPLAP_THREADS", hide_env_values = true, value_parser = threads)]
    threads: Option<usize>,
    /// The card's name in locks and records (default: a GPU's own, or cpu)
    #[arg(long, value_name = "NAME", value_parser = card_name)]
    card: Option<String>,
    /// Take the CPU for so many cards, to try a split out; give each its threads with --threads
    #[arg(long, value_name = "N", env = "WARPLAP_CPU_CARDS", hide_env_values = true, default_value = "1",
          value_parser = clap::value_parser!(u32).range(1..=64))]
    cpu_cards: u32,
    /// Only say which devices there are, a line each
    #[arg(long)]
    probe: bool,
    /// Say every so many seconds that this worker is there
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u64).range(1..=3600))]
    beat: Option<u64>,
    /// The name of this machine in events (default: its own)
    #[arg(long, value_name = "NAME", env = "WARPLAP_NODE", hide_env_values = true)]
    node: Option<String>,
    /// Faults for tests of engines; no release has them
    #[cfg(debug_assertions)]
    #[arg(long, hide = true, env = "WARPLAP_FLEET_FAULT", hide_env_values = true)]
    fault: Option<Fault>,
}

/// What a job needs.
struct BenchJob<'w> {
    work: &'w Work,
    machine: Machine,
    class: Class,
    fault: Fault,
    stop: Stop,
}

impl Work {
    pub(crate) fn run(&self, root: Option<&Path>, console: &Arc<Console>) -> Result<Exit, Failure> {
        if self.probe {
            return self.print_devices(console);
        }
        end_with_parent();
        let stop = machine::listen(console);
        let machine = self.machine(root)?;
        let class = self.class(&machine.device, &self.device.to_string());
        let fault = self.fault();
        let bench = BenchJob { work: self, machine, class, fault, stop };
        if let Some(seconds) = self.beat {
            beat(console.clone(), bench.class.node.clone(), seconds);
        }
        let mut lines = std::io::stdin().lock();
        let mut number = 0;
        while !bench.stop.said() {
            let Some(line) = next_line(&mut lines)? else { return Ok(Exit::Ok) };
            number += 1;
            if line.trim().is_empty() {
                continue;
            }
            match Job::read(&line) {
                Ok(job) => bench.serve(&job, console)?,
                Err(e) => {
                    let id = id_in(&line).unwrap_or_else(|| format!("line-{number}"));
                    bench.say(Event::new(&id, State::Failed, &bench.class.node, 1).because(e), console)?;
                }
            }
        }
        Ok(Exit::Interrupted)
    }

    #[cfg(debug_assertions)]
    fn fault(&self) -> Fault {
        self.fault.clone().unwrap_or_default()
    }

    #[cfg(not(debug_assertions))]
    fn fault(&self) -> Fault {
        Fault::default()
    }

    fn machine(&self, root: Option<&Path>) -> Result<Machine, Failure> {
        let mut machine = Machine::open(root, self.device)?;
        if let (AnyDevice::Cpu(_), Some(threads)) = (&machine.device, self.threads) {
            machine.device = AnyDevice::Cpu(Arc::new(Cpu::with_threads(threads)));
        }
        Ok(machine)
    }

    /// The device once more, as somebody who has measured nothing opens it.
    fn opened(&self, wanted: Wanted) -> Result<AnyDevice, warplap::Error> {
        match (AnyDevice::open(wanted, None)?, self.threads) {
            (AnyDevice::Cpu(_), Some(threads)) => Ok(AnyDevice::Cpu(Arc::new(Cpu::with_threads(threads)))),
            (device, _) => Ok(device),
        }
    }

    fn class(&self, device: &AnyDevice, name: &str) -> Class {
        let print = device.fingerprint();
        Class {
            device: print.slug(),
            soft: print.soft_id(),
            kind: device.kind().to_string(),
            policy: device.usual_policy().to_string(),
            node: self.node.clone().unwrap_or_else(host),
            name: name.to_string(),
            card: self.card.clone().unwrap_or_else(|| card(device)),
        }
    }

    fn print_devices(&self, console: &Console) -> Result<Exit, Failure> {
        for kind in kinds() {
            for number in 0..kind.count().unwrap_or(0) {
                let wanted = Wanted::Named(kind.word, number);
                let class = match self.opened(wanted) {
                    Ok(device) => self.class(&device, &wanted.to_string()),
                    Err(e) => {
                        console.warn(format_args!("{wanted}: {e}"));
                        continue;
                    }
                };
                match (kind.word, self.cpu_cards) {
                    ("cpu", 2..) => {
                        let card = |n: u32| Class { card: format!("{}-{n}", class.card), ..class.clone() };
                        (0..self.cpu_cards).try_for_each(|n| console.line(&json(&card(n))))?;
                    }
                    _ => console.line(&json(&class))?,
                }
            }
        }
        Ok(Exit::Ok)
    }
}

impl BenchJob<'_> {
    /// Answers one job; whatever happens, it gets its last word.
    fn serve(&self, job: &Job, console: &Console) -> Result<(), Failure> {
        let event = |state| Event::new(&job.id, state, &self.class.node, job.attempt);
        if !self.class.suits(job) {
            let (own, asked) = (&self.class, (&job.device, &job.soft));
            let mut why = format!("this is {} {}, and not {} {}", own.device, own.soft, asked.0, asked.1);
            if (&own.device, &own.soft) == asked {
                why = format!("this is {}, and not {}", own.seat(), job.cards.join(" or "));
            }
            return self.say(event(State::Refused).because(why), console);
        }
        let started = Instant::now();
        let done = catch_unwind(AssertUnwindSafe(|| self.answer(job, &|| self.say(event(State::Begun), console))));
        let mut last = match done {
            Ok(Ok(mut done)) => {
                done.seconds = Some(started.elapsed().as_secs_f64());
                done
            }
            // Nobody is left to hear.
            Ok(Err(Failure::Pipe)) => return Err(Failure::Pipe),
            Ok(Err(e)) => event(State::Failed).because(e),
            Err(_) => event(State::Failed).because("it panicked (warplap tune with the same problem shows where)"),
        };
        last.device = Some(self.class.device.clone());
        self.say(last, console)
    }

    fn answer(&self, job: &Job, begin: &dyn Fn() -> Result<(), Failure>) -> Result<Event, Failure> {
        let asked = suite::asked(&job.problem, None)?;
        if asked.op() != job.op {
            return Err(Failure::input(format!("op is '{}': expected {}, the problem's", job.op, asked.op())));
        }
        let mut settings = Settings {
            mode: Mode::Tune,
            bucket: job.bucket().map_err(Failure::input)?,
            policy: job.policy().map_err(Failure::input)?,
            search: search_name(&job.search).map_err(|e| Failure::input(format!("search: {e}")))?,
            stop: self.stop.clone(),
            yardsticks: true,
            ..Settings::default()
        };
        settings.budget.seconds = job.budget;
        let tuner = asked.open(&self.machine.device, self.machine.store.clone(), settings)?;
        if let Some(part) = &job.part {
            return self.part(job, part, &*tuner, begin);
        }
        // What is known needs no card; it may have become known while we waited for one.
        let is_known = || Ok::<bool, Failure>(tuner.find(&asked.problem)?.how == Some(How::Stored));
        let known = is_known()?;
        let lock = if known { None } else { self.lock()? };
        let known = known || is_known()?;
        begin()?;
        if !known {
            self.fault.strike(job, &self.class.device);
            self.machine.device.measured_ceilings(&self.machine.store);
        }
        let tuned = tuner.ensure(&asked.problem, &Unwatched)?;
        drop(lock);
        Ok(self.done(job, &tuned))
    }

    fn done(&self, job: &Job, tuned: &Tuned) -> Event {
        let mut done = Event::new(&job.id, State::Done, &self.class.node, job.attempt);
        done.winner = Some(tuned.edition.verdict.winner.to_string());
        done.median_us = Some(tuned.edition.verdict.median_us);
        done.from_store = Some(tuned.from_store);
        done
    }

    /// What a split space wants of this card.
    fn part(
        &self,
        job: &Job,
        part: &JobPart,
        tuner: &dyn AnyTuner,
        begin: &dyn Fn() -> Result<(), Failure>,
    ) -> Result<Event, Failure> {
        let _lock = self.lock()?;
        begin()?;
        let mut done = Event::new(&job.id, State::Done, &self.class.node, job.attempt);
        match (part, part.race()) {
            (_, Some(part)) => {
                self.fault.strike(job, &self.class.device);
                self.machine.device.measured_ceilings(&self.machine.store);
                let contest = tuner.race_part(&job.problem, &self.class.seat(), &part, &Unwatched)?;
                done.winner = Some(contest.verdict.winner.to_string());
                done.median_us = Some(contest.verdict.median_us);
                done.contest = Some(Box::new(contest));
            }
            (JobPart::Keep(all), _) => {
                let kept = tuner.keep_gathered(&job.problem, (**all).clone(), &Unwatched)?;
                if let Some(warning) = kept.warning {
                    return Err(Failure::NoAnswer(warning));
                }
                return Ok(self.done(job, &kept));
            }
            // The store's note is of the whole class: this card speaks for itself.
            _ => {
                let device = self.work.opened(self.work.device)?;
                done.ceilings = device.measured_ceilings(&Store::memory()).map(|c| Box::new((*c).clone()));
            }
        }
        Ok(done)
    }

    /// The card, alone. Where no lock can be kept the race goes on: others are seen as contention.
    fn lock(&self) -> Result<Option<GpuLock>, Failure> {
        let card = &self.class.card;
        match GpuLock::take(&usual_dir(), card, PATIENCE) {
            Ok(Some(lock)) => Ok(Some(lock)),
            Ok(None) => Err(Failure::NoAnswer(format!("somebody raced on {card} for {PATIENCE:?}"))),
            Err(e) => {
                tracing::warn!("{card} is raced on without a lock: {e}");
                Ok(None)
            }
        }
    }

    fn say(&self, mut event: Event, console: &Console) -> Result<(), Failure> {
        event.at = Some(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64());
        console.line(&json(&event))
    }
}

/// Nobody looks: an event line is all the progress there is.
struct Unwatched;

impl Observer for Unwatched {
    fn event(&self, _: &warplap::core::progress::Event<'_>) {}
}

fn json(of: &impl serde::Serialize) -> serde_json::Value {
    serde_json::to_value(of).unwrap_or_default()
}

/// A line of stdin without its end; of one that is too long, as much as shows that it is.
fn next_line(from: &mut impl BufRead) -> Result<Option<String>, Failure> {
    let mut bytes = Vec::new();
    from.by_ref().take(MOST_LINE as u64 + 2).read_until(b'\n', &mut bytes)?;
    if bytes.len() > MOST_LINE + 1 && bytes.last() != Some(&b'\n') {
        from.skip_until(b'\n')?;
    }
    Ok((!bytes.is_empty()).then(|| String::from_utf8_lossy(&bytes).trim_end().to_string()))
}

/// The id of a line that is no job otherwise.
fn id_in(line: &str) -> Option<String> {
    let value: serde_json::Value = serde_json::from_str(line).ok()?;
    let id = value.get("id")?.as_str()?;
    (!id.is_empty() && id.len() <= 128).then(|| id.to_string())
}

/// The card's name, the same for every program, in containers too: a GPU's own, or the one CPU.
fn card(device: &AnyDevice) -> String {
    match device {
        AnyDevice::Cpu(_) => "cpu".into(),
        AnyDevice::Cuda(cuda) => cuda.chip().card(),
    }
}

fn host() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let name = name.or_else(|| std::env::var("HOSTNAME").ok()).unwrap_or_default();
    if name.trim().is_empty() { "here".into() } else { name.trim().to_string() }
}

fn card_name(text: &str) -> Result<String, String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.:".contains(c);
    let good = !text.is_empty() && text.len() <= 64 && text.chars().all(plain);
    good.then(|| text.to_string()).ok_or_else(|| "expected a short name of letters, digits and -_.:".into())
}

fn threads(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|n| (1..=4096).contains(n)).ok_or_else(|| "expected a whole number from 1 to 4096".into())
}

/// Says from time to time that this worker is there, until it is not.
fn beat(console: Arc<Console>, node: String, seconds: u64) {
    std::thread::spawn(move || {
        let event = json(&Event::new("", State::Alive, &node, 1));
        while console.line(&event).is_ok() {
            std::thread::sleep(Duration::from_secs(seconds));
        }
    });
}

/// Whoever started this worker hears its events; without him it must not keep a card.
fn end_with_parent() {
    #[cfg(target_os = "linux")]
    if let Err(e) = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL)) {
        tracing::debug!("a parent's death is heard by a closed stdin alone: {e}");
    }
}
