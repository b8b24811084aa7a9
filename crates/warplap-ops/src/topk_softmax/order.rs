//! Who comes first: larger ones, of equal ones that with the lower index. NaN is above all numbers, both zeros are
//! equal. Twin of `order.cuh`.

use std::cmp::Ordering;

/// The order of two numbers, the larger one first.
pub(super) fn descending<T: PartialOrd>(a: &T, b: &T) -> Ordering {
    let is_nan = |x: &T| x.partial_cmp(x).is_none();
    b.partial_cmp(a).unwrap_or_else(|| is_nan(b).cmp(&is_nan(a)))
}

/// The places of the k that come first, in their order.
pub(super) fn first<T: PartialOrd>(row: &[T], k: usize) -> Vec<usize> {
    let mut places: Vec<usize> = (0..row.len()).collect();
    // A stable sort leaves equal ones as they were.
    places.sort_by(|a, b| descending(&row[*a], &row[*b]));
    places.truncate(k);
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn larger_ones_come_first_and_of_equal_ones_the_lower_index() {
        assert_eq!(first(&[1.0, 3.0, 2.0, 3.0, 1.0], 4), [1, 3, 2, 0]);
        assert_eq!(first(&[-0.0, 0.0, -0.0, 1e-45f32], 4), [3, 0, 1, 2]);
        assert_eq!(first(&[f32::NEG_INFINITY, f32::MIN, f32::NEG_INFINITY], 3), [1, 0, 2]);
        let nan = f64::NAN;
        assert_eq!(first(&[f64::INFINITY, nan, 1.0, -nan], 3), [1, 3, 0]);
        assert!(first::<f64>(&[], 3).is_empty());
    }
}
