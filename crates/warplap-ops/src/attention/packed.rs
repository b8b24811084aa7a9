//! Sequences that lie one behind the other without padding: totals and offsets come in, as they were given; the rows of
//! each sequence go out. Whatever the numbers are, nobody is sent outside of the tensors.

use std::ops::Range;

use warplap_core::array::Array;
use warplap_core::rejection::Rejection;

use super::AttentionProblem;

/// Rows of tensors that hold the sequences of all batches one behind the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Packed {
    /// Rows of Q and O: the queries of all batches.
    pub tq: u64,
    /// Rows of K and V: the keys of all batches.
    pub tk: u64,
}

/// The rows between two offsets: none outside of the tensor, and no more than the longest sequence has.
pub(crate) fn stretch([from, to]: [i32; 2], longest: usize, total: usize) -> Range<usize> {
    let place = |at: i32| usize::try_from(at).unwrap_or(0).min(total);
    let from = place(from);
    from..place(to).clamp(from, from.saturating_add(longest))
}

/// Refuses offsets that do not ascend: sequences would share rows, which tasks on several threads write.
#[cfg(feature = "cpu")]
pub(crate) fn ascending(name: &str, offsets: &[i32]) -> Result<(), Rejection> {
    let Some(at) = offsets.windows(2).position(|pair| pair[0] > pair[1]) else { return Ok(()) };
    let (before, behind) = (offsets[at], offsets[at + 1]);
    let reason =
        format!("{name}: has {behind} behind {before}, expected numbers that ascend: where each sequence begins");
    Err(Rejection::LaunchFailed { reason })
}

/// Lengths of so many sequences, none above the longest, that make up a total of at most all of that: one as long as it
/// may be, one of nothing, and anything between. They are the same at every drawing, so that the work is known before.
fn lengths(total: u64, longest: u64, batches: u64) -> Vec<u64> {
    let mut left = total;
    let of = |i: u64| {
        let behind = batches - 1 - i;
        // Steps of the golden section are spread evenly, however many there are.
        let share = (i as f64 * 0.618_033_988_749_895).fract() * 2.0 * left as f64 / (behind + 1) as f64;
        let wished = match i {
            0 => longest,
            1 => 0,
            _ => 1 + share as u64,
        };
        let length = wished.clamp(left.saturating_sub(behind * longest), left.min(longest));
        left -= length;
        length
    };
    (0..batches).map(of).collect()
}

/// How many queries and keys sequences are drawn with, in some order. Where keys have lengths of their own, one
/// sequence has queries and no keys and another keys and no queries.
pub(super) fn sequences(p: &AttentionProblem, Packed { tq, tk }: Packed) -> Vec<[u64; 2]> {
    let (queries, mut keys) = (lengths(tq, p.sq, p.b), lengths(tk, p.sk, p.b));
    if p.b > 2 && (tq, p.sq) != (tk, p.sk) {
        keys.swap(1, 2);
    }
    queries.into_iter().zip(keys).map(|(q, k)| [q, k]).collect()
}

/// Offsets of queries and of keys, where the problem has some, of sequences in random order.
pub(super) fn drawn_offsets(p: &AttentionProblem, rng: &mut fastrand::Rng) -> [Array; 2] {
    let Some(packed) = p.packed else { return [Array::none(), Array::none()] };
    let mut drawn = sequences(p, packed);
    rng.shuffle(&mut drawn);
    [0, 1].map(|side| {
        let mut at = 0;
        let behind = drawn.iter().map(|lengths| {
            at += lengths[side] as i32;
            at
        });
        Array::I32(std::iter::once(0).chain(behind).collect())
    })
}

/// Where the queries and the keys of each batch lie, for answers.
pub(crate) struct Batches([Vec<Range<usize>>; 2]);

impl Batches {
    /// Of inputs whose offsets are those.
    pub(crate) fn of(p: &AttentionProblem, offsets: [&Array; 2]) -> Self {
        let Some(Packed { tq, tk }) = p.packed else {
            return Batches([p.sq, p.sk].map(|rows| vec![0..rows as usize; p.b as usize]));
        };
        let rows = |side: usize, longest: u64, total: u64| {
            let all = offsets[side].to_f64();
            let between = |pair: &[f64]| stretch([pair[0] as i32, pair[1] as i32], longest as usize, total as usize);
            all.windows(2).map(between).collect()
        };
        Batches([rows(0, p.sq, tq), rows(1, p.sk, tk)])
    }

    /// Rows of Q and O.
    pub(crate) fn queries(&self, batch: usize) -> Range<usize> {
        self.0[0][batch].clone()
    }

    /// Rows of K and V.
    pub(crate) fn keys(&self, batch: usize) -> Range<usize> {
        self.0[1][batch].clone()
    }
}

#[cfg(test)]
mod tests {
    use super::super::Attention;
    use super::*;
    use proptest::prelude::*;
    use warplap_core::op::Op;

    proptest! {
        #[test]
        fn lengths_make_up_the_total(batches in 1u64..40, longest in 1u64..300, part in 0f64..=1.0) {
            let total = ((batches * longest) as f64 * part) as u64;
            let sizes = lengths(total, longest, batches);
            prop_assert_eq!(sizes.iter().sum::<u64>(), total);
            prop_assert_eq!(sizes.len() as u64, batches);
            prop_assert!(sizes.iter().all(|n| *n <= longest));
            prop_assert_eq!(sizes[0], longest.min(total));
        }

        #[test]
        fn no_offsets_lead_outside(from: i32, to: i32, longest in 0usize..9, total in 0usize..9) {
            let rows = stretch([from, to], longest, total);
            prop_assert!(rows.start <= rows.end && rows.end <= total && rows.len() <= longest);
        }
    }

    #[test]
    fn offsets_are_followed_where_they_lead_somewhere() {
        let at = |from, to| stretch([from, to], 5, 9);
        assert_eq!([at(0, 3), at(3, 3), at(3, 9), at(8, 20), at(-4, 2)], [0..3, 3..3, 3..8, 8..9, 0..2]);
        assert_eq!([at(7, 2), at(i32::MAX, i32::MIN), at(i32::MIN, i32::MAX)], [7..7, 9..9, 0..5]);
    }

    #[test]
    fn a_drawing_fills_the_tensors_and_has_sequences_of_nothing() {
        let p = Attention::parse("b=5,h=1,sq=40,sk=70,d=2,tq=90,tk=131").unwrap();
        let [q, k] = drawn_offsets(&p, &mut fastrand::Rng::with_seed(3));
        assert_eq!((q.to_f64()[5], k.to_f64()[5]), (90.0, 131.0));
        let batches = Batches::of(&p, [&q, &k]);
        let lens = |side: fn(&Batches, usize) -> Range<usize>| (0..5).map(|b| side(&batches, b).len()).collect();
        let (queries, keys): (Vec<usize>, Vec<usize>) = (lens(Batches::queries), lens(Batches::keys));
        assert!(queries.contains(&0) && queries.contains(&40) && keys.contains(&0) && keys.contains(&70));
        assert!(queries.iter().zip(&keys).any(|(q, k)| *q > 0 && *k == 0));
    }
}
