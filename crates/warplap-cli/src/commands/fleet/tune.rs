//! `warplap fleet tune`: problems come in; an engine tunes each on every class of devices that is asked for, and a table
//! or JSON lines go out. What the store has is not tuned again: killed and started again, it goes on.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use serde_json::json;
use warplap::core::environment;
use warplap::core::store::{Address, Store, default_address};
use warplap::{Bucket, Settings, Stop};
use warplap_fleet::engine::{Engine, EngineError, Program, here::Here, ray::Ray, slurm::Slurm};
use warplap_fleet::jobs::{Class, Event, State};

use super::job::{Manner, Planned, classes, missed, plan};
use super::shared::{self, Open};
use super::split::{Run, Split};
use crate::console::{BAD, Console, DIM, GOOD, paint};
use crate::failure::{Exit, Failure};
use crate::machine;
use crate::progress::Progress;
use crate::race_args::{self, search_name, seconds};
use crate::suite::{self, Asked};
use crate::table::{Cell, Table};
use crate::units;

/// Who places jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Which {
    /// Every GPU of this machine, and its CPU
    Here,
    /// A Ray cluster
    Ray,
    /// A Slurm cluster
    Slurm,
}

/// Arguments of `fleet tune`.
#[derive(Args)]
pub(crate) struct FleetTune {
    /// What to tune: op:field=value,… (default: a suite over all operations)
    #[arg(value_name = "PROBLEM")]
    problems: Vec<String>,
    /// The operation of problems that name none; alone: the default suite's part
    #[arg(long, value_name = "OP")]
    op: Option<String>,
    /// A file with one problem a line
    #[arg(long, value_name = "FILE")]
    suite: Option<PathBuf>,
    /// Also what programs in mode record asked for and did not find, and what the fleet wants
    #[arg(long)]
    misses: bool,
    /// Who places the jobs
    #[arg(long, value_enum, default_value = "here")]
    engine: Which,
    /// Only this class of devices: a folder name of warplap devices, or cpu or cuda (may be said several times)
    #[arg(long, value_name = "CLASS")]
    device: Vec<String>,
    /// Seconds for each problem
    #[arg(long, value_name = "S", default_value = "4", value_parser = seconds)]
    budget: f64,
    /// The search, as in tune
    #[arg(long, value_name = "NAME", default_value = "auto", value_parser = search_name)]
    search: String,
    /// Sizes that share a key: changing (rows, positions), exact (none) or pow2 (all)
    #[arg(long, value_name = "BUCKET", default_value = "changing", value_parser = race_args::bucket)]
    bucket: Bucket,
    /// The Ray cluster: HOST:PORT, or auto (default: $RAY_ADDRESS, else a cluster of this machine alone)
    #[arg(long, value_name = "ADDRESS")]
    address: Option<String>,
    /// A folder that every Slurm node sees, for jobs and events (default: slurm-v1 in the store's directory)
    #[arg(long, value_name = "DIR")]
    spool: Option<PathBuf>,
    /// More for sbatch and srun, such as --slurm=--partition=gpu (may be said several times)
    #[arg(long = "slurm", value_name = "ARGUMENT", allow_hyphen_values = true)]
    more: Vec<String>,
    /// Seconds without a word after which a Slurm worker counts as dead, and its jobs are submitted again
    #[arg(long, value_name = "S", default_value = "30", value_parser = seconds)]
    silence: f64,
    /// Split each key's space over the cards of its class, at most N of them: shares are screened, the best meet on several
    #[arg(long, value_name = "N", num_args = 0..=1, require_equals = true, default_missing_value = "64",
          value_parser = clap::value_parser!(u16).range(2..=1024))]
    split: Option<u16>,
    /// Cards that race the finals of a split space
    #[arg(long, value_name = "N", default_value = "2", value_parser = clap::value_parser!(u8).range(2..=16))]
    finals: u8,
    /// How far off the median of its class, in percent, a card may be that screens
    #[arg(long, value_name = "PERCENT", default_value = "5", value_parser = percent)]
    gate: f64,
    /// Only say which jobs there would be
    #[arg(long)]
    dry_run: bool,
}

/// What has become of the jobs.
struct Standing {
    plans: Vec<Planned>,
    stored: usize,
    last: BTreeMap<String, Event>,
    tries: BTreeMap<String, u32>,
}

