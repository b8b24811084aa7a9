//! A contest of Python callables: candidates, a proof and a stopwatch come in; who won, with every trial kept in the
//! store, goes out. The rules are those of every race: proved before timed, interleaved, the stored winner defends its
//! place, and a new candidate races against it alone.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use pyo3::exceptions::{PyKeyboardInterrupt, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyInt};
use serde_json::json;
use warplap::Stop;
use warplap::core::candidate::{Candidate, Outcome, SourceHash, Trial};
use warplap::core::device::Device;
use warplap::core::fingerprint::Fingerprint;
use warplap::core::key::Key;
use warplap::core::measure::{RacePlan, Stopwatch, race};
use warplap::core::record::Edition;
use warplap::core::rejection::Rejection;
use warplap::core::roofline::Work;
use warplap::core::space::{Config, Value};
use warplap::core::store::{Match, Store};
use warplap::core::verdict::{Contender, Verdict, decide, trials};

use crate::state::state;
use crate::watch::{interrupt, interrupted};

/// Candidates raced together, the leader so far included.
const HEAT: usize = 24;

/// Lists longer than this are searched: tried in a drawn order, and next to whoever leads.
const LISTED: usize = 2 * HEAT;

/// Seconds a heat may take at the most when the budget is spent before it begins.
const GRACE: f64 = 1.0;

struct Contest {
    prove: Py<PyAny>,
    sample: Py<PyAny>,
    candidates: Vec<Candidate>,
    incumbent: Option<Candidate>,
    stop: Stop,
    started: Instant,
    /// Seconds spent in heats.
    measured: Cell<f64>,
    /// The budget.
    seconds: f64,
    searched: bool,
}

/// Asks Python, and ends the contest on Ctrl-C.
fn ask<T>(stop: &Stop, f: impl for<'py> FnOnce(Python<'py>) -> PyResult<T>) -> Result<T, Rejection> {
    Python::attach(|py| {
        let answer = py.check_signals().and_then(|()| f(py));
        answer.map_err(|error| {
            let reason = error.to_string();
            if error.is_instance_of::<PyKeyboardInterrupt>(py) {
                interrupt(error);
                stop.say();
            }
            Rejection::LaunchFailed { reason }
        })
    })
}

impl Contest {
    /// Builds and proves one candidate: the share of the allowed error it took, or why it leaves.
    fn prove(&self, candidate: usize) -> Result<f64, Rejection> {
        let call = |py: Python<'_>| self.prove.bind(py).call1((candidate,))?.extract::<(String, String, f64)>();
        let (word, reason, error) = ask(&self.stop, call)?;
        match &*word {
            "right" => Ok(error),
            "wrong_answer" => Err(Rejection::WrongAnswer { error, allowed: 1.0, reason }),
            "does_not_build" => Err(Rejection::DoesNotBuild { reason }),
            "over_limits" => Err(Rejection::OverLimits { reason }),
            "crashed" => Err(Rejection::Crashed { reason }),
            "timed_out" => Err(Rejection::TimedOut { seconds: error }),
            _ => Err(Rejection::LaunchFailed { reason }),
        }
    }

    /// Whether the budget is spent. Everyone on a short list has a turn, so there only measuring counts: compilers, and
    /// a worker that starts, may take longer than any budget. A search has to end, so there everything counts.
    fn over(&self) -> bool {
        let spent = if self.searched { self.started.elapsed().as_secs_f64() } else { self.measured.get() };
        self.stop.said() || spent > self.seconds
    }

    /// Races the candidates with these numbers; every trial, and who won.
    fn run(&self, mut waiting: Vec<usize>) -> (Vec<Trial>, Option<Verdict>) {
        let (mut all, mut verdict) = (Vec::<Trial>::new(), None::<Verdict>);
        if self.searched {
            // The first one is the default and stays first.
            spread(&mut waiting[1..]);
        }
        waiting.reverse();
        let mut leader: Option<(usize, f64)> = None;
        let enough = || self.stop.said() || self.searched && self.over();
        while !waiting.is_empty() && (verdict.is_none() || !enough()) {
            let mut lanes: Vec<(usize, f64)> = leader.into_iter().collect();
            while lanes.len() < HEAT && (lanes.is_empty() || !enough()) {
                let Some(next) = waiting.pop() else { break };
                match self.prove(next) {
                    Ok(error) => lanes.push((next, error)),
                    Err(rejection) => all.push(self.trial(next, rejection)),
                }
            }
            let (heat, found) = self.heat(&mut lanes);
            for trial in heat {
                all.retain(|t| t.candidate != trial.candidate);
                all.push(trial);
            }
            leader = found.as_ref().and_then(|v| lanes.iter().find(|l| self.candidates[l.0] == v.winner).copied());
            if let Some((leader, _)) = leader.filter(|_| self.searched) {
                // Half of the next heat are those most like the leader, the other half as drawn.
                let mut near: Vec<usize> = (0..waiting.len()).collect();
                near.sort_by_key(|at| self.distance(waiting[*at], leader));
                near.truncate(HEAT / 2);
                near.sort_unstable();
                let next: Vec<usize> = near.iter().rev().map(|at| waiting.remove(*at)).collect();
                waiting.extend(next);
            }
            verdict = found.or(verdict);
        }
        (all, verdict)
    }

