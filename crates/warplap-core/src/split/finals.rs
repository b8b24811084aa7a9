//! The finals: what each card saw of the same candidates comes in; one verdict goes out.
//!
//! A card is to the finals what a round is to a race: a block. Everyone's gap is taken within a card, where all raced
//! interleaved, and how far the gaps of one pair lie apart from card to card is what a verdict over cards is unsure by.
//! The statistics are those of the race.

use std::collections::HashMap;

use super::GpuContest;
use crate::candidate::Candidate;
use crate::contest::verdict::{Contender, Grade, Verdict, decide};
use crate::measure::{Behind, Ended, Gap, Lane, Measurement, Placing, Race, RacePlan};
use crate::measure::{clip_mean, median, pooled_sigma};

/// Cards that finals need.
pub const FEWEST_CARDS: usize = 2;

/// What the finals say.
#[derive(Clone, Debug, PartialEq)]
pub struct FinalVerdict {
    /// Who won. Its times are those of the card `told`.
    pub verdict: Verdict,
    /// The heat whose times are told: the one in the middle.
    pub text: usize,
    /// How far everyone who was timed on every card is behind the winner.
    pub behind: HashMap<Candidate, Behind>,
    /// How much a candidate's place scatters from card to card.
    pub sigma: f64,
}

/// One who was timed on every card.
struct Finalist<'h> {
    candidate: &'h Candidate,
    /// By card, how far behind the winner there.
    gap_list: Vec<Gap>,
}

/// Decides by what was seen within each card; `None` where nobody was timed on all of them.
pub fn decided(contests: &[GpuContest], eps: f64) -> Option<FinalVerdict> {
    let field = field(contests);
    // A card's own level is taken out: its median over those who ran on all cards.
    let levels: Vec<f64> = (0..contests.len())
        .map(|card| median(&field.iter().map(|f| f.gap_list[card].ln).collect::<Vec<_>>()))
        .collect();
    let row = |f: &Finalist<'_>| f.gap_list.iter().zip(&levels).map(|(gap, level)| gap.ln - level).collect();
    let rows: Vec<Vec<f64>> = field.iter().map(row).collect();
    let sigma = pooled_sigma(&rows);
    let centres: Vec<f64> = rows.iter().map(|row| clip_mean(row, sigma)).collect();
    let leader = (0..field.len()).min_by(|a, b| centres[*a].total_cmp(&centres[*b]))?;
    let text = median_gpu(contests, field[leader].candidate)?;
    let places: Vec<Option<Placing>> = (0..field.len()).map(|lane| place(&field, lane, leader, sigma)).collect();
    let race = race(contests, &field, (leader, text), places, eps)?;
    let contenders: Vec<Contender> = field.iter().map(|f| contender(f.candidate)).collect();
    let contended = contests.iter().any(|gpu_contest| gpu_contest.verdict.grade == Grade::Contended);
    let plan = RacePlan { eps, ..RacePlan::default() };
    let mut verdict = decide(&race, &contenders, &plan, contended)?;
    let winner = field.iter().position(|f| *f.candidate == verdict.winner)?;
    for (lane, rival) in field.iter().enumerate() {
        if lane != winner && differs(&field, lane, winner, eps) && !verdict.ties.contains(rival.candidate) {
            verdict.ties.push(rival.candidate.clone());
        }
    }
    let behind = |(lane, f): (usize, &Finalist<'_>)| {
        let gap = if lane == winner { Gap::NONE } else { race.gap(lane, winner)? };
        Some((f.candidate.clone(), gap.behind()))
    };
    let behind = field.iter().enumerate().filter_map(behind).collect();
    Some(FinalVerdict { verdict, text, behind, sigma })
}

