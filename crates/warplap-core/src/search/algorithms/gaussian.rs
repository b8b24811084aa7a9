//! A Gaussian process over the points of arms: what a time should be at a spot nobody has been at, and how surely.
//!
//! Points and standardised times come in; means and deviations go out. Two points are the more alike the fewer axes
//! differ, the nearer the values are on ordered axes, and the less those axes matter. How much each matters is learnt.

use crate::search::ground::{Ground, Standpoint};

/// A differing axis costs at least this share of its weight, however near the values are: one step may change code.
const JUMP: f64 = 0.3;

/// The weights are drawn towards 1 by this deviation of their logarithm, the noise towards `NOISE`.
const SPREAD: f64 = 1.5;
const NOISE: f64 = 0.01;

/// A point in the form distances are computed on.
#[derive(Clone, Debug)]
pub(crate) struct Coded {
    arm: usize,
    x: Vec<f64>,
}

/// How alike points are.
#[derive(Clone, Debug)]
pub(crate) struct Likeness {
    /// By arm and axis: the factor that brings a difference of value numbers to at most 1, and the axis' weight.
    axes: Vec<Vec<(f64, f64)>>,
    noise: f64,
}

impl Likeness {
    pub(crate) fn new(ground: &Ground) -> Self {
        let axis = |a: &crate::space::Axis| match (a.is_ordered(), a.values().len()) {
            (_, 0 | 1) => (0.0, 0.0),
            (true, n) => (1.0 / (n - 1) as f64, 1.0),
            (false, _) => (1.0, 1.0),
        };
        let axes = (0..ground.arms()).map(|arm| ground.axes(arm).iter().map(axis).collect()).collect();
        Likeness { axes, noise: NOISE }
    }

    pub(crate) fn coded(&self, place: &Standpoint) -> Coded {
        Coded { arm: place.arm, x: place.point.iter().map(|v| f64::from(*v)).collect() }
    }

    /// 1 for the same point, towards 0 with distance; 0 between variants.
    pub(crate) fn of(&self, a: &Coded, b: &Coded) -> f64 {
        if a.arm != b.arm {
            return 0.0;
        }
        let mut distance = 0.0;
        for ((a, b), (scale, weight)) in a.x.iter().zip(&b.x).zip(&self.axes[a.arm]) {
            if a != b {
                distance += weight * (JUMP + (1.0 - JUMP) * f64::min((a - b).abs() * scale, 1.0));
            }
        }
        (-distance).exp()
    }

    /// How probable the weights are before anything is seen, as a logarithm.
    fn prior(&self) -> f64 {
        let weights = self.axes.iter().flatten().filter(|a| a.1 > 0.0).map(|a| a.1.ln());
        let spread: f64 = weights.map(|l| -l * l / (2.0 * SPREAD * SPREAD)).sum();
        let noise = (self.noise / NOISE).ln();
        spread - noise * noise / 8.0
    }

    /// Learns weights and noise from times: each is doubled or halved where that makes the times more probable.
    pub(crate) fn learn(&mut self, points: &[Coded], times: &[f64]) {
        let probable = |l: &Likeness| Gaussian::new(l, points, times).map(|g| g.evidence + l.prior());
        let Some(mut best) = probable(self) else { return };
        let axes: Vec<(usize, usize)> =
            (0..self.axes.len()).flat_map(|arm| (0..self.axes[arm].len()).map(move |axis| (arm, axis))).collect();
        let axes: Vec<_> = axes.into_iter().filter(|(arm, axis)| self.axes[*arm][*axis].1 > 0.0).collect();
        for _ in 0..2 {
            for which in axes.iter().copied().map(Some).chain([None]) {
                for factor in [2.0, 0.5] {
                    let mut other = self.clone();
                    match which {
                        Some((arm, axis)) => other.axes[arm][axis].1 *= factor,
                        None => other.noise *= factor * factor,
                    }
                    if let Some(evidence) = probable(&other).filter(|e| *e > best) {
                        best = evidence;
                        *self = other;
                    }
                }
            }
        }
    }
}

/// What is known after some times were seen.
pub(crate) struct Gaussian<'p> {
    points: &'p [Coded],
    /// The lower triangle, row by row.
    factor: Vec<Vec<f64>>,
    alpha: Vec<f64>,
    /// How probable the times are, as a logarithm.
    pub(crate) evidence: f64,
    noise: f64,
}

/// What a spot should be like.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Forecast {
    pub(crate) mean: f64,
    /// At least as large as the deviation.
    pub(crate) at_most: f64,
    /// The sum of squared likenesses to the points that were seen.
    pub(crate) weight: f64,
}

