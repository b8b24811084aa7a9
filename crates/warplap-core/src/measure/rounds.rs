//! The race proper: live lanes come in, rounds are run and the slower lanes leave; where everyone stands goes out.

use super::place::Placing;
use super::plan::{HYSTERESIS, RacePlan, WINNER_SAMPLES};
use super::sheet::{LaneState, Sheet};
use super::standing::Standing;
use super::stats::POOLED_WEIGHT;

/// A lane over this many times the best after one launch leaves, if a launch also costs `SLOW_LAUNCH` seconds.
const FAR_BEHIND: f64 = 3.0;
/// Below this many seconds a second launch costs less than the doubt: a scheduler keeps a process waiting for 8 to 32 ms
/// on a loaded machine.
const SLOW_LAUNCH: f64 = 50e-3;
/// A lane leaves after two rounds if both its samples are over this many times both of the leader's, and after three
/// by the smaller factor. A tenant that strikes the best lane twice would cost it the race: what a tenant's slow-down
/// can explain is asked a third time.
const WELL_BEHIND: f64 = 1.6;
const BEHIND: f64 = 1.25;
/// Rounds before the statistics speak.
const FIRST_LOOK: usize = 4;

/// How a race ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// One lane was left, or the leader is within `eps` of the best at confidence 1 - `delta`.
    ByRule,
    /// The budget, the user or the cap on rounds came first.
    Capped,
}

/// The outcome of the race proper.
pub(super) struct RoundsOutcome {
    standing: Standing,
    /// Pooled robust sigma between rounds.
    pub(super) sigma: f64,
    pub(super) rounds: u32,
    pub(super) ended: Ended,
}

/// Rounds until the rule, the cap or `stop` ends them.
pub(super) fn run_rounds(sheet: &mut Sheet<'_>, plan: &RacePlan, rng: &mut fastrand::Rng) -> RoundsOutcome {
    let field = sheet.live().len();
    let ln_eps = plan.eps.ln_1p();
    let mut first_order = Vec::new();
    let mut n = 0;
    let mut ended = Ended::ByRule;
    loop {
        let mut order = sheet.live();
        if order.is_empty() || (order.len() == 1 && n >= 1 && field > 1) || sheet.owes() {
            break;
        }
        if n >= plan.max_rounds as usize {
            ended = Ended::Capped;
            break;
        }
        rng.shuffle(&mut order);
        if let (0, Some(incumbent)) = (n, plan.incumbent) {
            // A race stopped within its first round must still know what it would replace.
            order.sort_by_key(|&l| l != incumbent);
        }
        if n == 1 {
            // Half a round apart at least: one burst must not strike both launches the second round is judged by.
            let half = first_order.len() / 2;
            order.sort_by_key(|l| first_order.iter().position(|f| f == l).is_none_or(|p| p >= half));
        } else if n == 0 {
            first_order.clone_from(&order);
        }
        for lane in order {
            if let Some(x) = sheet.take(lane) {
                sheet.rounds[lane].push(x);
            }
        }
        if sheet.stopped {
            ended = Ended::Capped;
            break;
        }
        n += 1;
        match n {
            1 => drop_far_behind(sheet),
            2 => drop_behind(sheet, n, field, plan, WELL_BEHIND),
            3 => drop_behind(sheet, n, field, plan, BEHIND),
            _ if n >= FIRST_LOOK => {
                let standing = look(sheet, n, field, plan);
                drop_outpaced(sheet, &standing, plan);
                if field > 1 && standing.settled(ln_eps, plan.delta) {
                    break;
                }
            }
            _ => {}
        }
        if field == 1 && n >= WINNER_SAMPLES {
            break;
        }
    }
    let standing = look(sheet, n, field, plan);
    let sigma = sheet.sigma.unwrap_or(standing.sigma);
    RoundsOutcome { standing, sigma, rounds: n as u32, ended }
}

