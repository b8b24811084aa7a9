//! Gathering: the heats of a split space come in; the verdict and every trial, as one record keeps them, go out. A trial
//! says the card it ran on; who ran on several has the times of each, side by side.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde::{Deserialize, Serialize};

use super::{GpuContest, finals, screen};
use crate::candidate::{Candidate, GpuTime, Ran, Stage, Trial};
use crate::contest::SPENT;
use crate::contest::verdict::{Grade, Verdict};
use crate::measure::{Behind, Gap};
use crate::model::roofline::Work;
use crate::record::Skipped;

/// All that the cards found of one key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Gathered {
    /// Who won.
    pub verdict: Verdict,
    /// One trial for each candidate.
    pub trials: Vec<Trial>,
    /// What was not raced, and why.
    pub skipped: Vec<Skipped>,
    /// The useful work of the problem.
    pub work: Work,
    /// The lowest floor in microseconds that a card judged by.
    pub floor_us: Option<f64>,
    /// Wall seconds of all.
    pub seconds: f64,
}

/// Why heats make no record.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GatherError {
    /// The finals ran on too few cards.
    #[error("the finals were raced on {0} card(s): expected at least {least}", least = finals::FEWEST_CARDS)]
    Cards(usize),
    /// Nobody was right and timed on all cards of the finals.
    #[error("nobody was timed on every card of the finals")]
    Nobody,
}

impl Gathered {
    /// What shares and finals say together; the tuning took so many wall seconds.
    pub fn of(shares: &[GpuContest], last: &[GpuContest], eps: f64, seconds: f64) -> Result<Gathered, GatherError> {
        let cards: BTreeSet<&str> = last.iter().map(|gpu_contest| gpu_contest.card.as_str()).collect();
        if cards.len() < finals::FEWEST_CARDS {
            return Err(GatherError::Cards(cards.len()));
        }
        let finals::FinalVerdict { mut verdict, text, mut behind, sigma } =
            finals::decided(last, eps).ok_or(GatherError::Nobody)?;
        for (candidate, gap) in screened(shares, &verdict.winner, sigma) {
            behind.entry(candidate).or_insert(gap);
        }
        let skipped = skipped(shares);
        if skipped.iter().any(|s| s.reason == SPENT) {
            (verdict.grade, verdict.confidence) = (Grade::Capped, 0.0);
        }
        let mut trials = BTreeMap::new();
        // The heat that is told first: of who ran in several, its trial is the one that stays.
        let finals = std::iter::once(&last[text]).chain(last.iter());
        finals.for_each(|gpu_contest| take(&mut trials, gpu_contest, Stage::Finals));
        shares.iter().for_each(|gpu_contest| take(&mut trials, gpu_contest, Stage::Screened));
        let mut trials: Vec<Trial> = trials.into_values().collect();
        trials.iter_mut().for_each(|trial| trial.place(&behind));
        let contests = || shares.iter().chain(last);
        Ok(Gathered {
            verdict,
            trials,
            skipped,
            work: last[text].work,
            floor_us: contests().filter_map(|gpu_contest| gpu_contest.floor_us).min_by(f64::total_cmp),
            seconds,
        })
    }
}

/// How far those who were only screened are behind the winner, through the anchors; two cards are in between.
fn screened(shares: &[GpuContest], winner: &Candidate, sigma: f64) -> HashMap<Candidate, Behind> {
    let ranked = screen::ranked(shares);
    let Some((_, first)) = ranked.iter().find(|(candidate, _)| candidate == winner) else { return HashMap::new() };
    let first = *first;
    let between = Gap { error: sigma * std::f64::consts::SQRT_2, ..Gap::NONE };
    ranked.into_iter().map(|(candidate, gap)| (candidate, gap.less(first).and(between).behind())).collect()
}

