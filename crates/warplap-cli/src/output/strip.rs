//! A strip of samples in one line: the lower the mark, the faster the sample.

const MARKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// One mark a sample, from the fastest to twice the spread of the middle half above the median; what is beyond stands
/// at the top. More samples than `room` are shown by evenly spaced ones.
pub(crate) fn strip(samples: &[f64], room: usize) -> String {
    let mut sorted: Vec<f64> = samples.iter().copied().filter(|s| s.is_finite()).collect();
    sorted.sort_by(f64::total_cmp);
    let (Some(&low), false) = (sorted.first(), room == 0) else { return String::new() };
    let at = |share: f64| sorted[((sorted.len() - 1) as f64 * share) as usize];
    let high = (at(0.5) + 2.0 * (at(0.75) - at(0.25))).max(at(0.5) * 1.02);
    let step = samples.len().div_ceil(room).max(1);
    let mark = |s: &f64| {
        let share = if s.is_finite() { (s - low) / (high - low).max(f64::MIN_POSITIVE) } else { 1.0 };
        MARKS[((share * 7.0).round() as usize).min(7)]
    };
    samples.iter().step_by(step).map(mark).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fastest_is_lowest_and_an_outlier_does_not_flatten_the_rest() {
        let text = strip(&[10.0, 10.2, 10.4, 10.1, 99.0], 40);
        assert_eq!(text.chars().count(), 5);
        assert!(text.starts_with('▁') && text.ends_with('█'), "{text}");
        assert!(strip(&[], 40).is_empty() && strip(&[1.0], 0).is_empty());
        assert_eq!(strip(&vec![1.0; 100], 40).chars().count(), 34);
    }
}
