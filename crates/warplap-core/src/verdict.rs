//! Who won, by how much, and how surely. A Race and the facts of its contenders come in; a Verdict goes out.

use serde::{Deserialize, Serialize};

use crate::candidate::{Candidate, Trial};
use crate::measure::{Ended, Lane, Measurement, Race, RacePlan};

/// Pooled spread between rounds, or half the winner's interval, above which a machine is called noisy: nobody should read
/// "clean" beside a time that is not known.
pub const NOISY_ABOVE: f64 = 0.05;

/// Errors closer than this factor count as equal: between two right kernels, the largest error over random inputs
/// scatters by nearly that much from one draw to the next.
pub const ERRORS_DIFFER_BY: f64 = 2.0;

/// Share of `eps` a tie-break may cost by the measured gap; the rest is room for that measurement's own error.
const TIE_BREAK_COSTS: f64 = 0.3;

/// How much a verdict can be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Grade {
    /// Quiet machine, the race ended by its own rule.
    Clean,
    /// The race ended by its own rule on a noisy machine.
    Noisy,
    /// Other work was running on the device.
    Contended,
    /// The budget or the user ended the race before its rule did.
    Capped,
}

impl Grade {
    /// One word for tables.
    pub fn word(self) -> &'static str {
        match self {
            Grade::Clean => "clean",
            Grade::Noisy => "noisy",
            Grade::Contended => "contended",
            Grade::Capped => "capped",
        }
    }
}

/// Who won, by how much, how surely.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// The winner.
    pub winner: Candidate,
    /// Its median time in microseconds.
    pub median_us: f64,
    /// The confidence interval of that median.
    pub ci_us: [f64; 2],
    /// The second best, where there was one.
    pub runner_up: Option<Candidate>,
    /// How much slower the second best was (0.05 = 5 %).
    pub margin: Option<f64>,
    /// Survivors that could not be told from the winner within `eps`.
    pub ties: Vec<Candidate>,
    /// The race's indifference: differences below it do not matter.
    pub eps: f64,
    /// 1 - delta: the chance that the winner is within `eps` of the best. 0 where a capped race promises nothing.
    pub confidence: f64,
    /// How much this can be trusted.
    pub grade: Grade,
    /// Rounds run.
    pub rounds: u32,
    /// Launches timed, over all candidates.
    pub launches: u64,
}

impl Verdict {
    /// Whether another candidate could have won as well.
    pub fn is_tie(&self) -> bool {
        !self.ties.is_empty()
    }
}

/// What the deciding knows of a lane besides its times.
#[derive(Clone, Debug, PartialEq)]
pub struct Contender {
    /// Who ran in the lane.
    pub candidate: Candidate,
    /// The largest error of its verification.
    pub error: f64,
    /// Bytes it needs besides its arguments.
    pub workspace: u64,
    /// Its variant's priority, higher is better.
    pub priority: u8,
    /// Whether it is the stored winner.
    pub incumbent: bool,
}

/// Who won: the race's leader, or one of those that tie with it. Among them an incumbent stays; then a clearly lower
/// error, a smaller workspace, a higher priority and the name decide, in this order. `contenders` are in the order of
/// the lanes; `None` when nobody finished.
pub fn decide(race: &Race, contenders: &[Contender], plan: &RacePlan, contended: bool) -> Option<Verdict> {
    let leader = race.leader?;
    let in_front: Vec<usize> = std::iter::once(leader).chain(race.ties.iter().copied()).collect();
    let winner = break_tie(race, contenders, &in_front, plan.eps)?;
    let Some(Lane::Measured(measured)) = race.lanes.get(winner) else { return None };
    let runner_up = if winner == leader { race.runner_up } else { Some(leader) };
    let name = |lane: usize| contenders.get(lane).map(|c| c.candidate.clone());
    let gap = |lane: usize| race.gaps.get(lane).copied().flatten();
    let by_rule = race.ended == Ended::ByRule;
    Some(Verdict {
        winner: name(winner)?,
        median_us: measured.median_us,
        ci_us: measured.ci_us,
        runner_up: runner_up.and_then(name),
        margin: runner_up.and_then(|r| Some((1.0 + gap(r)?) / (1.0 + gap(winner)?) - 1.0)),
        ties: in_front.iter().filter(|&&l| l != winner).filter_map(|&l| name(l)).collect(),
        eps: plan.eps,
        confidence: if by_rule { 1.0 - plan.delta } else { 0.0 },
        grade: grade(race, measured, contended),
        rounds: race.rounds,
        launches: race.launches,
    })
}

/// Every lane's candidate with what became of it. `candidates` are in the order of the lanes.
pub fn trials(race: &Race, candidates: &[Candidate]) -> Vec<Trial> {
    candidates
        .iter()
        .zip(&race.lanes)
        .map(|(candidate, lane)| Trial { candidate: candidate.clone(), outcome: lane.clone() })
        .collect()
}

fn break_tie(race: &Race, contenders: &[Contender], in_front: &[usize], eps: f64) -> Option<usize> {
    let known: Vec<(usize, &Contender)> = in_front.iter().filter_map(|&l| Some((l, contenders.get(l)?))).collect();
    if let Some((lane, _)) = known.iter().find(|(_, c)| c.incumbent) {
        return Some(*lane);
    }
    let near = |lane: usize| race.gaps.get(lane).copied().flatten().is_some_and(|g| g <= TIE_BREAK_COSTS * eps);
    let near: Vec<(usize, &Contender)> =
        known.into_iter().filter(|(l, _)| Some(*l) == race.leader || near(*l)).collect();
    let error = |c: &Contender| if c.error.is_nan() { f64::INFINITY } else { c.error };
    // Measured against the lowest, not pairwise: "differs by more than a factor" is no order among three.
    let lowest = near.iter().map(|(_, c)| error(c)).fold(f64::INFINITY, f64::min);
    near.into_iter()
        .filter(|(_, c)| error(c) <= ERRORS_DIFFER_BY * lowest)
        .min_by_key(|(_, c)| (c.workspace, u8::MAX - c.priority, c.candidate.to_string(), &c.candidate.source))
        .map(|(lane, _)| lane)
}

