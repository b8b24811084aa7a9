//! A mind: a Gaussian process of the trials it knows says where the next gain is to be expected.
//!
//! It looks at the neighbours of the best spots and at a random sample, never at the whole space, so a step costs the
//! same in a space of a thousand configs and of a hundred million. Failures are a class of their own: the expected gain
//! counts only as far as a spot is unlike those that failed.
//!
//! Where a whole record from elsewhere hints at times, the process models what is left of the times beside a share of
//! the hints; the share is the one under which the trials so far are most probable, and 0 is among those asked.

use crate::search::algorithms::gaussian::{Coded, Gaussian, Likeness, expected_gain};
use crate::search::ground::Spot;
use crate::search::hints::{dulled, standardised};
use crate::search::walk::Seen;

/// Random candidates before the first forecast.
const SAMPLE: usize = 10;
/// The best spots whose neighbours are looked at, and how many random spots besides.
const TOPS: usize = 3;
const ELSEWHERE: usize = 100;
/// Times a forecast is made from, two thirds of them the best: it keeps a step below a millisecond.
const POINTS: usize = 96;
/// Times the weights are learnt from, and until how many trials they are learnt anew.
const LEARNT_FROM: usize = 80;
const LEARNT_UNTIL: usize = 200;
/// Candidates whose deviation is computed in full at most.
const LOOKED_AT: usize = 40;
/// After so many trials without a gain every second one is a neighbour of the best: models have blind spots.
const STALLED: usize = 30;
/// How far hints from elsewhere may be believed, and how far they are until trials tell.
const TRUSTS: [f64; 5] = [0.0, 0.25, 0.5, 0.75, 1.0];
const FIRST_TRUST: f64 = 0.5;
/// Spots that are looked at because hints say that they are good.
const HINTED: usize = 40;

/// One model of a landscape, with the trials it is made from.
pub(crate) struct Mind {
    /// Who asked for a trial; the first mind knows those of all others too.
    pub(crate) number: usize,
    /// Trials it asked for.
    pub(crate) turns: usize,
    /// Trials of its own told since the last gain, and since the last one worth a word.
    stalled: usize,
    pub(crate) idle: usize,
    best: f64,
    /// The best time when a gain was last worth a word.
    mark: f64,
    likeness: Option<Likeness>,
    learnt_at: usize,
    near_turn: bool,
    /// How far it believes the hints.
    trust: f64,
}

impl Mind {
    pub(crate) fn new(number: usize) -> Self {
        let (best, mark) = (f64::INFINITY, f64::INFINITY);
        // Who begins afresh begins without anybody's word.
        let trust = if number == 0 { FIRST_TRUST } else { 0.0 };
        let likeness = None;
        Mind { number, turns: 0, stalled: 0, idle: 0, best, mark, likeness, learnt_at: 0, near_turn: false, trust }
    }

    /// Takes note of a time: of a trial of its own, or of one it is told of. Gains below `least`, as a logarithm, are
    /// not worth a word.
    pub(crate) fn note(&mut self, time: Option<f64>, own: bool, least: f64) {
        if own {
            self.stalled += 1;
            self.idle += 1;
        }
        let Some(time) = time.filter(|t| *t < self.best) else { return };
        self.best = time;
        if own {
            self.stalled = 0;
            if self.mark.ln() - time.ln() > least {
                (self.idle, self.mark) = (0, time);
            }
        } else {
            self.mark = time;
        }
    }

    /// New neighbours of the best spots, new spots from anywhere, and those that believed hints say are good, each
    /// once.
    fn candidates(seen: &mut Seen, right: &[(f64, Spot)], trust: f64) -> Vec<Spot> {
        let mut result = Vec::new();
        let tops: Vec<Spot> = right.iter().take(TOPS).map(|r| r.1).collect();
        for top in tops {
            if let Some(place) = seen.ground.place(top) {
                seen.ground.neighbours(&place, |_, spot| result.push(spot));
            }
        }
        result.retain(|spot| seen.is_new(*spot));
        for _ in 0..ELSEWHERE {
            result.extend(seen.random());
        }
        if trust > 0.0 {
            result.extend(seen.hints.order().iter().copied().filter(|s| seen.is_new(*s)).take(HINTED));
        }
        result.sort_unstable();
        result.dedup();
        result
    }

    /// A new neighbour of the best spot that has one.
    fn near(seen: &mut Seen, right: &[(f64, Spot)]) -> Option<Spot> {
        let tops: Vec<Spot> = right.iter().take(TOPS + 1).map(|r| r.1).collect();
        tops.into_iter().find_map(|top| seen.new_neighbours(top).pop())
    }

