//! Robust statistics of small samples: logarithms of times come in, centres and spreads go out.
//!
//! Times are compared as logarithms: noise on a device is a factor, not a sum. Nothing here sees a value that is not
//! finite; the race rejects those at the door.

use super::student::upper_quantile;

/// No machine is quieter than this from round to round; a smaller estimate is luck of few samples.
pub(super) const SIGMA_FLOOR: f64 = 0.003;

/// Residuals count up to this many sigmas: a preempted launch moves the centre no further than a merely slow one.
pub(super) const CLIP: f64 = 2.5;

/// Weight, in samples, of the pooled spread in a lane's own.
pub(super) const POOLED_WEIGHT: f64 = 4.0;

/// From the median absolute deviation to the standard deviation of a normal distribution.
const MAD_TO_SIGMA: f64 = 1.4826;

/// The median; 0 of nothing.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => 0.0,
        n if n % 2 == 1 => sorted[n / 2],
        n => 0.5 * (sorted[n / 2 - 1] + sorted[n / 2]),
    }
}

/// The standard deviation of rows about their own medians, from the pooled median absolute deviation. Rows of `n`
/// values sit closer to their own median than to the true one: the factor makes up for it.
pub(crate) fn pooled_sigma(rows: &[Vec<f64>]) -> f64 {
    let n = rows.first().map_or(0, Vec::len);
    if n < 2 {
        return SIGMA_FLOOR;
    }
    let deviations: Vec<f64> = rows
        .iter()
        .flat_map(|row| {
            let centre = median(row);
            row.iter().map(move |v| (v - centre).abs())
        })
        .collect();
    let n = n as f64;
    (MAD_TO_SIGMA * median(&deviations) * (n / (n - 1.0)).sqrt()).max(SIGMA_FLOOR)
}

/// The median plus the mean of what is left, each residual clipped to `CLIP` sigmas: nearly as sharp as the mean on
/// clean samples, nearly as unmoved as the median by outliers. Of two middle values it starts from the lower, not from
/// between them: tenants only ever add time, and two samples of four are struck often.
pub(crate) fn clip_mean(values: &[f64], sigma: f64) -> f64 {
    if values.is_empty() {
        return 0.0;
    }
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let centre = sorted[(sorted.len() - 1) / 2];
    let limit = CLIP * sigma;
    centre + values.iter().map(|v| (v - centre).clamp(-limit, limit)).sum::<f64>() / values.len() as f64
}

/// A lane's variance: its own clipped sum of squares, leaning on the pooled sigma while it has few samples.
pub(super) fn leaning_variance(values: &[f64], sigma: f64) -> f64 {
    let centre = median(values);
    let limit = CLIP * sigma;
    let squares: f64 = values.iter().map(|v| (v - centre).clamp(-limit, limit).powi(2)).sum();
    (POOLED_WEIGHT * sigma * sigma + squares) / (POOLED_WEIGHT + (values.len() as f64 - 1.0).max(0.0))
}

/// The 95 % confidence interval of the median. From six samples on it is between two order statistics and assumes
/// nothing about the noise; below, no two of them reach 95 %, and it is a t interval leaning on `sigma`.
pub(super) fn median_interval(values: &[f64], sigma: f64) -> [f64; 2] {
    let n = values.len();
    let centre = median(values);
    if n < 6 {
        // 1.2533: how much wider the median scatters than the mean.
        let half = 1.2533
            * (own_variance(values, sigma) / n.max(1) as f64).sqrt()
            * upper_quantile(0.025, POOLED_WEIGHT + n as f64 - 1.0);
        return [centre - half, centre + half];
    }
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    // The largest rank whose binomial(n, 1/2) tail stays within 2.5 %.
    let (mut rank, mut tail, mut term) = (0, 0.0, 0.5f64.powi(n.min(1000) as i32));
    while rank < n / 2 {
        tail += term;
        if tail > 0.025 {
            break;
        }
        term *= (n - rank) as f64 / (rank + 1) as f64;
        rank += 1;
    }
    let rank = rank.max(1);
    [sorted[rank - 1], sorted[n - rank]]
}

/// A lane's variance without clipping: its interval is of times as they are, drift and all.
fn own_variance(values: &[f64], sigma: f64) -> f64 {
    let centre = median(values);
    let squares: f64 = values.iter().map(|v| (v - centre).powi(2)).sum();
    (POOLED_WEIGHT * sigma * sigma + squares) / (POOLED_WEIGHT + (values.len() as f64 - 1.0).max(0.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn normal(rng: &mut fastrand::Rng) -> f64 {
        (-2.0 * (1.0 - rng.f64()).ln()).sqrt() * (std::f64::consts::TAU * rng.f64()).cos()
    }

    #[test]
    fn the_median_is_the_middle_or_between_the_middle_two() {
        assert_eq!(median(&[]), 0.0);
        assert_eq!(median(&[3.0]), 3.0);
        assert_eq!(median(&[5.0, 1.0, 3.0]), 3.0);
        assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), 2.5);
    }

    #[test]
    fn the_pooled_sigma_finds_the_spread_in_spite_of_outliers() {
        let mut rng = fastrand::Rng::with_seed(7);
        let rows: Vec<Vec<f64>> = (0..200)
            .map(|i| {
                let outlier = |r: &mut fastrand::Rng| if r.f64() < 0.03 { 0.5 } else { 0.0 };
                (0..8).map(|_| i as f64 + 0.02 * normal(&mut rng) + outlier(&mut rng)).collect()
            })
            .collect();
        let sigma = pooled_sigma(&rows);
        assert!((sigma / 0.02 - 1.0).abs() < 0.15, "{sigma}");
        assert_eq!(pooled_sigma(&[]), SIGMA_FLOOR);
        assert_eq!(pooled_sigma(&[vec![1.0; 4]]), SIGMA_FLOOR);
    }

    #[test]
    fn the_clip_mean_is_the_mean_without_outliers_and_ignores_how_far_one_is() {
        assert!((clip_mean(&[1.0, 2.0, 3.0, 5.0], 10.0) - 2.75).abs() < 1e-12);
        let near = clip_mean(&[0.0, 0.0, 0.0, 0.0, 1.0], 0.01);
        let far = clip_mean(&[0.0, 0.0, 0.0, 0.0, 900.0], 0.01);
        assert_eq!(near, far);
        assert!((near - 0.005).abs() < 1e-12);
        assert!(clip_mean(&[0.0, 0.0, 0.5, 0.9], 0.01) < 0.02, "half of the samples struck");
    }

    #[test]
    fn the_interval_of_the_median_covers_it_nineteen_times_in_twenty() {
        let mut rng = fastrand::Rng::with_seed(3);
        for n in [3, 5, 6, 9, 25, 100] {
            let covered = (0..2000)
                .filter(|_| {
                    let values: Vec<f64> = (0..n).map(|_| 0.02 * normal(&mut rng)).collect();
                    let [low, high] = median_interval(&values, 0.02);
                    low <= 0.0 && 0.0 <= high
                })
                .count();
            assert!((1880..=1995).contains(&covered), "n = {n}: {covered} of 2000");
        }
    }
}