/// The standing of the live lanes. Stopped within the first round, it is that of those that were sampled.
fn look(sheet: &mut Sheet<'_>, n: usize, field: usize, plan: &RacePlan) -> Standing {
    let n = n.max(1);
    let mut live = sheet.live();
    live.retain(|&l| sheet.rounds[l].len() >= n);
    let standing = Standing::after(n, live, &sheet.rounds, plan.delta);
    if n > 1 && (field == 1 || standing.contestants.len() > 1) {
        sheet.sigma = Some(standing.sigma);
        for (&lane, &spread) in standing.contestants.iter().zip(&standing.spread) {
            sheet.spread[lane] = Some(spread);
        }
    }
    standing
}

fn drop_far_behind(sheet: &mut Sheet<'_>) {
    let live = sheet.live();
    let Some(&by) = live.iter().min_by(|&&a, &&b| sheet.rounds[a][0].total_cmp(&sheet.rounds[b][0])) else { return };
    let bar = sheet.rounds[by][0] + FAR_BEHIND.ln();
    for lane in live {
        let x = sheet.rounds[lane][0];
        if x > bar && sheet.is_slow(lane, SLOW_LAUNCH) {
            sheet.places[lane] = LaneState::Outpaced { by };
        }
    }
}

fn drop_behind(sheet: &mut Sheet<'_>, n: usize, field: usize, plan: &RacePlan, factor: f64) {
    let Some(by) = look(sheet, n, field, plan).leader() else { return };
    let bar = sheet.rounds[by].iter().copied().fold(f64::NEG_INFINITY, f64::max) + factor.ln();
    for lane in sheet.live() {
        if sheet.rounds[lane].iter().all(|&x| x > bar) {
            sheet.places[lane] = LaneState::Outpaced { by };
        }
    }
}

fn drop_outpaced(sheet: &mut Sheet<'_>, standing: &Standing, plan: &RacePlan) {
    let Some(by) = standing.leader() else { return };
    for (place, &lane) in standing.contestants.iter().enumerate() {
        if standing.at_least(place) > bar(lane, plan) {
            sheet.places[lane] = LaneState::Outpaced { by };
        }
    }
}

/// The lower bound of its gap above which a lane leaves.
pub(super) fn bar(lane: usize, plan: &RacePlan) -> f64 {
    if plan.incumbent == Some(lane) { HYSTERESIS.ln_1p() } else { 0.0 }
}

impl RoundsOutcome {
    /// Every lane's place behind the leader: survivors by the standing, those that left by the rounds they shared with
    /// the lane they left for, and that lane's own place.
    pub(super) fn places(&self, sheet: &Sheet<'_>) -> Vec<Option<Placing>> {
        let standing = &self.standing;
        let mut places = vec![None; sheet.places.len()];
        // Whoever is left alone has nobody beside it to learn the noise from: that of the rounds before counts.
        let alone = standing.contestants.len() == 1 && sheet.sigma.is_some();
        for (n, &lane) in standing.contestants.iter().enumerate() {
            let variance = if alone { standing.variance_by(self.sigma) } else { standing.variance(n) };
            let freedom = standing.freedom.max(POOLED_WEIGHT + f64::from(self.rounds));
            places[lane] = Some(Placing { at: standing.gap_list[n], variance, freedom, reach: standing.reach(n) });
        }
        // Who left last is behind a survivor, who left before is behind one of those: a pass each at most.
        for _ in 0..places.len() {
            let mut changed = false;
            for (lane, state) in sheet.places.iter().enumerate() {
                if let (LaneState::Outpaced { by }, None) = (state, places[lane]) {
                    let behind = Placing::paired(&sheet.paired(lane, *by), self.sigma);
                    places[lane] =
                        places[*by].zip(behind).map(|(p, b): (Placing, Placing)| Placing { at: p.at + b.at, ..b });
                    changed |= places[lane].is_some();
                }
            }
            if !changed {
                break;
            }
        }
        places
    }
}
