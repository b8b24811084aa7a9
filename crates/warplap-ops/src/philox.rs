//! Dropout by position: an element's place and a seed come in; whether it is kept goes out. Whoever asks gets the same:
//! fused and unfused, forward and backward, on any device (`philox.cuh` is the twin of this file).
//!
//! Philox 4x32-10 (Salmon et al., 2011) with counter (e / 8, stream) and key `seed` gives eight half-words, the low half
//! of a word first. Element e is dropped where half-word e % 8 is below p · 2¹⁶, rounded; what is kept grows by
//! 1 / (1 − p) of the rounded p.

/// Four random words of 32 bits.
pub(crate) fn philox(counter: u64, stream: u64, seed: u64) -> [u32; 4] {
    let split = |x: u64| (x as u32, (x >> 32) as u32);
    let ((mut c0, mut c1), (mut c2, mut c3), (mut k0, mut k1)) = (split(counter), split(stream), split(seed));
    for _ in 0..10 {
        let (p, q) = (u64::from(c0) * 0xD251_1F53, u64::from(c2) * 0xCD9E_8D57);
        (c0, c1, c2, c3) = ((q >> 32) as u32 ^ c1 ^ k0, q as u32, (p >> 32) as u32 ^ c3 ^ k1, p as u32);
        (k0, k1) = (k0.wrapping_add(0x9E37_79B9), k1.wrapping_add(0xBB67_AE85));
    }
    [c0, c1, c2, c3]
}

/// Rounds of [`philox_pair`]: the fewest that passed every test of the paper.
const PAIR_ROUNDS: u32 = 7;

/// Two random words of 32 bits: Philox 2x32.
fn philox_pair([mut c0, mut c1]: [u32; 2], mut key: u32, rounds: u32) -> [u32; 2] {
    for _ in 0..rounds {
        let p = u64::from(c0) * 0xD256_D193;
        (c0, c1, key) = ((p >> 32) as u32 ^ key ^ c1, p as u32, key.wrapping_add(0x9E37_79B9));
    }
    [c0, c1]
}

/// A share of elements that are dropped, as kernels compare it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Dropout {
    /// Half-words below this are dropped.
    pub(crate) below: u32,
    /// What is kept is multiplied with this.
    pub(crate) grown: f32,
}

impl Dropout {
    /// Of a share from 0 to below 1.
    pub(crate) fn new(share: f32) -> Self {
        let below = (f64::from(share) * 65536.0).round().min(65535.0);
        Dropout { below: below as u32, grown: (65536.0 / (65536.0 - below)) as f32 }
    }

    /// The factors of elements from one on, for a seed and a stream: zero, or what is kept grows by.
    pub(crate) fn factors(self, first: u64, [seed, stream]: [u64; 2], to: &mut [f32]) {
        let mut at = 0;
        while at < to.len() {
            let e = first + at as u64;
            let words = philox(e / 8, stream, seed);
            let count = (8 - (e % 8) as usize).min(to.len() - at);
            for (i, to) in to[at..at + count].iter_mut().enumerate() {
                let half = (e % 8) as usize + i;
                let drawn = words[half / 2] >> (16 * (half % 2)) & 0xffff;
                *to = if drawn < self.below { 0.0 } else { self.grown };
            }
            at += count;
        }
    }
}

/// Which weights of one head of attention are dropped: by their queries and keys.
///
/// Philox 4x32-10 of the head's number gives a key and two offsets for Philox 2x32-7. Of every sixteen queries and
/// sixteen keys, i and i + 8 and j and j + 8 share a call with counter (their number without the eights, each with its
/// offset): the first query has the first word, the first key the low half of either. So whoever holds scores as tensor
/// cores leave them, upright or turned, has all four.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Drops {
    dropout: Dropout,
    key: u32,
    offsets: [u32; 2],
}

impl Drops {
    /// Of one head, counted through all batches, for a seed and a stream.
    pub(crate) fn new(dropout: Dropout, [seed, stream]: [u64; 2], head: u64) -> Self {
        let [key, row, column, _] = philox(head, stream, seed);
        Drops { dropout, key, offsets: [row, column] }
    }

