//! What whole graphs take, told from their parts: of sizes that were raced, times of parts and of wholes are known side
//! by side. What one was worth in the other, and how much that varied from size to size, says what a new size will take
//! and how far off that may be. Where the choice is clear by that, nobody need race. Nothing here knows a device.

use std::collections::BTreeMap;

/// Sizes of a graph that must have been raced before one is told without a race.
const FEWEST: usize = 2;

/// How far off the same thing is when it is measured twice.
const NOISE: f64 = 0.02;

/// How many times smaller or larger than what was measured a size may be.
const REACH: f64 = 4.0;

/// A size that was raced: seconds of the parts of every choice, and of all of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Size {
    /// What the parts of a choice take together, by its name.
    pub parts: BTreeMap<String, f64>,
    /// What it takes as a whole.
    pub wholes: BTreeMap<String, f64>,
}

/// Who is fastest without a race.
#[derive(Clone, Debug, PartialEq)]
pub struct Guess {
    /// Who.
    pub winner: String,
    /// What everyone will take, in seconds.
    pub seconds: BTreeMap<String, f64>,
    /// How far off that may be, as a share.
    pub off: f64,
    /// The sizes it was told from.
    pub sizes: usize,
}

/// Who of these choices, by what their parts take, is fastest, where what is known of other sizes says it beyond doubt.
pub fn guess(sizes: &[Size], parts: &BTreeMap<String, f64>) -> Option<Guess> {
    let text: BTreeMap<&str, (f64, f64)> = parts
        .iter()
        .map(|(name, seconds)| Some((name.as_str(), one(sizes, name, *seconds)?)))
        .collect::<Option<_>>()?;
    let (winner, (middle, off)) = text.iter().min_by(|a, b| a.1.0.total_cmp(&b.1.0))?;
    let slowest = middle * off.exp();
    if text.iter().any(|(name, (middle, off))| name != winner && middle * (-off).exp() <= slowest) {
        return None;
    }
    let most = text.values().map(|(_, off)| *off).fold(0.0, f64::max);
    let seconds = text.iter().map(|(name, (middle, _))| (name.to_string(), *middle)).collect();
    Some(Guess { winner: winner.to_string(), seconds, off: most.exp() - 1.0, sizes: sizes.len() })
}

/// What a choice will take and the logarithm of how far off that may be; `None` where nobody knows.
fn one(sizes: &[Size], name: &str, seconds: f64) -> Option<(f64, f64)> {
    let of = |size: &Size| Some((*size.parts.get(name)?, *size.wholes.get(name)?));
    let known: Vec<(f64, f64)> = sizes.iter().filter_map(of).collect();
    let is_time = |x: f64| x > 0.0 && x.is_finite();
    if known.len() < FEWEST || !is_time(seconds) || !known.iter().all(|(part, whole)| is_time(*part) && is_time(*whole))
    {
        return None;
    }
    let (least, most) = bounds(known.iter().map(|(part, _)| *part));
    if seconds < least / REACH || seconds > most * REACH {
        return None;
    }
    let worth: Vec<f64> = known.iter().map(|(part, whole)| (whole / part).ln()).collect();
    let (least, most) = bounds(worth.iter().copied());
    let mean = worth.iter().sum::<f64>() / worth.len() as f64;
    Some((seconds * mean.exp(), (most - least).max(NOISE)))
}

fn bounds(all: impl Iterator<Item = f64>) -> (f64, f64) {
    all.fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), x| (least.min(x), most.max(x)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(all: &[(&str, f64)]) -> BTreeMap<String, f64> {
        all.iter().map(|(name, seconds)| (name.to_string(), *seconds)).collect()
    }

    /// Sizes whose wholes are worth so many of their parts.
    fn raced(sizes: &[(f64, [f64; 2])]) -> Vec<Size> {
        let of = |(scale, worth): &(f64, [f64; 2])| Size {
            parts: named(&[("fused", 2.0 * scale), ("apart", 3.0 * scale)]),
            wholes: named(&[("fused", 2.0 * scale * worth[0]), ("apart", 3.0 * scale * worth[1])]),
        };
        sizes.iter().map(of).collect()
    }

    #[test]
    fn a_size_between_two_is_told_and_how_far_off_it_may_be() {
        let sizes = raced(&[(1.0, [0.9, 1.0]), (4.0, [0.99, 1.1])]);
        let guess = guess(&sizes, &named(&[("fused", 4.0), ("apart", 6.0)])).unwrap();
        assert_eq!((guess.winner.as_str(), guess.sizes), ("fused", 2));
        assert!((guess.seconds["fused"] - 4.0 * (0.9f64 * 0.99).sqrt()).abs() < 1e-9);
        assert!((guess.off - 0.1).abs() < 1e-9, "{}", guess.off);
    }

    #[test]
    fn what_is_measured_again_is_never_quite_the_same() {
        let same = raced(&[(1.0, [1.0, 1.0]), (2.0, [1.0, 1.0])]);
        assert!(guess(&same, &named(&[("fused", 3.00), ("apart", 3.05)])).is_none(), "one per cent is noise");
        let text = guess(&same, &named(&[("fused", 3.00), ("apart", 3.20)])).unwrap();
        assert!((text.off - NOISE.exp_m1()).abs() < 1e-9);
    }

    #[test]
    fn what_varied_too_much_is_not_told() {
        let sizes = raced(&[(1.0, [0.6, 1.0]), (2.0, [1.4, 1.0])]);
        assert!(guess(&sizes, &named(&[("fused", 2.0), ("apart", 3.0)])).is_none());
    }

    #[test]
    fn one_size_is_too_few_and_a_choice_that_nobody_raced_is_not_known() {
        let parts = named(&[("fused", 2.0), ("apart", 3.0)]);
        assert!(guess(&raced(&[(1.0, [1.0, 1.0])]), &parts).is_none());
        assert!(guess(&[], &parts).is_none() && guess(&[], &named(&[])).is_none());
        let sizes = raced(&[(1.0, [1.0, 1.0]), (2.0, [1.0, 1.0])]);
        assert!(guess(&sizes, &parts).is_some());
        assert!(guess(&sizes, &named(&[("fused", 2.0), ("apart", 3.0), ("new", 9.0)])).is_none());
        for wrong in [0.0, f64::NAN, f64::INFINITY] {
            assert!(guess(&sizes, &named(&[("fused", 2.0), ("apart", wrong)])).is_none());
        }
    }

    #[test]
    fn a_size_far_from_all_that_were_raced_is_not_told() {
        let sizes = raced(&[(1.0, [1.0, 1.0]), (2.0, [1.0, 1.0])]);
        for (scale, is_predicted) in [(0.2, false), (0.3, true), (7.9, true), (8.1, false)] {
            let parts = named(&[("fused", 2.0 * scale), ("apart", 3.0 * scale)]);
            assert_eq!(guess(&sizes, &parts).is_some(), is_predicted, "{scale}");
        }
    }
}
