//! Who won, by how much, and how surely. A Race and the facts of its contenders come in; a Verdict goes out.

use crate::candidate::{Candidate, Trial};
use crate::measure::{Ended, Gap, HYSTERESIS, Lane, Measurement, Race, RacePlan};
pub use crate::records::verdict::{Grade, Verdict, WonBy};

/// Errors closer than this factor count as equal: between two right kernels, the largest error over random inputs
/// scatters by nearly that much from one draw to the next.
pub const ERRORS_DIFFER_BY: f64 = 2.0;

/// Share of `eps` a tie-break may cost by the measured gap; the rest is room for that measurement's own error.
const TIE_BREAK_COSTS: f64 = 0.3;

/// A confidence below this is none.
const LEAST_CONFIDENCE: f64 = 0.5;

/// Samples of the winner below which nothing is said to be sure.
const LEAST_SAMPLES: u32 = 5;

/// Says how sure it is by everyone's gap to the winner, and who ties or comes second by them.
pub(crate) fn weigh<'c>(
    verdict: &mut Verdict,
    gap_list: impl Iterator<Item = (&'c Candidate, Gap)>,
    doubt: Doubt,
    samples: u32,
) {
    let mut others: Vec<(&Candidate, Gap)> = gap_list.filter(|(c, _)| **c != verdict.winner).collect();
    others.sort_by(|a, b| a.1.ln.total_cmp(&b.1.ln).then_with(|| a.0.cmp(b.0)));
    let known = verdict.plus_minus() <= RacePlan::default().known_within && samples >= LEAST_SAMPLES;
    verdict.confidence = if known { confidence(others.iter().map(|(_, gap)| *gap), verdict.eps, doubt) } else { 0.0 };
    // The interval that is shown beside a gap is what says whether there is one.
    verdict.ties = others.iter().filter(|(_, gap)| gap.behind().is_tie()).map(|(c, _)| (*c).clone()).collect();
    if let Some((second, gap)) = others.first() {
        (verdict.runner_up, verdict.margin) = (Some((*second).clone()), Some(gap.behind().by));
    }
}

/// What samples cannot take away.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Doubt {
    /// The chance to be wrong that a race may take.
    pub(crate) delta: f64,
    /// How far a kernel's time in this process is from its time in the next: see
    /// [`Device::scatter`](crate::device::Device::scatter).
    pub(crate) scatter: f64,
}

/// The chance that nobody is ahead of the winner by more than `eps`: what is left of the others' chances, added up.
/// No more than 1 - delta is ever said, and what is little is not said at all.
fn confidence(gap_list: impl Iterator<Item = Gap>, eps: f64, doubt: Doubt) -> f64 {
    // Both sides of a gap scatter.
    let elsewhere = Gap { error: doubt.scatter * std::f64::consts::SQRT_2, ..Gap::NONE };
    let chances: f64 = gap_list.map(|gap| gap.and(elsewhere).chance_ahead(eps.ln_1p())).sum();
    let sure = (1.0 - chances).min(1.0 - doubt.delta);
    if sure >= LEAST_CONFIDENCE { sure } else { 0.0 }
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
    let Some(Lane::Measured(measured)) = race.contestants.get(winner) else { return None };
    let name = |lane: usize| contenders.get(lane).map(|c| c.candidate.clone());
    let won_by = if winner == leader { WonBy::Time } else { reason(contenders.get(leader)?, contenders.get(winner)?) };
    let mut verdict = Verdict {
        winner: name(winner)?,
        median_us: measured.median_us,
        ci_us: measured.ci_us,
        runner_up: None,
        margin: None,
        ties: Vec::new(),
        won_by,
        eps: if won_by == WonBy::Incumbent { plan.eps.max(HYSTERESIS) } else { plan.eps },
        confidence: 0.0,
        grade: grade(race, measured, plan, contended),
        rounds: race.rounds,
        launches: race.launches,
    };
    let gap_list = contenders.iter().enumerate().filter_map(|(lane, c)| Some((&c.candidate, race.gap(lane, winner)?)));
    // The contest weighs again at its end, where it knows the device.
    weigh(&mut verdict, gap_list, Doubt { delta: plan.delta, scatter: 0.0 }, measured.rounds);
    if contended {
        // Other work beside favours some candidates over others: what was seen then holds for then.
        verdict.confidence = 0.0;
    }
    Some(verdict)
}

