//! What AMX attention needs between its tile products, in AVX-512: values as pairs, and weights rounded to bf16.

use std::arch::x86_64::*;
use std::f32::consts::LOG2_E;

use warplap_cpu::amx::{DEPTH, SIDE, STEP};
use warplap_cpu::simd::{Avx512, Lanes, exp2};

use super::softmax::LOWEST;

/// Whether the machine has what the functions here are compiled for.
pub(super) fn available() -> bool {
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512bf16")
}

/// Brings `count` values of `width` brain floats into the form of B: panels of 32 columns, steps of 32 values, pairs of
/// values side by side, zeros around.
///
/// # Safety
/// [`available`]; the values lie `row` apart, and `to` has room for whole tiles.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
pub(super) unsafe fn pack_values(from: *const u16, row: usize, count: usize, width: usize, to: *mut u16) {
    let steps = count.div_ceil(DEPTH);
    for pair in 0..steps * DEPTH / 2 {
        for column in (0..width.next_multiple_of(SIDE)).step_by(16) {
            let columns = ((1u32 << width.saturating_sub(column).min(16)) - 1) as __mmask16;
            let half = |value: usize| {
                let mask = if value < count { columns } else { 0 };
                // SAFETY: only elements of a value that is there are read.
                _mm512_cvtepu16_epi32(unsafe {
                    _mm256_maskz_loadu_epi16(mask, from.wrapping_add(value * row + column).cast())
                })
            };
            let both = _mm512_or_si512(half(2 * pair), _mm512_slli_epi32::<16>(half(2 * pair + 1)));
            let tile = (column / SIDE * steps + pair / 16) * STEP + column % SIDE / 16 * STEP / 2;
            // SAFETY: the tile lies inside the panels, and each pair of a tile takes 16 words.
            unsafe { _mm512_storeu_si512(to.add(tile + pair % 16 * 32).cast(), both) };
        }
    }
}

/// One row of scores on its way to weights.
pub(super) struct Line {
    /// The scores, not yet scaled; room for whole steps.
    pub(super) scores: *mut f32,
    /// Keys the row sees.
    pub(super) keys: usize,
    /// Steps of 32 keys to write, zeros after the last key.
    pub(super) steps: usize,
    /// What scores are multiplied with.
    pub(super) scale: f32,
    /// What is added to each.
    pub(super) mask: Option<*const u16>,
    /// Where 32 weights of each step go, [`STEP`] apart.
    pub(super) to: *mut u16,
}

/// Turns scores into weights relative to the largest, rounded to bf16, and gives the largest, scaled, and the sum of
/// weights before rounding.
///
/// # Safety
/// [`available`]; the line's addresses hold what its fields say.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,avx2,fma,f16c")]
pub(super) unsafe fn weigh(line: Line) -> (f32, f32) {
    type L = Avx512;
    // SAFETY: the features are on; all addresses stay inside the line.
    unsafe {
        let whole = line.keys / 16 * 16;
        let rest = ((1u32 << (line.keys - whole)) - 1) as __mmask16;
        let hidden = _mm512_set1_ps(f32::NEG_INFINITY);
        if rest != 0 {
            let x = _mm512_mask_loadu_ps(hidden, rest, line.scores.add(whole));
            _mm512_storeu_ps(line.scores.add(whole), x);
        }
        let end = line.keys.next_multiple_of(16);
        // With a positive scale and no mask the largest score is the largest before scaling too.
        let plain = line.mask.is_none() && line.scale > 0.0;
        if !plain {
            for j in (0..end).step_by(16) {
                let lanes = if j < whole { 0xffff } else { rest };
                let mut x = _mm512_mask_mul_ps(hidden, lanes, L::load(line.scores.add(j)), L::splat(line.scale));
                if let Some(mask) = line.mask {
                    let bits = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(lanes, mask.add(j).cast()));
                    x = L::add(x, _mm512_castsi512_ps(_mm512_slli_epi32::<16>(bits)));
                }
                L::store(line.scores.add(j), x);
            }
        }
        // Four chains: one would wait for the latency of each maximum.
        let mut tops = [L::splat(LOWEST); 4];
        let mut j = 0;
        while j + 64 <= end {
            for (i, top) in tops.iter_mut().enumerate() {
                *top = L::max(*top, L::load(line.scores.add(j + 16 * i)));
            }
            j += 64;
        }
        while j < end {
            tops[0] = L::max(tops[0], L::load(line.scores.add(j)));
            j += 16;
        }
        let most = L::largest(L::max(L::max(tops[0], tops[1]), L::max(tops[2], tops[3])));
        let factor = L::splat(if plain { line.scale * LOG2_E } else { LOG2_E });
        let (scaled, most) = (if plain { most * line.scale } else { most }, L::splat(most));
        let mut sums = [L::zero(); 2];
        for step in 0..line.steps {
            for (half, sum) in sums.iter_mut().enumerate() {
                let j = step * DEPTH + half * 16;
                let mut weight = L::zero();
                if j < end {
                    weight = exp2::<L>(L::mul(L::sub(L::load(line.scores.add(j)), most), factor));
                    *sum = L::add(*sum, weight);
                }
                let rounded: __m256i = std::mem::transmute(_mm512_cvtneps_pbh(weight));
                _mm256_storeu_si256(line.to.add(step * STEP + half * 16).cast(), rounded);
            }
        }
        (scaled, L::sum(L::add(sums[0], sums[1])))
    }
}
