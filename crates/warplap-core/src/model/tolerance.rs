//! How far a right answer may be off: per type and reduction length, in one place.

use crate::model::dtype::DType;

/// The bound |got - right| <= floor + relative * |right|.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerance {
    /// Part of the bound that grows with the right value: rounding of the result itself.
    pub relative: f64,
    /// Part of the bound that does not: rounding during accumulation.
    pub floor: f64,
}

/// Safety factor over the expected rounding error of a sum in any order. Large enough for blocked, vectorised and
/// split sums, small enough that one dropped term of a reduction of thousands shows.
const GROWTH: f64 = 6.0;

impl Tolerance {
    /// The bound for a dot product of `length` terms accumulated in `accumulate` and stored in `output`.
    /// `magnitude` is the largest product of the norms of the two vectors (Cauchy–Schwarz): a random-order rounding
    /// walk over the partial sums stays within a few roundoffs of it.
    pub fn dot(output: DType, accumulate: DType, length: usize, magnitude: f64) -> Self {
        // Short sums have few roundings but the same final one.
        let steps = (length as f64).sqrt().clamp(1.0, 8.0);
        Tolerance {
            relative: 2.0 * output.roundoff(),
            floor: GROWTH * accumulate.roundoff() * magnitude.max(f64::MIN_POSITIVE) * steps / 4.0 + smallest(output),
        }
    }

    /// The bound for a dot product of f32 whose factors may be rounded (or cut) to the eleven bits of tf32 first. Each
    /// product is then off by its own share of itself, and independent shares add up to the root of their number.
    pub fn rounded_dot(length: usize, magnitude: f64) -> Self {
        const TF32: f64 = 4.8828125e-4;
        let exact = Tolerance::dot(DType::F32, DType::F32, length, magnitude);
        let walk = GROWTH * TF32 * magnitude / (length as f64).sqrt().max(1.0);
        // Factors that are cut are all too small: that part grows with the right value.
        Tolerance { relative: exact.relative + 4.0 * TF32, floor: exact.floor + walk }
    }

    /// The bound for a dot product of f8e4m3 on tensor cores: products are exact, but what one step of 32 adds up is
    /// cut to about 13 bits behind the largest number in it, and so is the sum so far. Such sums run through `run`
    /// terms; those of several runs are added up in f32.
    pub fn narrow_dot(output: DType, length: usize, run: usize, magnitude: f64) -> Self {
        const NARROW: f64 = 1.220703125e-4;
        const STEP: usize = 32;
        let exact = Tolerance::dot(output, DType::F32, length, magnitude);
        // Each term is cut at a place that hangs on the sum of its run: independent cuts add up to the root of their
        // number, within a run and between runs.
        let walk = 0.6 * GROWTH * NARROW * magnitude * (run as f64 / length.max(1) as f64).sqrt();
        // The sum so far is cut towards zero once a step: that part grows with the right value.
        let bias = NARROW * run.div_ceil(STEP) as f64;
        Tolerance { relative: exact.relative + bias, floor: exact.floor + walk }
    }

    /// The same bound loosened by a factor, for operations with more steps than one dot product.
    pub fn times(self, factor: f64) -> Self {
        Tolerance { relative: self.relative * factor, floor: self.floor * factor }
    }

    /// The bound once numbers of at most `most` were added. What was rounded before is off by a share of itself, which
    /// may be larger than the sum by as much as was added.
    pub fn added(self, most: f64) -> Self {
        Tolerance { floor: self.floor + self.relative * most, ..self }
    }

    /// The bound once it was multiplied with numbers of at most `most`, and rounded to `output` once more.
    pub fn multiplied(self, output: DType, most: f64) -> Self {
        Tolerance { relative: self.relative + output.roundoff(), floor: self.floor * most + smallest(output) }
    }