    /// The factor of one weight: zero, or what is kept grows by.
    pub(crate) fn factor(&self, query: usize, key: usize) -> f32 {
        let place = |at: usize, offset: u32| offset.wrapping_add((at >> 4 << 3 | at & 7) as u32);
        let counter = [place(query, self.offsets[0]), place(key, self.offsets[1])];
        let word = philox_pair(counter, self.key, PAIR_ROUNDS)[query >> 3 & 1];
        let drawn = word >> (16 * (key >> 3 & 1)) & 0xffff;
        if drawn < self.dropout.below { 0.0 } else { self.dropout.grown }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_are_those_of_the_published_test() {
        assert_eq!(philox(0, 0, 0), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        let ones = philox(u64::MAX, u64::MAX, u64::MAX);
        assert_eq!(ones, [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
    }

    #[test]
    fn pairs_of_words_are_those_of_the_published_test() {
        assert_eq!(philox_pair([0, 0], 0, 10), [0xff1d_ae59, 0x6cd1_0df2]);
        assert_eq!(philox_pair([u32::MAX; 2], u32::MAX, 10), [0x2c3f_628b, 0xab4f_d7ad]);
        assert_eq!(philox_pair([0x243f_6a88, 0x85a3_08d3], 0x1319_8a2e, 10), [0xdd7c_e038, 0xf62a_4c12]);
        assert_eq!(philox_pair([0, 0], 0, 7), [0x257a_3673, 0xcd26_be2a]);
    }

    #[test]
    fn weights_are_dropped_as_often_as_asked_for_in_every_head_row_and_column() {
        let side = 256;
        let of = |seed, head| Drops::new(Dropout::new(0.25), seed, head);
        let all =
            |drops: Drops| -> Vec<bool> { (0..side * side).map(|n| drops.factor(n / side, n % side) == 0.0).collect() };
        let (one, next, other) = (all(of([7, 3], 0)), all(of([7, 3], 1)), all(of([7, 4], 0)));
        for (a, b) in [(&one, &next), (&one, &other)] {
            let both = a.iter().zip(b).filter(|(a, b)| **a && **b).count() as f64 / a.len() as f64;
            assert!((both - 0.0625).abs() < 0.01, "heads and streams are independent: {both}");
        }
        let share = |dropped: usize, of: usize| (dropped as f64 / of as f64 - 0.25).abs();
        assert!(share(one.iter().filter(|d| **d).count(), side * side) < 0.01);
        for i in 0..side {
            let row = one[i * side..(i + 1) * side].iter().filter(|d| **d).count();
            let column = (0..side).filter(|j| one[j * side + i]).count();
            assert!(share(row, side).max(share(column, side)) < 0.15, "{i}: {row} {column}");
        }
        // Neighbours of every distance that calls and words have.
        for (down, along) in [(0, 1), (1, 0), (0, 8), (8, 0), (8, 8), (0, 16), (16, 0)] {
            let pairs = (0..side - 16).flat_map(|i| (0..side - 16).map(move |j| (i, j)));
            let both = pairs.filter(|(i, j)| one[i * side + j] && one[(i + down) * side + j + along]).count();
            let share = both as f64 / (side - 16).pow(2) as f64;
            assert!((share - 0.0625).abs() < 0.01, "{down} {along}: {share}");
        }
    }

    #[test]
    fn an_element_s_fate_is_that_of_its_place_and_as_many_are_dropped_as_asked_for() {
        let dropout = Dropout::new(0.25);
        let mut all = vec![0f32; 100_000];
        dropout.factors(0, [7, 3], &mut all);
        for first in [1, 2, 3, 4, 77, 99_990] {
            let mut some = vec![0f32; (all.len() - first).min(50)];
            dropout.factors(first as u64, [7, 3], &mut some);
            assert_eq!(some, all[first..first + some.len()]);
        }
        let dropped = all.iter().filter(|f| **f == 0.0).count() as f64 / all.len() as f64;
        assert!((dropped - 0.25).abs() < 0.01, "{dropped}");
        assert!(all.iter().all(|f| *f == 0.0 || (*f - 4.0 / 3.0).abs() < 1e-6));
        let mut other = vec![0f32; 100];
        dropout.factors(0, [7, 4], &mut other);
        assert_ne!(other, all[..100]);
    }
}