    /// The times to forecast from: the best, and a sample of the others.
    fn known(seen: &mut Seen, right: &[(f64, Spot)]) -> Vec<(f64, Spot)> {
        let mut known = right.to_vec();
        if known.len() > POINTS {
            let best = POINTS * 2 / 3;
            let mut others = known.split_off(best);
            seen.rng.shuffle(&mut others);
            known.extend(others.into_iter().take(POINTS - best));
        }
        known
    }

    /// Where next, by the right trials it knows, fastest first, and how many it knows in all.
    pub(crate) fn next(&mut self, seen: &mut Seen, right: &[(f64, Spot)], asked: usize) -> Option<Spot> {
        if asked < SAMPLE || right.len() < 3 {
            return seen.random();
        }
        if self.stalled >= STALLED {
            self.near_turn = !self.near_turn;
            if self.near_turn {
                return Self::near(seen, right);
            }
        }
        let known = Self::known(seen, right);
        let ground = &seen.ground;
        let mut likeness = self.likeness.take().unwrap_or_else(|| seen.hints.likeness(ground));
        let coded = |l: &Likeness, spot: Spot| ground.place(spot).map(|p| l.coded(&p));
        let points: Vec<Coded> = known.iter().filter_map(|k| coded(&likeness, k.1)).collect();

        let middle = right[(right.len() - 1) / 2].0;
        // What is left of the times when what was to be expected is taken out.
        let beside =
            |trust: f64| standardised(known.iter().map(|k| dulled(k.0, middle) - trust * seen.hints.at(k.1)).collect());
        let learns = asked >= self.learnt_at * 5 / 4 + 2 && asked < LEARNT_UNTIL;
        if learns && self.number == 0 && !seen.hints.is_empty() {
            let probable = |trust: f64| {
                let (times, _, deviation) = beside(trust);
                let evidence = Gaussian::new(&likeness, &points, &times)?.evidence;
                let before = (trust - FIRST_TRUST).powi(2) / 0.5;
                Some((evidence - times.len() as f64 * deviation.ln() - before, trust))
            };
            let best = TRUSTS.into_iter().filter_map(probable).max_by(|a, b| a.0.total_cmp(&b.0));
            self.trust = best.map_or(self.trust, |b| b.1);
        }
        let trust = self.trust;
        let (times, mean, deviation) = beside(trust);

        if learns {
            self.learnt_at = asked;
            // Some of the best and some of the others: both ends say which axes matter.
            let step = |i: usize| i * points.len() / LEARNT_FROM.min(points.len());
            let some: Vec<usize> = (0..LEARNT_FROM.min(points.len())).map(step).collect();
            let (x, y): (Vec<Coded>, Vec<f64>) = some.iter().map(|i| (points[*i].clone(), times[*i])).unzip();
            likeness.learn(&x, &y);
        }
        let failed: Vec<Coded> = seen.failed.iter().rev().take(POINTS).filter_map(|s| coded(&likeness, *s)).collect();
        let candidates = Self::candidates(seen, right, trust);
        let (ground, hints) = (&seen.ground, &seen.hints);
        let chosen = Gaussian::new(&likeness, &points, &times).and_then(|known| {
            let best = (dulled(right[0].0, middle) - mean) / deviation;
            // An upper bound of the gain is cheap: the exact one is computed only where it may be the largest.
            let mut hopes = Vec::with_capacity(candidates.len());
            for spot in candidates {
                let Some(place) = ground.place(spot) else { continue };
                let point = likeness.coded(&place);
                let mut forecast = known.forecast(&likeness, &point);
                forecast.mean += trust * hints.at(spot) / deviation;
                let alike: f64 = failed.iter().map(|f| likeness.of(f, &point).powi(2)).sum();
                let sound = 1.0 - alike / (alike + forecast.weight + 0.02);
                let hope = sound * expected_gain(best, forecast.mean, forecast.at_most);
                hopes.push((hope, sound, forecast.mean, spot, point));
            }
            hopes.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.3.cmp(&b.3)));
            let mut chosen: Option<(f64, Spot)> = None;
            for (hope, sound, mean, spot, point) in hopes.iter().take(LOOKED_AT) {
                if chosen.is_some_and(|(gain, _)| *hope <= gain) {
                    break;
                }
                let gain = sound * expected_gain(best, *mean, known.deviation(&likeness, point));
                if chosen.is_none_or(|(most, _)| gain > most) {
                    chosen = Some((gain, *spot));
                }
            }
            chosen.map(|c| c.1)
        });
        self.likeness = Some(likeness);
        chosen
    }
}
