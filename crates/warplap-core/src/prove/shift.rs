//! Shift: how numbers are moved, as a share of what they may be off by. A chain of operations is answered once more with
//! what lies between them moved, and what that does to its end is what the chain may be off by.
//!
//! What is drawn hangs on a seed, on the array and on a number's place alone: a device moves it as the host does.

use crate::model::tolerance::Tolerance;

/// How numbers are moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shift {
    /// By anything, from a seed.
    Any(u64),
    /// By all of it, to either side, from a seed.
    Signs(u64),
    /// By all of it, to one side.
    Up,
    /// By all of it, away from zero.
    Away,
}

impl Shift {
    /// What is drawn for the so-manieth array.
    pub fn stream(self, array: u64) -> u64 {
        match self {
            Shift::Any(seed) | Shift::Signs(seed) => mixed(seed, array),
            Shift::Up | Shift::Away => 0,
        }
    }

    /// Its number, as kernels are told it.
    pub fn code(self) -> u64 {
        match self {
            Shift::Any(_) => 0,
            Shift::Signs(_) => 1,
            Shift::Up => 2,
            Shift::Away => 3,
        }
    }

    /// The share that a number is moved by.
    fn share(self, value: f64, stream: u64, place: u64) -> f64 {
        match self {
            // 53 bits behind the point, so that nothing is rounded.
            Shift::Any(_) => (mixed(stream, place) >> 11) as f64 * 2f64.powi(-52) - 1.0,
            Shift::Signs(_) => 1.0 - 2.0 * (mixed(stream, place) >> 63) as f64,
            Shift::Up => 1.0,
            Shift::Away => 1f64.copysign(value),
        }
    }

    /// Moves part of an array, which begins at a place of it. What is not finite stays.
    pub fn put_on(self, values: &mut [f64], stream: u64, first: u64, tolerance: Tolerance) {
        let finite = (first..).zip(values).filter(|(_, value)| value.is_finite());
        finite.for_each(|(place, value)| *value += self.share(*value, stream, place) * tolerance.allowed(*value));
    }
}

/// Bits that hang on all bits of both.
fn mixed(bits: u64, place: u64) -> u64 {
    let x = bits ^ place.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOLERANCE: Tolerance = Tolerance { relative: 0.25, floor: 0.5 };

    /// What ones of either sign are moved by, as a share of what is allowed.
    fn shares(shift: Shift, array: u64, len: usize) -> Vec<f64> {
        let before: Vec<f64> = (0..len).map(|i| if i % 3 == 0 { -1.0 } else { 1.0 }).collect();
        let mut after = before.clone();
        shift.put_on(&mut after, shift.stream(array), 0, TOLERANCE);
        after.iter().zip(&before).map(|(after, before)| (after - before) / TOLERANCE.allowed(*before)).collect()
    }

    #[test]
    fn anything_is_spread_over_all_that_is_allowed() {
        let all = shares(Shift::Any(1), 3, 1 << 16);
        let mean = all.iter().sum::<f64>() / all.len() as f64;
        let square = all.iter().map(|share| share * share).sum::<f64>() / all.len() as f64;
        assert!(all.iter().all(|share| share.abs() <= 1.0));
        assert!(mean.abs() < 0.01 && (square - 1.0 / 3.0).abs() < 0.01, "{mean} {square}");
        // Neighbours have nothing to do with each other.
        let both = all.windows(2).map(|pair| pair[0] * pair[1]).sum::<f64>() / all.len() as f64;
        assert!(both.abs() < 0.01, "{both}");
    }

    #[test]
    fn signs_take_all_of_it_to_either_side() {
        let all = shares(Shift::Signs(2), 3, 1 << 16);
        assert!(all.iter().all(|share| share.abs() == 1.0));
        assert!(all.iter().sum::<f64>().abs() < 0.01 * all.len() as f64);
        assert!(shares(Shift::Up, 3, 100).iter().all(|share| *share == 1.0));
        assert!(shares(Shift::Away, 3, 100).iter().enumerate().all(|(i, share)| (*share < 0.0) == (i % 3 == 0)));
    }

    #[test]
    fn what_is_drawn_hangs_on_seed_array_and_place_alone() {
        let of = |shift: Shift, array: u64| shares(shift, array, 1000);
        assert_eq!(of(Shift::Any(1), 3), of(Shift::Any(1), 3));
        assert!(of(Shift::Any(1), 3) != of(Shift::Any(2), 3) && of(Shift::Any(1), 3) != of(Shift::Any(1), 4));
        let (mut whole, mut parts) = ([1.5; 100], [1.5; 100]);
        Shift::Any(1).put_on(&mut whole, 7, 0, TOLERANCE);
        let (front, back) = parts.split_at_mut(37);
        Shift::Any(1).put_on(back, 7, 37, TOLERANCE);
        Shift::Any(1).put_on(front, 7, 0, TOLERANCE);
        assert_eq!(whole, parts);
    }

    #[test]
    fn what_is_not_finite_stays() {
        let mut values = [f64::INFINITY, f64::NAN, 1.0];
        Shift::Up.put_on(&mut values, 0, 0, TOLERANCE);
        assert!(values[0] == f64::INFINITY && values[1].is_nan() && values[2] == 1.75);
    }

    #[test]
    fn numbers_are_moved_as_the_device_moves_them() {
        // As the kernel of `doubles.cu`, compiled for a CPU, moved them.
        let moved = [
            (Shift::Any(1), [0.3686454413334812, -1.4107312638158607, 4.248296562390568, -4.90590150255491]),
            (Shift::Signs(2), [-0.125, -0.4375, 1.75, -5.1875]),
            (Shift::Up, [1.125, -0.4375, 4.25, -2.3125]),
            (Shift::Away, [1.125, -2.0625, 4.25, -5.1875]),
        ];
        for (shift, expected) in moved {
            let mut values = [0.5, -1.25, 3.0, -3.75];
            shift.put_on(&mut values, shift.stream(3), 0, TOLERANCE);
            let off = values.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
            assert!(off < 1e-15, "{shift:?}: {values:?}");
        }
    }
}