/// Those who were timed on every card, by name.
fn field(contests: &[GpuContest]) -> Vec<Finalist<'_>> {
    let gap_list: Vec<HashMap<&Candidate, Gap>> = contests.iter().map(GpuContest::gap_by_candidate).collect();
    let Some(first) = gap_list.first() else { return Vec::new() };
    let mut field: Vec<Finalist<'_>> = (first.keys())
        .filter_map(|candidate| {
            let gap_list = gap_list.iter().map(|card| card.get(candidate).copied()).collect::<Option<Vec<Gap>>>()?;
            Some(Finalist { candidate, gap_list })
        })
        .collect();
    field.sort_by(|a, b| a.candidate.cmp(b.candidate));
    field
}

/// The card whose time of a candidate is in the middle, among those where it stayed to the end. Of two it is the lower:
/// tenants only ever add time.
fn median_gpu(contests: &[GpuContest], candidate: &Candidate) -> Option<usize> {
    let time = |(card, gpu_contest): (usize, &GpuContest)| {
        let (measured, stayed) = gpu_contest.measured(candidate)?;
        Some((!stayed, measured.median_us, card))
    };
    let mut times: Vec<(bool, f64, usize)> = contests.iter().enumerate().filter_map(time).collect();
    times.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
    let stayed = times.iter().filter(|t| !t.0).count().max(1);
    times.get((stayed - 1) / 2).map(|t| t.2)
}

