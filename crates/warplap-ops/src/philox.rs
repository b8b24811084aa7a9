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