impl FleetTune {
    pub(crate) fn run(&self, root: Option<&Path>, console: &Arc<Console>) -> Result<Exit, Failure> {
        // Everything is read before anything is opened: bad input changes nothing.
        let op = suite::operation(self.op.as_deref())?;
        let mut asked = Vec::new();
        for problem in &self.problems {
            asked.push(suite::asked(problem, op)?);
        }
        if let Some(path) = &self.suite {
            asked.extend(suite::read(path, op)?);
        }
        if self.split.is_some() && self.engine != Which::Here {
            return Err(Failure::input("--split: expected --engine here: the others do not say which card a job gets"));
        }
        let stop = machine::listen(console);
        let store = machine::kept(root, true)?;
        let mut engine = self.engine(root)?;
        console.log(paint(DIM, "looking for devices"));
        let result = engine.classes().map_err(failed)?;
        let classes = classes(result.clone(), &self.device)?;
        let wants = shared::catch_up(root, &classes, console)?;
        let mut plans = self.plans(&asked, op, &classes, (&store, &wants))?;
        let wanted = plans.len();
        plans.retain(|plan| !plan.is_done(&store));
        let mut standing =
            Standing { stored: wanted - plans.len(), plans, last: BTreeMap::new(), tries: BTreeMap::new() };
        if self.dry_run {
            return standing.dry_run(console);
        }
        let started = Instant::now();
        if let Some(cards) = self.split {
            self.split(cards, (&mut *engine, &result), &mut standing, &stop, console)?;
        }
        self.drive(&mut *engine, &mut standing, &stop, console)?;
        let ended = standing.plans.iter().filter_map(|p| Some((&p.job, &p.key, standing.last.get(&p.job.id)?)));
        shared::report_failures(root, ended, console)?;
        standing.report(started.elapsed().as_secs_f64(), &store, console)?;
        if stop.said() {
            console.log("interrupted; run it again to go on");
            return Ok(Exit::Interrupted);
        }
        Ok(if standing.count(State::Done) < standing.plans.len() { Exit::NoAnswer } else { Exit::Ok })
    }

    fn plans(
        &self,
        asked: &[Asked],
        op: Option<&'static warplap::any::Operation>,
        classes: &[Class],
        (store, wants): (&Store, &[Open]),
    ) -> Result<Vec<Planned>, Failure> {
        let manner = Manner { budget: self.budget, search: self.search.clone(), bucket: self.bucket.clone() };
        let default = self.problems.is_empty() && self.suite.is_none() && !self.misses;
        let mut plans = Vec::new();
        for class in classes {
            let usual = if default { suite::default(op, &class.kind)? } else { Vec::new() };
            plans.extend(plan(if default { &usual } else { asked }, class, &manner)?);
            if self.misses {
                plans.extend(missed(store, wants, class, &manner)?);
            }
        }
        let mut seen = std::collections::BTreeSet::new();
        plans.retain(|plan| seen.insert(plan.job.id.clone()));
        Ok(plans)
    }

    fn engine(&self, root: Option<&Path>) -> Result<Box<dyn Engine>, Failure> {
        let program = program(root)?;
        Ok(match self.engine {
            Which::Here => Box::new(Here::new(program)),
            Which::Ray => {
                let python = environment::var("WARPLAP_PYTHON").unwrap_or_else(|| "python3".into());
                Box::new(Ray::new(program, python, self.address.clone()))
            }
            Which::Slurm => {
                let address = root.map_or_else(default_address, Address::of)?;
                let kept = || address.directory().map(|dir| dir.join("slurm-v1"));
                let spool = self.spool.clone().or_else(kept).ok_or_else(|| {
                    Failure::input("--spool is missing: expected a folder that every node of the cluster sees")
                })?;
                let spool = std::path::absolute(&spool).map_err(|e| Failure::input(format!("--spool: {e}")))?;
                let slurm = Slurm::new(program, spool, self.more.clone());
                Box::new(slurm.with_silence(Duration::from_secs_f64(self.silence)))
            }
        })
    }

    /// Tunes what can be split over cards; the rest is left for one card each.
    fn split(
        &self,
        cards: u16,
        (engine, result): (&mut dyn Engine, &[Class]),
        standing: &mut Standing,
        stop: &Stop,
        console: &Arc<Console>,
    ) -> Result<(), Failure> {
        let (cards, finals, gate) = (usize::from(cards), usize::from(self.finals), self.gate / 100.0);
        let split = Split { cards, finals, gate, eps: Settings::default().eps };
        let mut run = Run { engine, stop, console };
        let events = split.drive(&mut run, result, &standing.plans).map_err(failed)?;
        for event in events {
            let job = standing.plans.iter().map(|plan| &plan.job).find(|job| job.id == event.id);
            if let Some(job) = job {
                console.log(news(&job.problem, &event));
                if console.json {
                    console.line(&line(&job.problem, &event))?;
                }
            }
            standing.tries.insert(event.id.clone(), event.attempt);
            standing.last.insert(event.id.clone(), event);
        }
        Ok(())
    }

    fn drive(
        &self,
        engine: &mut dyn Engine,
        standing: &mut Standing,
        stop: &Stop,
        console: &Arc<Console>,
    ) -> Result<(), Failure> {
        let open = standing.plans.iter().filter(|plan| !standing.last.contains_key(&plan.job.id));
        let jobs: Vec<_> = open.map(|plan| plan.job.clone()).collect();
        if jobs.is_empty() || stop.said() {
            return Ok(());
        }
        let problems: BTreeMap<String, String> = jobs.iter().map(|j| (j.id.clone(), j.problem.clone())).collect();
        let progress = Progress::new(console, jobs.len());
        let mut broken = None;
        let ran = engine.run(jobs, &|| stop.said(), &mut |event| {
            let Some(problem) = problems.get(&event.id) else { return };
            standing.tries.insert(event.id.clone(), event.attempt);
            match event.state {
                State::Begun => drop(progress.begin(standing.last.len(), problem)),
                State::Lost => {
                    console.log(format_args!("{problem}: lost: {}", event.why.as_deref().unwrap_or("")));
                }
                state if state.is_last() => {
                    progress.done(standing.last.len(), &news(problem, &event));
                    if console.json {
                        broken = console.line(&line(problem, &event)).err().or(broken.take());
                    }
                    standing.last.insert(event.id.clone(), event);
                }
                _ => {}
            }
        });
        drop(progress);
        if let Some(broken) = broken {
            return Err(broken);
        }
        // What was done until then is told all the same.
        if let Err(e) = ran {
            console.warn(e);
        }
        Ok(())
    }
}

