//! Ranking: an edition comes in; those that were timed go out in the order that was decided, the winner first.
//!
//! The times shown are the winner's own and, of everyone else, the winner's times the gap: medians of different heats
//! are of different moods of the machine and would put losers above the winner.

use crate::records::candidate::Trial;
use crate::records::measurement::Measurement;
use crate::records::record::TuningRun;

/// One that was timed, as it is shown.
#[derive(Clone, Copy, Debug)]
pub struct Ranked<'e> {
    /// Who, and what became of it.
    pub trial: &'e Trial,
    /// What was measured.
    pub measurement: &'e Measurement,
    /// Whether it won.
    pub won: bool,
    /// Whether it could not be told from the winner.
    pub tie: bool,
    /// How much slower it was than the winner (0.05 = 5 %), by what was raced for; never below 0.
    pub behind: f64,
    /// The 95 % interval of that; records of earlier programs have none.
    pub ci: Option<[f64; 2]>,
    /// Its time in microseconds as it compares with the winner's.
    pub time_us: f64,
}

impl TuningRun {
    /// Everyone who was timed, in the order that was decided.
    pub fn ranked(&self) -> Vec<Ranked<'_>> {
        let winner = &self.verdict.winner;
        let own = self.trials.iter().find(|t| t.candidate == *winner).and_then(Trial::cost);
        let rank = |trial| {
            let measurement = Trial::measurement(trial)?;
            let won = trial.candidate == *winner;
            let plain = || own.map_or(0.0, |own| (measurement.raced_for() / own - 1.0).max(0.0));
            let behind = measurement.behind.as_deref().filter(|_| !won);
            let by = if won { 0.0 } else { behind.map_or_else(plain, |b| b.by) };
            // Where something else than time was raced for, the gap is one of that and not of times.
            let time_us = match measurement.cost {
                None => self.verdict.median_us * (1.0 + by),
                Some(_) => measurement.median_us,
            };
            let tie = !won && (self.verdict.ties.contains(&trial.candidate) || by == 0.0);
            Some(Ranked { trial, measurement, won, tie, behind: by, ci: behind.map(|b| b.ci), time_us })
        };
        let mut all: Vec<Ranked<'_>> = self.trials.iter().filter_map(rank).collect();
        all.sort_by(|a, b| (!a.won).cmp(&!b.won).then(a.behind.total_cmp(&b.behind)));
        all
    }
}

impl Ranked<'_> {
    /// How many times the winner's time it takes, with the 95 % interval of that, by the rounds that tell: those both ran
    /// in, or each with others in between. Nothing where there are none: times of different moments are no ratio.
    pub fn ratio(&self) -> Option<(f64, [f64; 2])> {
        if self.won {
            return Some((1.0, [1.0; 2]));
        }
        let ci = self.ci.filter(|_| self.measurement.cost.is_none())?;
        Some((1.0 + self.behind, ci.map(|end| 1.0 + end)))
    }

    /// Half the width of the gap's interval.
    pub fn plus_minus(&self) -> Option<f64> {
        self.ci.map(|[low, high]| (high - low) / 2.0)
    }
}
