//! The walk: what all searches share. It keeps who was asked and what became of them, so that nobody is asked twice and
//! a search is one short rule: where next?

use std::collections::HashMap;

use crate::candidate::{Candidate, Trial};
use crate::search::ground::{Ground, Spot};
use crate::search::hints::Hints;
use crate::search::{Arm, Search};

/// What is known of a spot that was asked.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum SpotState {
    /// Nothing yet.
    Asked,
    /// It was right and took this long.
    Time(f64),
    /// It failed.
    Failed,
}

/// Everything that was asked so far.
pub(crate) struct Seen {
    pub(crate) ground: Ground,
    text: HashMap<Spot, SpotState, foldhash::fast::FixedState>,
    /// Those that were right, fastest first.
    pub(crate) right: Vec<(f64, Spot)>,
    /// Those that failed, in the order they did.
    pub(crate) failed: Vec<Spot>,
    /// How many were asked because they were good elsewhere.
    pub(crate) priors: usize,
    /// What a whole record from elsewhere says.
    pub(crate) hints: Hints,
    pub(crate) rng: fastrand::Rng,
}

impl Seen {
    pub(crate) fn is_new(&self, spot: Spot) -> bool {
        !self.text.contains_key(&spot)
    }

    /// What became of a spot; `None` when it was never asked.
    pub(crate) fn state_of(&self, spot: Spot) -> Option<SpotState> {
        self.text.get(&spot).copied()
    }

    /// Trials asked for so far.
    pub(crate) fn asked(&self) -> usize {
        self.text.len()
    }

    /// A candidate that was not asked yet, each as likely as the other; `None` when all were.
    pub(crate) fn random(&mut self) -> Option<Spot> {
        if self.text.len() as u64 >= self.ground.len() {
            return None;
        }
        for _ in 0..64 {
            let spot = self.ground.random(&mut self.rng)?;
            if self.is_new(spot) {
                return Some(spot);
            }
        }
        // Nearly all were asked: the next one that was not.
        let start = self.ground.random(&mut self.rng)?;
        self.ground.from(start).find(|spot| self.is_new(*spot))
    }

    /// New spots next to one, in random order.
    pub(crate) fn new_neighbours(&mut self, spot: Spot) -> Vec<Spot> {
        let mut near = Vec::new();
        if let Some(place) = self.ground.place(spot) {
            self.ground.neighbours(&place, |_, other| near.push(other));
        }
        near.retain(|other| self.is_new(*other));
        self.rng.shuffle(&mut near);
        near
    }
}

/// One rule of searching: where next, and what to make of an outcome.
pub(crate) trait WalkRule: Send {
    /// A spot that was not asked yet; where the rule has none the walk goes on at random. It never waits for an
    /// outcome: some candidates are asked together, and of some nothing is ever told.
    fn next(&mut self, seen: &mut Seen) -> Option<Spot>;

    /// What became of a spot: its time, or `None` where it failed.
    fn learn(&mut self, spot: Spot, time: Option<f64>, seen: &mut Seen) {
        let _ = (spot, time, seen);
    }
}

/// A search that follows one rule.
pub(crate) struct Walk<R> {
    rule: R,
    seen: Seen,
    /// Candidates to ask before the rule has its say, the last first: what is known from elsewhere (`true`), then each
    /// arm's default.
    first: Vec<(Candidate, bool)>,
    /// How many may be asked at once: more are not worth it, as each outcome teaches.
    together: usize,
}

impl<R: WalkRule> Walk<R> {
    /// A walk over all configs of these arms.
    pub(crate) fn new(rule: R, arms: Vec<Arm>, seed: u64) -> Self {
        let seen = Seen {
            ground: Ground::new(arms),
            text: HashMap::default(),
            right: Vec::new(),
            failed: Vec::new(),
            priors: 0,
            hints: Hints::default(),
            rng: fastrand::Rng::with_seed(seed),
        };
        Walk { rule, seen, first: Vec::new(), together: 8 }
    }

    /// This walk, with candidates to ask before all others.
    pub(crate) fn after(mut self, priors: Vec<Candidate>, defaults: Vec<Candidate>) -> Self {
        let priors = priors.into_iter().map(|c| (c, true));
        self.first = priors.chain(defaults.into_iter().map(|c| (c, false))).collect();
        self.first.reverse();
        self
    }

    /// This walk, with what was measured elsewhere at hand.
    pub(crate) fn knowing(mut self, elsewhere: &[(Candidate, f64)]) -> Self {
        self.seen.hints = Hints::new(&self.seen.ground, elsewhere);
        self
    }

    fn next(&mut self) -> Option<Spot> {
        while let Some((candidate, donor)) = self.first.pop() {
            // What is known from elsewhere may not be legal here.
            let spot = self.seen.ground.find(&candidate);
            if let Some(spot) = spot.filter(|s| self.seen.is_new(*s)) {
                self.seen.priors += usize::from(donor);
                return Some(spot);
            }
        }
        let next = self.rule.next(&mut self.seen).filter(|spot| self.seen.is_new(*spot));
        next.or_else(|| self.seen.random())
    }
}

impl<R: WalkRule> Search for Walk<R> {
    fn ask(&mut self, at_most: usize) -> Vec<Candidate> {
        let mut batch = Vec::new();
        while batch.len() < at_most.min(self.together) {
            let Some(spot) = self.next() else { break };
            self.seen.text.insert(spot, SpotState::Asked);
            batch.extend(self.seen.ground.candidate(spot));
        }
        batch
    }

    fn ask_early(&mut self, at_most: usize) -> Vec<Candidate> {
        self.ask(at_most)
    }

    fn tell(&mut self, trial: &Trial) {
        let Some(spot) = self.seen.ground.find(&trial.candidate) else { return };
        let time = trial.cost().filter(|t| t.is_finite() && *t > 0.0);
        let before = self.seen.text.insert(spot, time.map_or(SpotState::Failed, SpotState::Time));
        let seen = &mut self.seen;
        match before {
            Some(SpotState::Time(_)) => seen.right.retain(|r| r.1 != spot),
            Some(SpotState::Failed) => seen.failed.retain(|f| *f != spot),
            _ => {}
        }
        match time {
            Some(time) => {
                let at = seen.right.partition_point(|r| r.0 <= time);
                seen.right.insert(at, (time, spot));
            }
            None => seen.failed.push(spot),
        }
        // Finalists are measured again and again: only the first time is news.
        if matches!(before, None | Some(SpotState::Asked)) {
            self.rule.learn(spot, time, seen);
        }
    }
}