    /// The bound of this times another number, given the largest of both, rounded to `output`: what either is off by
    /// counts as often as the other is large.
    pub fn paired(self, other: Self, [most, most_other]: [f64; 2], output: DType) -> Self {
        let floor = self.floor * most_other + other.floor * most;
        Tolerance { relative: self.relative + other.relative, floor: floor + smallest(output) }
    }

    /// The bound once a smooth activation (GELU, SiLU) was computed in f32. It grows at most 1.13 times as fast as its
    /// argument; an argument that is off by a share of itself moves the result by the same share of 1.2 times the
    /// result and 0.3; and the activation itself has some roundings of numbers of the size of 1.
    pub fn activated(self) -> Self {
        let own = 16.0 * DType::F32.roundoff();
        Tolerance { relative: 1.2 * self.relative + own, floor: 1.13 * self.floor + 0.3 * self.relative + own }
    }

    /// What is allowed beside a right value.
    pub fn allowed(self, right: f64) -> f64 {
        self.floor + self.relative * right.abs()
    }
}

/// Half the smallest subnormal: rounding near zero is absolute.
fn smallest(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 2.98e-8,
        DType::F8E4m3 => 9.765625e-4,
        DType::F8E5m2 => 7.63e-6,
        _ => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_dropped_term_of_two_thousand_shows_in_f32_and_half_accumulation_too() {
        let length = 2048;
        // Uniform in [-1, 1): each norm is about sqrt(length / 3).
        let magnitude = length as f64 / 3.0;
        let bound = Tolerance::dot(DType::F32, DType::F32, length, magnitude).allowed(0.0);
        assert!(bound < 0.1 * 0.25, "a dropped term is 0.25 on average: {bound}");
        let rounded = Tolerance::rounded_dot(length, magnitude).allowed(0.0);
        assert!(bound < rounded && rounded < 0.4 * 0.25, "also where factors are rounded to tf32: {rounded}");
        let half = DType::F16.roundoff() * (length as f64 / 3.0).sqrt() * 4.0;
        assert!(half > 10.0 * bound, "half accumulation is off by about {half}");
    }

    #[test]
    fn a_product_of_two_is_off_by_what_either_is_times_the_other() {
        let (one, other) = (Tolerance { relative: 1e-3, floor: 0.2 }, Tolerance { relative: 1e-4, floor: 0.01 });
        let both = one.paired(other, [30.0, 7.0], DType::F32);
        assert!((both.relative - 1.1e-3).abs() < 1e-15 && (both.floor - (0.2 * 7.0 + 0.01 * 30.0)).abs() < 1e-12);
        for (x, y) in [(30.0, 7.0), (-3.0, 5.0), (0.5, -7.0), (0.0, 0.0)] {
            let (off_x, off_y) = (one.allowed(x), other.allowed(y));
            // But for what both are off by at once.
            let off = ((x + off_x) * (y + off_y) - x * y).abs() - off_x * off_y;
            assert!(off <= both.allowed(x * y) + 1e-12, "{x} {y}: {off}");
        }
    }

    #[test]
    fn a_share_of_the_argument_is_allowed_for_behind_an_addition_and_an_activation() {
        let silu = |x: f64| x / (1.0 + (-x).exp());
        let gelu = |x: f64| x / (1.0 + (-1.5957691216 * (x + 0.044715 * x * x * x)).exp());
        let share = 1e-3;
        let bound = Tolerance { relative: share, floor: 0.0 };
        for i in -400..400 {
            let x = f64::from(i) / 40.0;
            for off in [x * (1.0 + share), x * (1.0 - share)] {
                // With x below -3 the two are equal but for a rounding.
                assert!((off - x).abs() <= bound.added(3.0).allowed(x + 3.0) + 1e-12);
                for f in [silu, gelu] {
                    assert!((f(off) - f(x)).abs() <= bound.activated().allowed(f(x)), "{x}");
                }
            }
        }
        assert!(bound.activated().allowed(0.0) < share, "and little more than that");
    }
}