    /// In how many settings two candidates differ.
    fn distance(&self, a: usize, b: usize) -> usize {
        let (a, b) = (&self.candidates[a].config.0, &self.candidates[b].config.0);
        a.iter().filter(|(name, value)| b.get(*name) != Some(value)).count()
    }

    fn trial(&self, candidate: usize, rejection: Rejection) -> Trial {
        Trial { candidate: self.candidates[candidate].clone(), outcome: Outcome::Rejected(rejection) }
    }

    /// One race. Its winner is proved again; one that fails leaves and the others race once more.
    fn heat(&self, lanes: &mut Vec<(usize, f64)>) -> (Vec<Trial>, Option<Verdict>) {
        let mut out = Vec::new();
        loop {
            if lanes.is_empty() {
                return (out, None);
            }
            let candidates: Vec<Candidate> = lanes.iter().map(|l| self.candidates[l.0].clone()).collect();
            let is_incumbent = |c: &Candidate| self.incumbent.as_ref() == Some(c);
            let incumbent = candidates.iter().position(is_incumbent);
            let plan = RacePlan { incumbent, ..RacePlan::default() };
            let mut watch = Laps { contest: self, lanes };
            // The budget may be spent: those that are proved are raced all the same, for a while.
            let (begun, before) = (Instant::now(), self.measured.get());
            let grace = self.seconds.clamp(0.0, GRACE);
            let mut over = || {
                let here = begun.elapsed().as_secs_f64();
                self.measured.set(before + here);
                self.stop.said() || (self.over() && here > grace)
            };
            let finished = race(candidates.len(), &mut watch, &plan, &mut over);
            let contender = |(candidate, lane): (&Candidate, &(usize, f64))| Contender {
                candidate: candidate.clone(),
                error: lane.1,
                workspace: 0,
                priority: 1,
                incumbent: is_incumbent(candidate),
            };
            let contenders: Vec<Contender> = candidates.iter().zip(&*lanes).map(contender).collect();
            let heat = trials(&finished, &candidates);
            let Some(verdict) = decide(&finished, &contenders, &plan, false) else {
                out.extend(heat);
                return (out, None);
            };
            let winner = candidates.iter().position(|c| *c == verdict.winner).unwrap_or(0);
            if self.stop.said() {
                out.extend(heat);
                return (out, Some(verdict));
            }
            match self.prove(lanes[winner].0) {
                Ok(_) => {
                    out.extend(heat);
                    return (out, Some(verdict));
                }
                Err(rejection) => {
                    out.push(self.trial(lanes[winner].0, rejection));
                    lanes.remove(winner);
                }
            }
        }
    }
}

/// Shuffles, the same way every time.
fn spread(numbers: &mut [usize]) {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    for i in (1..numbers.len()).rev() {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        numbers.swap(i, (state >> 33) as usize % (i + 1));
    }
}

/// The lanes of a heat as a stopwatch that asks Python.
struct Laps<'c> {
    contest: &'c Contest,
    lanes: &'c [(usize, f64)],
}

impl Stopwatch for Laps<'_> {
    fn sample(&mut self, lane: usize) -> Result<f64, Rejection> {
        let candidate = self.lanes[lane].0;
        ask(&self.contest.stop, |py| self.contest.sample.bind(py).call1((candidate,))?.extract())
    }

    fn pause(&mut self, seconds: f64) {
        std::thread::sleep(std::time::Duration::from_secs_f64(seconds.clamp(0.0, 1.0)));
    }
}

fn config(settings: &Bound<'_, PyDict>) -> PyResult<Config> {
    let mut config = Config::new();
    for (name, value) in settings.iter() {
        let value = if value.is_instance_of::<PyBool>() {
            Value::Bool(value.extract()?)
        } else if value.is_instance_of::<PyInt>() {
            value.extract().map_or_else(|_| Value::Text(value.to_string()), Value::Int)
        } else {
            Value::Text(value.str()?.extract()?)
        };
        config.0.insert(name.extract()?, value);
    }
    Ok(config)
}

/// The edition that answers as things are, and the winner's number.
fn settled(edition: &Edition, candidates: &[Candidate]) -> Option<usize> {
    let known = |c: &Candidate| edition.trials.iter().any(|t| t.candidate == *c);
    if !candidates.iter().all(known) {
        return None;
    }
    candidates.iter().position(|c| *c == edition.verdict.winner)
}