/// What a winner has over the leader of its race.
fn reason(leader: &Contender, winner: &Contender) -> WonBy {
    match () {
        () if winner.incumbent => WonBy::Incumbent,
        () if error(leader) > ERRORS_DIFFER_BY * error(winner) => WonBy::Error,
        () if leader.workspace != winner.workspace => WonBy::Workspace,
        () if leader.priority != winner.priority => WonBy::Priority,
        () => WonBy::Name,
    }
}

fn error(contender: &Contender) -> f64 {
    if contender.error.is_nan() { f64::INFINITY } else { contender.error }
}

/// Every lane's candidate with what became of it. `candidates` are in the order of the lanes.
pub fn trials(race: &Race, candidates: &[Candidate]) -> Vec<Trial> {
    candidates
        .iter()
        .zip(&race.contestants)
        .map(|(candidate, lane)| Trial::new(candidate.clone(), lane.clone()))
        .collect()
}

fn break_tie(race: &Race, contenders: &[Contender], in_front: &[usize], eps: f64) -> Option<usize> {
    let known: Vec<(usize, &Contender)> = in_front.iter().filter_map(|&l| Some((l, contenders.get(l)?))).collect();
    if let Some((lane, _)) = known.iter().find(|(_, c)| c.incumbent) {
        return Some(*lane);
    }
    let near = |lane: usize| {
        race.leader.and_then(|leader| race.gap(lane, leader)).is_some_and(|g| g.ln.exp_m1() <= TIE_BREAK_COSTS * eps)
    };
    let near: Vec<(usize, &Contender)> =
        known.into_iter().filter(|(l, _)| Some(*l) == race.leader || near(*l)).collect();
    // Measured against the lowest, not pairwise: "differs by more than a factor" is no order among three.
    let lowest = near.iter().map(|(_, c)| error(c)).fold(f64::INFINITY, f64::min);
    near.into_iter()
        .filter(|(_, c)| error(c) <= ERRORS_DIFFER_BY * lowest)
        .min_by_key(|(_, c)| (c.workspace, u8::MAX - c.priority, c.candidate.to_string(), &c.candidate.source))
        .map(|(lane, _)| lane)
}

