//! Splitting: keys and the cards of their class come in; each key's space is screened in shares, the best meet on two
//! cards or more, one of them keeps the verdict, and an event for each key goes out. What could not be split is left.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use warplap::Stop;
use warplap::core::split::gate::{Reach, Seats, off, reach, seats};
use warplap::core::split::{Gathered, GpuContest, Share, finals, screen};
use warplap_fleet::engine::{Engine, EngineError};
use warplap_fleet::jobs::{Class, Event, Job, JobPart, State};

use super::job::Planned;
use crate::console::{Console, DIM, paint};

/// The share of a budget that screening has; the finals have the rest.
const SCREENING: f64 = 0.6;

/// How spaces are split.
pub(super) struct Split {
    /// At most so many cards screen a key.
    pub(super) cards: usize,
    /// Cards that race the finals.
    pub(super) finals: usize,
    /// How far off the median of its class a card may be.
    pub(super) gate: f64,
    /// Differences below this share do not matter.
    pub(super) eps: f64,
}

/// One key on its way.
struct Way<'p> {
    plan: &'p Planned,
    shares: Vec<GpuContest>,
    finals: Vec<GpuContest>,
    began: Instant,
    /// Why it cannot be split.
    lost: Option<String>,
}

/// An engine, and when to stop.
pub(super) struct Run<'e> {
    pub(super) engine: &'e mut dyn Engine,
    pub(super) stop: &'e Stop,
    pub(super) console: &'e Console,
}

impl Split {
    /// Tunes the keys of every class that has two cards or more. Gives the last event of each key that was tuned.
    pub(super) fn drive(
        &self,
        run: &mut Run<'_>,
        result: &[Class],
        plans: &[Planned],
    ) -> Result<Vec<Event>, EngineError> {
        let classes: BTreeSet<(&str, &str)> =
            plans.iter().map(|p| (p.job.device.as_str(), p.job.soft.as_str())).collect();
        let mut events = Vec::new();
        for class in classes {
            let of = |device: &str, soft: &str| (device, soft) == class;
            let cards: BTreeSet<String> =
                result.iter().filter(|c| of(&c.device, &c.soft) && !c.card.is_empty()).map(Class::seat).collect();
            let cards: Vec<String> = cards.into_iter().collect();
            let keys: Vec<&Planned> = plans.iter().filter(|p| of(&p.job.device, &p.job.soft)).collect();
            if cards.len() < finals::FEWEST_CARDS {
                run.say(format!("{}: one card: nothing is split", class.0));
                continue;
            }
            let seats = self.seats(run, keys[0], &cards)?;
            if seats.finals.len() < finals::FEWEST_CARDS {
                run.say(format!("{}: fewer than two cards say what they can do: nothing is split", class.0));
                continue;
            }
            events.extend(self.keys(run, keys, &cards, &seats)?);
        }
        Ok(events)
    }

    /// Who screens and who has the finals, by what each card can do.
    fn seats(&self, run: &mut Run<'_>, any: &Planned, cards: &[String]) -> Result<Seats, EngineError> {
        run.say(format!("what can each of {} cards do", cards.len()));
        let job = |(n, card): (usize, &String)| {
            let (id, cards) = (format!("{}.c{n}", any.job.id), vec![card.clone()]);
            Job { id, cards, part: Some(Box::new(JobPart::Ceilings)), ..any.job.clone() }
        };
        let ended = run.all(cards.iter().enumerate().map(job).collect())?;
        let ceilings = |n: usize| ended.get(&format!("{}.c{n}", any.job.id))?.ceilings.as_deref();
        let reach: Vec<Reach> = (0..cards.len()).map(|n| ceilings(n).map(reach).unwrap_or_default()).collect();
        for (card, off) in cards.iter().zip(off(&reach)) {
            match off {
                Some(off) if off.abs() > self.gate => run.say(format!(
                    "{card} is {:.1} % off the median of its class: it screens nobody",
                    100.0 * off.abs()
                )),
                Some(_) => {}
                None => run.say(format!("{card} does not say what it can do")),
            }
        }
        let mut seats = seats(&reach, self.gate, self.finals);
        seats.screen.truncate(self.cards);
        Ok(seats)
    }