fn grade(race: &Race, winner: &Measurement, contended: bool) -> Grade {
    let wide = (winner.ci_us[1] - winner.ci_us[0]) / 2.0 > NOISY_ABOVE * winner.median_us;
    match race.ended {
        Ended::Capped => Grade::Capped,
        Ended::ByRule if contended => Grade::Contended,
        Ended::ByRule if wide || race.sigma > NOISY_ABOVE => Grade::Noisy,
        Ended::ByRule => Grade::Clean,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::candidate::SourceHash;
    use crate::space::Config;

    fn contender(name: &str) -> Contender {
        let source = SourceHash(String::new());
        let candidate = Candidate { variant: name.into(), config: Config::new(), source };
        Contender { candidate, error: 1e-6, workspace: 0, priority: 1, incumbent: false }
    }

    /// A finished race whose lanes are behind the first by these gaps, all of them ties.
    fn tied(gaps: &[f64]) -> Race {
        let lane = |g: &f64| Lane::Measured(Measurement { median_us: 100.0 * (1.0 + g), ..Measurement::default() });
        Race {
            lanes: gaps.iter().map(lane).collect(),
            leader: Some(0),
            ties: (1..gaps.len()).collect(),
            runner_up: (gaps.len() > 1).then_some(1),
            margin: gaps.get(1).copied(),
            gaps: gaps.iter().map(|g| Some(*g)).collect(),
            rounds: 4,
            launches: 12,
            ended: Ended::ByRule,
            sigma: 0.01,
        }
    }

    fn winner(race: &Race, contenders: &[Contender]) -> String {
        decide(race, contenders, &RacePlan::default(), false).unwrap().winner.variant
    }

    #[test]
    fn a_tie_keeps_the_incumbent() {
        let mut all = [contender("a"), contender("b"), contender("c")];
        all[2].incumbent = true;
        all[2].workspace = 1 << 30;
        let verdict = decide(&tied(&[0.0, 0.001, 0.015]), &all, &RacePlan::default(), false).unwrap();
        assert_eq!((verdict.winner.variant.as_str(), verdict.ties.len()), ("c", 2));
        assert_eq!(verdict.runner_up.unwrap().variant, "a");
        assert!(verdict.margin.unwrap() < 0.0, "the runner-up was the faster one, and the margin says so");
    }

    #[test]
    fn a_tie_goes_by_error_workspace_priority_and_name() {
        let race = tied(&[0.0, 0.001, 0.0025]);
        let plain = || [contender("c"), contender("b"), contender("a")];
        assert_eq!(winner(&race, &plain()), "a");
        let mut all = plain();
        all[1].priority = 2;
        assert_eq!(winner(&race, &all), "b");
        all[0].workspace = 8;
        all[1].workspace = 4;
        assert_eq!(winner(&race, &all), "a");
        all[2].error = 3e-6;
        assert_eq!(winner(&race, &all), "b");
        all[2].error = 1.9e-6;
        assert_eq!(winner(&race, &all), "a");
        all[2].error = f64::NAN;
        assert_eq!(winner(&race, &all), "b");
    }

    #[test]
    fn a_tie_break_costs_less_than_eps() {
        assert_eq!(winner(&tied(&[0.0, 0.009]), &[contender("b"), contender("a")]), "b");
    }

    #[test]
    fn the_grade_names_the_worst_that_happened() {
        let all = [contender("a")];
        let of = |race: &Race, contended| decide(race, &all, &RacePlan::default(), contended).unwrap().grade;
        let mut race = tied(&[0.0]);
        assert_eq!(of(&race, false), Grade::Clean);
        race.sigma = 0.06;
        assert_eq!(of(&race, false), Grade::Noisy);
        assert_eq!(of(&race, true), Grade::Contended);
        race.ended = Ended::Capped;
        assert_eq!(of(&race, true), Grade::Capped);
    }

    #[test]
    fn a_time_that_is_not_known_is_never_clean() {
        let of = |half: f64| {
            let mut race = tied(&[0.0]);
            let ci_us = [100.0 - half, 100.0 + half];
            race.lanes[0] = Lane::Measured(Measurement { median_us: 100.0, ci_us, ..Measurement::default() });
            decide(&race, &[contender("a")], &RacePlan::default(), false).unwrap().grade
        };
        assert_eq!((of(4.9), of(5.1), of(49.0)), (Grade::Clean, Grade::Noisy, Grade::Noisy));
    }

    #[test]
    fn nobody_wins_without_a_leader_or_without_facts() {
        let mut race = tied(&[0.0]);
        assert_eq!(decide(&race, &[], &RacePlan::default(), false), None);
        race.leader = None;
        assert_eq!(decide(&race, &[contender("a")], &RacePlan::default(), false), None);
    }

    #[test]
    fn every_lane_becomes_a_trial() {
        let candidates = [contender("a").candidate, contender("b").candidate];
        let trials = trials(&tied(&[0.0, 0.1]), &candidates);
        assert_eq!(trials.len(), 2);
        assert_eq!(trials[1].candidate.variant, "b");
        assert!((trials[1].median_us().unwrap() - 110.0).abs() < 1e-9);
    }
}
