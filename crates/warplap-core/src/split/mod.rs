//! One key over several cards: a space is dealt into shares, each card races its own, the best of all meet on two cards
//! or more, and one verdict goes out.
//!
//! Cards of one model differ by more than a winner and its runner-up do, and not by one factor: what is bound by
//! arithmetic follows a card's clock, what is bound by memory does not. So times of two cards are never compared.
//!
//! 1. [`gate`]: a card that is off the median of its class screens nobody.
//! 2. [`deal`]: every share holds the same anchors; each card races its share as any contest is raced.
//! 3. [`screen`]: log-ratios to the anchors *rank*, and the best twelve go on.
//! 4. [`finals`]: those race together on two cards or more. The card is a block: only what was seen within one card
//!    counts, and an order that differs between cards is a tie.
//! 5. [`gather`]: all of it becomes what one record keeps. A time stays the time of one card; a trial says which.

pub mod deal;
pub mod finals;
pub mod gate;
pub mod gather;
pub mod screen;

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use crate::candidate::{Candidate, Outcome, Trial};
use crate::contest::verdict::{self, Contender, Verdict};
use crate::measure::{Gap, Measurement, Race, RacePlan};
use crate::model::roofline::Work;
use crate::record::Skipped;
use crate::search::Arm;

pub use deal::Share;
pub use gather::Gathered;

/// What of a space is raced.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// One of several shares, and the anchors that all of them have.
    Share(Share),
    /// These candidates, together.
    Finals(Vec<Candidate>),
}

impl Part {
    /// What of these arms is raced.
    pub(crate) fn of_arms(&self, arms: Vec<Arm>) -> Vec<Arm> {
        match self {
            Part::Share(share) => share.of_arms(arms),
            Part::Finals(who) => arms.into_iter().filter_map(|arm| only(arm, who)).collect(),
        }
    }

    /// The search of a part: nobody of the finals is left out.
    pub(crate) fn search<'s>(&self, asked: &'s str) -> &'s str {
        match self {
            Part::Share(_) => asked,
            Part::Finals(_) => "exhaustive",
        }
    }

    /// The seed of its search.
    pub(crate) fn seed(&self, seed: u64) -> u64 {
        match self {
            Part::Share(share) => share.seed(seed),
            Part::Finals(_) => seed,
        }
    }

    /// Whether it speaks for what no part can race.
    pub(crate) fn is_first(&self) -> bool {
        matches!(self, Part::Share(Share { nth: 0, .. }))
    }
}

/// Those of an arm that are named, as long as they are what they were.
fn only(arm: Arm, who: &[Candidate]) -> Option<Arm> {
    let own = who.iter().filter(|c| c.variant == arm.variant && c.source == arm.source);
    let indices: Vec<u128> = own.filter_map(|c| arm.index(&c.config)).collect();
    (!indices.is_empty()).then(|| arm.keep(indices))
}

/// What one card saw of a part: a contest among those who ran on it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GpuContest {
    /// The card.
    pub card: String,
    /// Who won there.
    pub verdict: Verdict,
    /// Everyone who was there, each with its gap to that winner where it was timed.
    pub trials: Vec<Trial>,
    /// What was not raced, and why.
    pub skipped: Vec<Skipped>,
    /// The useful work of the problem.
    pub work: Work,
    /// The roofline floor in microseconds it was judged against.
    pub floor_us: Option<f64>,
    /// Wall seconds it took.
    pub seconds: f64,
}

impl GpuContest {
    /// What a race on a card says; `None` where nobody finished. `contenders` are in the order of the lanes.
    pub fn of(card: &str, race: &Race, contenders: &[Contender], plan: &RacePlan) -> Option<GpuContest> {
        let verdict = verdict::decide(race, contenders, plan, false)?;
        let winner = contenders.iter().position(|c| c.candidate == verdict.winner)?;
        let candidates: Vec<Candidate> = contenders.iter().map(|c| c.candidate.clone()).collect();
        let behind = |(lane, c): (usize, &Candidate)| {
            let gap = if lane == winner { Gap::NONE } else { race.gap(lane, winner)? };
            Some((c.clone(), gap.behind()))
        };
        let behind = candidates.iter().enumerate().filter_map(behind).collect();
        let mut trials = verdict::trials(race, &candidates);
        trials.iter_mut().for_each(|trial| trial.place(&behind));
        let (skipped, work, floor_us) = (Vec::new(), Work::default(), race.floor.map(|f| f * 1e6));
        Some(GpuContest { card: card.to_string(), verdict, trials, skipped, work, floor_us, seconds: 0.0 })
    }

    /// How far everyone who was timed is behind the winner there.
    pub(crate) fn gap_by_candidate(&self) -> HashMap<&Candidate, Gap> {
        let gap = |t: &'_ Trial| Some(Gap::from(t.measurement()?.behind.as_deref()?));
        self.trials.iter().filter_map(|t| Some((&t.candidate, gap(t)?))).collect()
    }

    /// What was measured of a candidate, and whether it stayed to the end.
    pub(crate) fn measured(&self, candidate: &Candidate) -> Option<(&Measurement, bool)> {
        let trial = self.trials.iter().find(|t| t.candidate == *candidate)?;
        Some((trial.measurement()?, matches!(trial.outcome, Outcome::Measured(_))))
    }
}