/// How far a lane is behind the leader over all cards. What the races on the cards are unsure by is the least doubt.
fn place(field: &[Finalist<'_>], lane: usize, leader: usize, sigma: f64) -> Option<Placing> {
    if lane == leader {
        return Some(Placing::sure(0.0));
    }
    let pairs = || field[lane].gap_list.iter().zip(&field[leader].gap_list).map(|(own, first)| own.less(*first));
    let place = Placing::paired(&pairs().map(|gap| gap.ln).collect::<Vec<_>>(), sigma)?;
    let cards = field[lane].gap_list.len() as f64;
    let within = pairs().map(|gap| gap.error.powi(2)).sum::<f64>() / cards.powi(2);
    Some(Placing { variance: place.variance.max(within), ..place })
}

/// Whether one is ahead of another on some card by more than `eps`, and behind it on another.
fn differs(field: &[Finalist<'_>], lane: usize, other: usize, eps: f64) -> bool {
    let gap_list: Vec<f64> =
        field[lane].gap_list.iter().zip(&field[other].gap_list).map(|(a, b)| a.ln - b.ln).collect();
    gap_list.iter().any(|gap| *gap < -eps.ln_1p()) && gap_list.iter().any(|gap| *gap > 0.0)
}

/// The finals as a race whose rounds are cards.
fn race(
    contests: &[GpuContest],
    field: &[Finalist<'_>],
    (leader, text): (usize, usize),
    places: Vec<Option<Placing>>,
    eps: f64,
) -> Option<Race> {
    let at = |lane: usize| places[lane].map_or(f64::INFINITY, |p| p.at);
    let mut others: Vec<usize> = (0..field.len()).filter(|lane| *lane != leader).collect();
    others.sort_by(|a, b| at(*a).total_cmp(&at(*b)));
    let first = places[leader]?;
    let tied = |lane: &usize| {
        let gap = places[*lane].map(|place| place.behind(&first));
        gap.is_some_and(|gap| gap.behind().is_tie()) || differs(field, *lane, leader, eps)
    };
    // Nobody's way is judged here: on the card that is told somebody may have left early.
    let lane = |f: &Finalist<'_>| {
        let seen: Option<&Measurement> = contests[text].measured(f.candidate).map(|m| m.0);
        Lane::Measured(seen.cloned().unwrap_or_default())
    };
    let capped = contests.iter().any(|gpu_contest| gpu_contest.verdict.grade == Grade::Capped);
    Some(Race {
        contestants: field.iter().map(lane).collect(),
        leader: Some(leader),
        ties: others.iter().copied().filter(tied).collect(),
        runner_up: others.first().copied(),
        margin: others.first().map(|lane| at(*lane).exp_m1()),
        rounds: contests.iter().map(|gpu_contest| gpu_contest.verdict.rounds).sum(),
        launches: contests.iter().map(|gpu_contest| gpu_contest.verdict.launches).sum(),
        ended: if capped { Ended::Capped } else { Ended::ByRule },
        sigma: 0.0,
        floor: None,
        places,
    })
}

/// Of errors, workspaces and priorities no card tells another: among equals the name decides, alike everywhere.
fn contender(candidate: &Candidate) -> Contender {
    Contender { candidate: candidate.clone(), error: 0.0, workspace: 0, priority: 0, incumbent: false }
}

#[cfg(test)]
mod tests {
    use super::super::screen::tests::gpu_contest;
    use super::*;

    fn names(of: &[Candidate]) -> Vec<&str> {
        of.iter().map(|c| c.variant.as_str()).collect()
    }

    #[test]
    fn who_is_ahead_on_every_card_wins_whatever_the_cards_are_worth() {
        let contests = [
            gpu_contest("a", &[("x", 100.0), ("y", 104.0), ("z", 120.0)], 1e-3),
            gpu_contest("b", &[("x", 130.0), ("y", 135.0), ("z", 156.5)], 1e-3),
        ];
        let decided = decided(&contests, 0.01).unwrap();
        let verdict = &decided.verdict;
        assert_eq!((verdict.winner.variant.as_str(), verdict.ties.len(), verdict.grade), ("x", 0, Grade::Clean));
        assert!((verdict.margin.unwrap() - 0.039).abs() < 0.002, "{verdict:?}");
        assert_eq!((decided.text, verdict.median_us), (0, 100.0), "a time is the time of one card");
        assert_eq!((verdict.rounds, verdict.launches), (40, 120));
        assert_eq!(decided.behind.len(), 3);
    }

    #[test]
    fn an_order_that_differs_between_cards_is_a_tie_and_costs_confidence() {
        let same = [("k1", 110.0), ("k2", 120.0), ("k3", 130.0), ("k4", 140.0)];
        let with = |x: f64, y: f64| [&[("x", x), ("y", y)], &same[..]].concat();
        let turned = [gpu_contest("a", &with(100.0, 103.0), 1e-3), gpu_contest("b", &with(101.9, 100.0), 1e-3)];
        let split = decided(&turned, 0.01).unwrap();
        assert_eq!((split.verdict.winner.variant.as_str(), names(&split.verdict.ties)), ("x", vec!["y"]));
        let agreed = [gpu_contest("a", &with(100.0, 103.0), 1e-3), gpu_contest("b", &with(100.0, 102.8), 1e-3)];
        let agreed = decided(&agreed, 0.01).unwrap();
        assert!(agreed.verdict.ties.is_empty() && agreed.verdict.confidence > split.verdict.confidence);
    }

    #[test]
    fn who_was_not_timed_on_every_card_cannot_win() {
        let contests = [
            gpu_contest("a", &[("x", 100.0), ("y", 50.0)], 1e-3),
            gpu_contest("b", &[("x", 100.0), ("z", 40.0)], 1e-3),
        ];
        assert_eq!(decided(&contests, 0.01).unwrap().verdict.winner.variant, "x");
        assert_eq!(
            decided(&[gpu_contest("a", &[("y", 1.0)], 1e-3), gpu_contest("b", &[("z", 1.0)], 1e-3)], 0.01),
            None
        );
        assert_eq!(decided(&[], 0.01), None);
    }

    #[test]
    fn the_worst_grade_of_a_card_is_the_grade_of_the_finals() {
        let mut contests = [gpu_contest("a", &[("x", 100.0)], 1e-3), gpu_contest("b", &[("x", 100.0)], 1e-3)];
        contests[1].verdict.grade = Grade::Contended;
        let verdict = decided(&contests, 0.01).unwrap().verdict;
        assert_eq!((verdict.grade, verdict.confidence), (Grade::Contended, 0.0));
        contests[0].verdict.grade = Grade::Capped;
        assert_eq!(decided(&contests, 0.01).unwrap().verdict.grade, Grade::Capped);
    }
}