impl<'p> Gaussian<'p> {
    /// `None` when the points cannot be told apart by numbers.
    pub(crate) fn new(likeness: &Likeness, points: &'p [Coded], times: &[f64]) -> Option<Self> {
        let n = points.len();
        let mut factor: Vec<Vec<f64>> = Vec::with_capacity(n);
        for i in 0..n {
            let mut row = Vec::with_capacity(i + 1);
            for (j, above) in factor.iter().enumerate() {
                let dot: f64 = row.iter().zip(above).map(|(a, b): (&f64, &f64)| a * b).sum();
                row.push((likeness.of(&points[i], &points[j]) - dot) / above[j]);
            }
            let rest = 1.0 + likeness.noise - row.iter().map(|v| v * v).sum::<f64>();
            if rest <= 1e-10 {
                return None;
            }
            row.push(rest.sqrt());
            factor.push(row);
        }
        let mut alpha = times.to_vec();
        for i in 0..n {
            let dot: f64 = factor[i][..i].iter().zip(&alpha).map(|(a, b)| a * b).sum();
            alpha[i] = (alpha[i] - dot) / factor[i][i];
        }
        let fit: f64 = alpha.iter().map(|v| v * v).sum();
        let volume: f64 = (0..n).map(|i| factor[i][i].ln()).sum();
        let evidence = -(n as f64) / 2.0 * (fit / n as f64).max(1e-12).ln() - volume;
        for i in (0..n).rev() {
            alpha[i] /= factor[i][i];
            let value = alpha[i];
            (0..i).for_each(|j| alpha[j] -= factor[i][j] * value);
        }
        Some(Gaussian { points, factor, alpha, evidence, noise: likeness.noise })
    }

    /// The mean at a point, and cheap bounds.
    pub(crate) fn forecast(&self, likeness: &Likeness, point: &Coded) -> Forecast {
        let (mut mean, mut nearest, mut weight) = (0.0, 0.0f64, 0.0);
        for (seen, alpha) in self.points.iter().zip(&self.alpha) {
            let like = likeness.of(seen, point);
            mean += like * alpha;
            nearest = nearest.max(like);
            weight += like * like;
        }
        // Knowing the nearest point alone leaves at least what knowing all of them leaves.
        let at_most = (1.0 - nearest * nearest / (1.0 + self.noise)).max(1e-6).sqrt();
        Forecast { mean, at_most, weight }
    }

    /// The deviation at a point.
    pub(crate) fn deviation(&self, likeness: &Likeness, point: &Coded) -> f64 {
        let mut solved: Vec<f64> = Vec::with_capacity(self.points.len());
        let mut left = 1.0;
        for (seen, row) in self.points.iter().zip(&self.factor) {
            let dot: f64 = row.iter().zip(&solved).map(|(a, b)| a * b).sum();
            let value = (likeness.of(seen, point) - dot) / row[solved.len()];
            left -= value * value;
            solved.push(value);
        }
        left.max(1e-6).sqrt()
    }
}

/// What is gained on average below `best`, where a value is normal with this mean and deviation.
pub(crate) fn expected_gain(best: f64, mean: f64, deviation: f64) -> f64 {
    let u = (best - mean) / deviation;
    let density = (-u * u / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt();
    (best - mean) * below(u, density) + deviation * density
}

/// The share of a standard normal below `u`, to seven digits.
fn below(u: f64, density: f64) -> f64 {
    let t = 1.0 / (1.0 + 0.231_641_9 * u.abs());
    let tail = density
        * t
        * (0.319_381_530 + t * (-0.356_563_782 + t * (1.781_477_937 + t * (-1.821_255_978 + t * 1.330_274_429))));
    if u > 0.0 { 1.0 - tail } else { tail }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::candidates::variant::Priority;
    use crate::search::tests::arm;

    fn line(points: &[u16]) -> (Likeness, Vec<Coded>) {
        let likeness = Likeness::new(&Ground::new(vec![arm("a", Priority::High, 11)]));
        let coded = points.iter().map(|v| likeness.coded(&Standpoint { arm: 0, point: vec![*v] })).collect();
        (likeness, coded)
    }

    #[test]
    fn a_forecast_meets_what_was_seen_and_is_unsure_elsewhere() {
        let (likeness, points) = line(&[0, 3, 10]);
        let known = Gaussian::new(&likeness, &points, &[1.0, -1.0, 0.5]).unwrap();
        let at = &points[1];
        assert!((known.forecast(&likeness, at).mean + 1.0).abs() < 0.05);
        let (_, others) = line(&[6]);
        assert!(known.deviation(&likeness, at) < 0.2 && known.deviation(&likeness, &others[0]) > 0.4);
        for other in points.iter().chain(&others) {
            assert!(known.deviation(&likeness, other) <= known.forecast(&likeness, other).at_most + 1e-9);
        }
    }

    #[test]
    fn an_axis_that_does_not_matter_loses_weight() {
        let space = crate::space::Space::single()
            .axis(crate::space::Axis::ints("matters", 0..6))
            .axis(crate::space::Axis::ints("does_not", 0..6));
        let source = crate::candidate::SourceHash::of(&["x"]);
        let arm = crate::search::Arm::new("a", source, Priority::High, space);
        let mut likeness = Likeness::new(&Ground::new(vec![arm]));
        let mut rng = fastrand::Rng::with_seed(5);
        let points: Vec<Vec<u16>> = (0..40).map(|_| vec![rng.u16(..6), rng.u16(..6)]).collect();
        let times: Vec<f64> = points.iter().map(|p| f64::from(p[0] % 3) - 1.0).collect();
        let coded: Vec<Coded> = points.into_iter().map(|point| likeness.coded(&Standpoint { arm: 0, point })).collect();
        likeness.learn(&coded, &times);
        assert!(likeness.axes[0][0].1 > 4.0 * likeness.axes[0][1].1, "{likeness:?}");
    }

    #[test]
    fn the_expected_gain_is_that_of_a_normal() {
        assert!((expected_gain(0.0, 0.0, 1.0) - 0.398_942).abs() < 1e-5);
        assert!((expected_gain(3.0, 0.0, 1e-3) - 3.0).abs() < 1e-6);
        assert!(expected_gain(-5.0, 0.0, 1.0) < 1e-6);
    }
}