/// Takes over a heat's trials: a new candidate's as it is, of one that is there the time on this card.
fn take(trials: &mut BTreeMap<Candidate, Trial>, gpu_contest: &GpuContest, stage: Stage) {
    for trial in &gpu_contest.trials {
        let Some(kept) = trials.get_mut(&trial.candidate) else {
            let ran = Ran { card: gpu_contest.card.clone(), stage, also: Vec::new() };
            trials.insert(trial.candidate.clone(), Trial { ran: Some(Box::new(ran)), ..trial.clone() });
            continue;
        };
        let (Some(ran), Some(measured)) = (&mut kept.ran, trial.measurement()) else { continue };
        let known = ran.stage != stage
            || ran.card == gpu_contest.card
            || ran.also.iter().any(|time| time.card == gpu_contest.card);
        if !known {
            let (card, median_us, ci_us) = (gpu_contest.card.clone(), measured.median_us, measured.ci_us);
            ran.also.push(GpuTime { card, median_us, ci_us });
        }
    }
}

/// What was left out by all shares, an entry for each variant and reason.
fn skipped(shares: &[GpuContest]) -> Vec<Skipped> {
    let mut all: Vec<Skipped> = Vec::new();
    for skip in shares.iter().flat_map(|gpu_contest| &gpu_contest.skipped) {
        let same = |s: &&mut Skipped| (&s.variant, &s.source, &s.reason) == (&skip.variant, &skip.source, &skip.reason);
        match all.iter_mut().find(same) {
            Some(known) => known.configs += skip.configs,
            None => all.push(skip.clone()),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::super::screen::tests::gpu_contest;
    use super::*;
    use crate::candidate::SourceHash;

    fn shares() -> [GpuContest; 2] {
        [
            gpu_contest("n1", &[("anchor", 100.0), ("x", 50.0), ("slow", 400.0)], 1e-3),
            gpu_contest("n2", &[("anchor", 110.0), ("y", 56.0), ("z", 300.0)], 1e-3),
        ]
    }

    fn last() -> [GpuContest; 2] {
        [gpu_contest("n1", &[("x", 50.0), ("y", 51.0)], 1e-3), gpu_contest("n2", &[("x", 55.0), ("y", 56.2)], 1e-3)]
    }

    #[test]
    fn every_candidate_has_one_trial_that_says_its_card_and_its_stage() {
        let all = Gathered::of(&shares(), &last(), 0.01, 3.0).unwrap();
        let ran = |name: &str| {
            let trial = all.trials.iter().find(|t| t.candidate.variant == name).unwrap();
            (trial, trial.ran.clone().unwrap())
        };
        assert_eq!((all.trials.len(), all.verdict.winner.variant.as_str(), all.seconds), (5, "x", 3.0));
        let (x, at) = ran("x");
        assert_eq!((at.card.as_str(), at.stage, at.also.len()), ("n1", Stage::Finals, 1));
        assert_eq!((x.median_us(), at.also[0].median_us), (Some(50.0), 55.0), "times of two cards stay apart");
        let (z, at) = ran("z");
        assert_eq!((at.card.as_str(), at.stage, z.median_us()), ("n2", Stage::Screened, Some(300.0)));
        // Through the anchors: z takes 300/110 of them, x takes 50/100.
        let by = z.measurement().unwrap().behind.as_ref().unwrap().by;
        assert!((by / (300.0 / 110.0 / 0.5 - 1.0) - 1.0).abs() < 0.01, "{by}");
        assert_eq!(ran("anchor").1.also.len(), 1);
    }

    #[test]
    fn finals_on_one_card_are_none_and_a_budget_that_ended_is_told() {
        let one = [last()[0].clone(), last()[0].clone()];
        assert_eq!(Gathered::of(&shares(), &one, 0.01, 1.0), Err(GatherError::Cards(1)));
        let none = [gpu_contest("a", &[("y", 1.0)], 1e-3), gpu_contest("b", &[("z", 1.0)], 1e-3)];
        assert_eq!(Gathered::of(&shares(), &none, 0.01, 1.0), Err(GatherError::Nobody));
        let mut cut = shares();
        for gpu_contest in &mut cut {
            let (variant, source, reason) = ("x".to_string(), SourceHash(String::new()), SPENT.to_string());
            gpu_contest.skipped.push(Skipped { variant, source, configs: 3, reason });
        }
        let all = Gathered::of(&cut, &last(), 0.01, 1.0).unwrap();
        assert_eq!((all.skipped.len(), all.skipped[0].configs, all.verdict.grade), (1, 6, Grade::Capped));
    }
}