    /// All keys of a class, stage by stage: a worker starts once a stage.
    fn keys(
        &self,
        run: &mut Run<'_>,
        keys: Vec<&Planned>,
        cards: &[String],
        seats: &Seats,
    ) -> Result<Vec<Event>, EngineError> {
        let way = |plan| Way { plan, shares: Vec::new(), finals: Vec::new(), began: Instant::now(), lost: None };
        let mut ways: Vec<Way<'_>> = keys.into_iter().map(way).collect();
        let screen: Vec<String> = seats.screen.iter().map(|at| cards[*at].clone()).collect();
        run.say(format!("screening {} in {} shares", ways.len(), screen.len()));
        let jobs = ways.iter().flat_map(|way| self.shares(&way.plan.job, &screen)).collect();
        let ended = run.all(jobs)?;
        ways.iter_mut().for_each(|way| way.shares = way.gpu_contests(&ended, 's', screen.len()));
        run.say(format!("finals on {} cards", seats.finals.len()));
        let last: Vec<String> = seats.finals.iter().map(|at| cards[*at].clone()).collect();
        let jobs = ways.iter_mut().flat_map(|way| self.finals(way, &last)).collect();
        let ended = run.all(jobs)?;
        ways.iter_mut().for_each(|way| way.finals = way.gpu_contests(&ended, 'f', last.len()));
        let jobs = ways.iter_mut().filter_map(|way| self.keep(way, &last)).collect();
        let mut ended = run.all(jobs)?;
        let mut events = Vec::new();
        for way in ways {
            let id = way.plan.job.id.clone();
            let kept = ended.remove(&format!("{id}.k"));
            let why = kept.as_ref().and_then(|event| event.why.clone());
            match (kept.filter(|event| event.state == State::Done), way.lost.or(why)) {
                (Some(event), _) => {
                    events.push(Event { id, seconds: Some(way.began.elapsed().as_secs_f64()), ..event });
                }
                (None, why) if !run.stop.said() => run.console.warn(format_args!(
                    "{}: not split, one card races it all: {}",
                    way.plan.job.problem,
                    why.as_deref().unwrap_or("nothing was heard of it")
                )),
                (None, _) => {}
            }
        }
        Ok(events)
    }

    fn shares(&self, job: &Job, cards: &[String]) -> Vec<Job> {
        let of = u32::try_from(cards.len()).unwrap_or(1);
        let part = |nth: u32| Job {
            id: format!("{}.s{nth}", job.id),
            budget: SCREENING * job.budget,
            cards: cards.to_vec(),
            part: Some(Box::new(JobPart::Share(Share { nth, of }))),
            ..job.clone()
        };
        (0..of).map(part).collect()
    }

    /// The same finals on each of the cards.
    fn finals(&self, way: &mut Way<'_>, cards: &[String]) -> Vec<Job> {
        let who = screen::finalists(&way.shares);
        if way.lost.is_none() && who.is_empty() {
            way.lost = Some("nobody of any share was timed".into());
        }
        if way.lost.is_some() {
            return Vec::new();
        }
        let job = &way.plan.job;
        let part = |(n, card): (usize, &String)| Job {
            id: format!("{}.f{n}", job.id),
            budget: (1.0 - SCREENING) * job.budget,
            cards: vec![card.clone()],
            part: Some(Box::new(JobPart::Finals(who.clone()))),
            ..job.clone()
        };
        cards.iter().enumerate().map(part).collect()
    }

    /// One of the finals' cards proves the winner and keeps it all.
    fn keep(&self, way: &mut Way<'_>, cards: &[String]) -> Option<Job> {
        if way.lost.is_some() {
            return None;
        }
        let seconds = way.began.elapsed().as_secs_f64();
        match Gathered::of(&way.shares, &way.finals, self.eps, seconds) {
            Ok(all) => {
                let (id, part) = (format!("{}.k", way.plan.job.id), Some(Box::new(JobPart::Keep(Box::new(all)))));
                Some(Job { id, cards: cards.to_vec(), part, ..way.plan.job.clone() })
            }
            Err(e) => {
                way.lost = Some(e.to_string());
                None
            }
        }
    }
}

impl Way<'_> {
    /// The heats of a stage. One that is missing is why the key is not split: its share was seen by nobody.
    fn gpu_contests(&mut self, ended: &BTreeMap<String, Event>, stage: char, count: usize) -> Vec<GpuContest> {
        if self.lost.is_some() {
            return Vec::new();
        }
        let mut contests = Vec::new();
        for n in 0..count {
            let event = ended.get(&format!("{}.{stage}{n}", self.plan.job.id));
            match event.and_then(|event| event.contest.as_deref()) {
                Some(contest) => contests.push(contest.clone()),
                None => {
                    let why = event.and_then(|event| event.why.as_deref()).unwrap_or("nothing was heard of it");
                    self.lost.get_or_insert_with(|| why.to_string());
                }
            }
        }
        contests
    }
}

impl Run<'_> {
    /// Runs jobs to their last events.
    fn all(&mut self, jobs: Vec<Job>) -> Result<BTreeMap<String, Event>, EngineError> {
        let mut ended = BTreeMap::new();
        if jobs.is_empty() || self.stop.said() {
            return Ok(ended);
        }
        let (stop, console) = (self.stop, self.console);
        self.engine.run(jobs, &|| stop.said(), &mut |event| match event.state {
            State::Lost => console.log(format_args!("{}: lost: {}", event.id, event.why.as_deref().unwrap_or(""))),
            state if state.is_last() => drop(ended.insert(event.id.clone(), event)),
            _ => {}
        })?;
        Ok(ended)
    }

    fn say(&self, text: String) {
        self.console.log(paint(DIM, text));
    }
}