/// Who is the fastest right one of the candidates: from the store, or by a race. `prove(i)` gives a word, a reason and
/// an error; `sample(i)` the seconds of one launch. With `measure` false nothing is raced and an unknown key is None; with
/// `keep` false everyone is raced and nothing is kept.
#[pyfunction]
#[pyo3(signature = (op, key, problem, candidates, prove, sample, *, device=None, budget=4.0, measure=true, again=false, keep=true))]
#[expect(clippy::too_many_arguments, reason = "a Python function with named arguments")]
pub(crate) fn contest(
    py: Python<'_>,
    op: &str,
    key: String,
    problem: String,
    candidates: Vec<(String, Bound<'_, PyDict>, String)>,
    prove: Py<PyAny>,
    sample: Py<PyAny>,
    device: Option<(BTreeMap<String, String>, BTreeMap<String, String>)>,
    budget: f64,
    measure: bool,
    again: bool,
    keep: bool,
) -> PyResult<Option<(usize, String)>> {
    if candidates.is_empty() {
        return Err(PyValueError::new_err("candidates: there is none, expected one or more"));
    }
    let named = |(variant, settings, source): &(String, Bound<'_, PyDict>, String)| {
        let (variant, source) = (variant.clone(), SourceHash::of(&[source]));
        PyResult::Ok(Candidate { variant, config: config(settings)?, source })
    };
    let candidates = candidates.iter().map(named).collect::<PyResult<Vec<_>>>()?;
    let (store, device) = {
        let state = state();
        let here = || state.device.fingerprint().clone();
        (state.store.clone(), device.map_or_else(here, |(hard, soft)| Fingerprint { hard, soft }))
    };
    let key = Key::new(op, format!("{op}:{key}"));
    let current = |store: &Store| match store.lookup(&key, &device) {
        Match::Exact(record) => record.current(&device.soft_id(), store.id()).cloned(),
        _ => None,
    };
    let answer = |edition: &Edition, winner: usize, from_store: bool| {
        let found = json!({"key": key.text, "problem": problem, "edition": edition, "from_store": from_store});
        Some((winner, found.to_string()))
    };
    py.detach(|| {
        let known = current(&store).filter(|_| keep);
        if let Some((edition, winner)) =
            known.as_ref().filter(|_| !again).and_then(|e| Some((e, settled(e, &candidates)?)))
        {
            return Ok(answer(edition, winner, true));
        }
        if !measure {
            let stored =
                known.as_ref().and_then(|e| Some((e, candidates.iter().position(|c| *c == e.verdict.winner)?)));
            return Ok(stored.and_then(|(edition, winner)| answer(edition, winner, true)));
        }
        let _flight = store.lock(&key, &device);
        let known = current(&store).filter(|_| keep);
        if let Some((edition, winner)) =
            known.as_ref().filter(|_| !again).and_then(|e| Some((e, settled(e, &candidates)?)))
        {
            return Ok(answer(edition, winner, true));
        }
        let incumbent = known.as_ref().map(|e| e.verdict.winner.clone()).filter(|w| candidates.contains(w));
        let met = |c: &Candidate| known.as_ref().is_some_and(|e| e.trials.iter().any(|t| t.candidate == *c));
        let races = |c: &Candidate| again || incumbent.is_none() || incumbent.as_ref() == Some(c) || !met(c);
        let waiting: Vec<usize> = (0..candidates.len()).filter(|i| races(&candidates[*i])).collect();
        let (stop, started) = (Stop::default(), Instant::now());
        let contest = Contest {
            prove,
            sample,
            candidates,
            incumbent: incumbent.clone(),
            stop,
            started,
            measured: Cell::new(0.0),
            seconds: budget,
            searched: waiting.len() > LISTED,
        };
        let (mut trials, verdict) = contest.run(waiting);
        if let Some(error) = interrupted() {
            return Err(error);
        }
        let Some(verdict) = verdict else {
            let reasons: Vec<String> = trials.iter().map(reason).collect();
            return Err(PyRuntimeError::new_err(format!("no candidate gave a right answer: {}", reasons.join("; "))));
        };
        let listed = |t: &Trial| contest.candidates.contains(&t.candidate);
        for old in known.iter().filter(|_| incumbent.is_some()).flat_map(|e| &e.trials).filter(|t| listed(t)) {
            if !trials.iter().any(|t| t.candidate == old.candidate) {
                trials.push(old.clone());
            }
        }
        let winner = contest.candidates.iter().position(|c| *c == verdict.winner).unwrap_or(0);
        let edition = Edition {
            soft: device.soft.clone(),
            origin: store.id().to_string(),
            tuned_at: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs()),
            program: env!("CARGO_PKG_VERSION").to_string(),
            verdict,
            trials,
            skipped: Vec::new(),
            work: Work::default(),
            floor_us: None,
            seconds: started.elapsed().as_secs_f64(),
        };
        if keep && let Err(error) = store.put(&key, &device, edition.clone(), &problem) {
            tracing::warn!("the record of {key} was not kept: {error}");
        }
        Ok(answer(&edition, winner, false))
    })
}

fn reason(trial: &Trial) -> String {
    match &trial.outcome {
        Outcome::Rejected(rejection) => format!("{}: {rejection}", trial.candidate),
        Outcome::Measured(_) => trial.candidate.to_string(),
    }
}