fn grade(race: &Race, winner: &Measurement, plan: &RacePlan, contended: bool) -> Grade {
    let wide = (winner.ci_us[1] - winner.ci_us[0]) / 2.0 > plan.known_within * winner.median_us;
    match race.ended {
        Ended::Capped => Grade::Capped,
        Ended::ByRule if contended => Grade::Contended,
        Ended::ByRule if wide => Grade::Noisy,
        Ended::ByRule => Grade::Clean,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::candidate::SourceHash;
    use crate::measure::Placing;
    use crate::space::Config;

    fn contender(name: &str) -> Contender {
        let source = SourceHash(String::new());
        let candidate = Candidate { variant: name.into(), config: Config::new(), source };
        Contender { candidate, error: 1e-6, workspace: 0, priority: 1, incumbent: false }
    }

    /// A finished race whose lanes are behind the first by these gaps, all of them ties.
    fn tied(gap_list: &[f64]) -> Race {
        let lane = |g: &f64| Lane::Measured(Measurement { median_us: 100.0 * (1.0 + g), ..Measurement::default() });
        Race {
            contestants: gap_list.iter().map(lane).collect(),
            leader: Some(0),
            ties: (1..gap_list.len()).collect(),
            runner_up: (gap_list.len() > 1).then_some(1),
            margin: gap_list.get(1).copied(),
            places: gap_list.iter().map(|g| Some(Placing::sure(g.ln_1p()))).collect(),
            rounds: 4,
            launches: 12,
            ended: Ended::ByRule,
            sigma: 0.01,
            floor: None,
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
        assert_eq!((verdict.runner_up.as_ref().unwrap().variant.as_str(), verdict.margin), ("a", Some(0.0)));
        assert_eq!((verdict.won_by, verdict.eps), (WonBy::Incumbent, HYSTERESIS), "a tie is shown with its reason");
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
        assert_eq!(of(&race, false), Grade::Clean, "what counts is how well the time is known");
        assert_eq!(of(&race, true), Grade::Contended);
        race.ended = Ended::Capped;
        assert_eq!(of(&race, true), Grade::Capped);
    }

    #[test]
    fn a_time_that_is_not_known_is_never_clean() {
        let of = |half: f64| {
            let mut race = tied(&[0.0]);
            let ci_us = [100.0 - half, 100.0 + half];
            race.contestants[0] = Lane::Measured(Measurement { median_us: 100.0, ci_us, ..Measurement::default() });
            decide(&race, &[contender("a")], &RacePlan::default(), false).unwrap().grade
        };
        assert_eq!((of(4.9), of(5.1), of(49.0)), (Grade::Clean, Grade::Noisy, Grade::Noisy));
    }

    #[test]
    fn a_confidence_is_said_where_samples_carry_it() {
        let sure = |error: f64, half: f64, rounds: u32| {
            let mut race = tied(&[0.0, 0.02]);
            race.places[1] = Some(Placing { variance: error * error, ..Placing::sure(0.02) });
            let ci_us = [100.0 - half, 100.0 + half];
            race.contestants[0] =
                Lane::Measured(Measurement { median_us: 100.0, ci_us, rounds, ..Measurement::default() });
            race.ties.clear();
            decide(&race, &[contender("a"), contender("b")], &RacePlan::default(), false).unwrap().confidence
        };
        assert_eq!(sure(0.001, 1.0, 8), 0.99, "never more than was asked for");
        assert!((0.80..0.90).contains(&sure(0.03, 1.0, 8)), "{}", sure(0.03, 1.0, 8));
        assert_eq!((sure(0.001, 6.0, 8), sure(0.001, 1.0, 4)), (0.0, 0.0), "a time that is not known carries none");
        let beside = decide(&tied(&[0.0]), &[contender("a")], &RacePlan::default(), true).unwrap();
        assert_eq!((beside.grade, beside.confidence), (Grade::Contended, 0.0));
        let capped = Race { ended: Ended::Capped, ..tied(&[0.0]) };
        let beside = decide(&capped, &[contender("a")], &RacePlan::default(), true).unwrap();
        assert_eq!((beside.grade, beside.confidence), (Grade::Capped, 0.0));
        let ahead = Gap { ln: -0.1, ..Gap::NONE };
        assert_eq!(confidence([ahead].into_iter(), 0.01, Doubt { delta: 0.01, scatter: 0.0 }), 0.0);
    }

    #[test]
    fn where_times_scatter_between_processes_near_equals_leave_a_doubt_that_no_sample_takes_away() {
        let sure = |gap: f64, scatter: f64| {
            let known = Gap { ln: gap, error: 1e-4, ..Gap::NONE };
            confidence([known].into_iter(), 0.01, Doubt { delta: 0.01, scatter })
        };
        assert_eq!((sure(0.0, 0.0), sure(0.1, 0.012)), (0.99, 0.99));
        // Two standard deviations of 1.2 % each: 1 % is 0.59 of both together.
        assert!((0.70..0.74).contains(&sure(0.0, 0.012)), "{}", sure(0.0, 0.012));
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