impl Standing {
    fn count(&self, state: State) -> usize {
        self.last.values().filter(|event| event.state == state).count()
    }

    fn dry_run(&self, console: &Console) -> Result<Exit, Failure> {
        let mut table = Table::new(&["~problem", "class"]);
        for Planned { job, key } in &self.plans {
            if console.json {
                console.line(&json!({"dry_run": true, "job": job, "key": key.text}))?;
            }
            table.row([job.problem.as_str().into(), job.device.as_str().into()]);
        }
        if !console.json && !table.is_empty() {
            console.say(table.render(console.width()))?;
        }
        Ok(Exit::Ok)
    }

    fn report(&self, seconds: f64, store: &Store, console: &Console) -> Result<(), Failure> {
        let (done, wanted) = (self.count(State::Done), self.plans.len() + self.stored);
        let kept = self.last.values().filter(|e| e.from_store == Some(true)).count();
        let (failed, open) = (self.last.len() - done, self.plans.len() - self.last.len());
        if console.json {
            return console.line(&json!({
                "wanted": wanted, "done": done - kept, "from_store": self.stored + kept, "failed": failed,
                "open": open, "seconds": seconds,
            }));
        }
        let mut table = Table::new(&["~problem", "class", "state", "winner", ">time", "node", ">tries"]);
        for Planned { job, .. } in &self.plans {
            let event = self.last.get(&job.id);
            let state = match event.map(|e| e.state) {
                Some(State::Done) => Cell::styled("done", GOOD),
                Some(State::Refused) => Cell::styled("refused", BAD),
                Some(_) => Cell::styled("failed", BAD),
                None => Cell::styled("open", DIM),
            };
            let text = |of: Option<String>| Cell::from(of.unwrap_or_default());
            table.row([
                job.problem.as_str().into(),
                job.device.as_str().into(),
                state,
                text(event.and_then(|e| e.winner.clone())),
                text(event.and_then(|e| e.median_us).map(units::time)),
                text(event.map(|e| e.node.clone())),
                self.tries.get(&job.id).copied().unwrap_or(0).into(),
            ]);
            if let Some(why) = event.filter(|e| e.state != State::Done).and_then(|e| e.why.as_ref()) {
                table.line(format!("  {why}"));
            }
        }
        if !table.is_empty() {
            console.say(table.render(console.width()))?;
        }
        let open = if open > 0 { format!(", {open} open") } else { String::new() };
        console.say(paint(
            DIM,
            format!(
                "{} wanted: {} tuned, {} from the store, {failed} failed{open} in {seconds:.1} s ({})",
                wanted,
                done - kept,
                self.stored + kept,
                store.place(),
            ),
        ))
    }
}

fn percent(text: &str) -> Result<f64, String> {
    let expected = || "expected a percentage, more than 0 and at most 1000".to_string();
    text.parse().ok().filter(|p| *p > 0.0 && *p <= 1000.0).ok_or_else(expected)
}

/// How workers are started: this program, with the store that was named.
fn program(root: Option<&Path>) -> Result<Program, Failure> {
    let own = || std::env::current_exe().map(OsString::from);
    let own = environment::var("WARPLAP_PROGRAM").map_or_else(own, Ok);
    let mut words = vec![own.map_err(|e| Failure::NoAnswer(format!("this program does not know its own name: {e}")))?];
    if let Some(root) = root {
        let named = match Address::of(root)? {
            Address::Directory(path) => std::path::absolute(&path).unwrap_or(path).into_os_string(),
            _ => root.as_os_str().to_os_string(),
        };
        words.extend(["--store".into(), named]);
    }
    Ok(Program { words })
}

fn failed(e: EngineError) -> Failure {
    Failure::NoAnswer(e.to_string())
}

fn news(problem: &str, event: &Event) -> String {
    let took = event.seconds.map(|s| format!(" in {s:.1} s")).unwrap_or_default();
    match (&event.state, &event.winner) {
        (State::Done, Some(winner)) => format!("{problem}: {winner}{took} on {}", event.node),
        (state, _) => format!("{problem}: {state:?}: {}", event.why.as_deref().unwrap_or("no reason was given")),
    }
}

fn line(problem: &str, event: &Event) -> serde_json::Value {
    let mut line = serde_json::to_value(event).unwrap_or_default();
    line["problem"] = problem.into();
    line
}
