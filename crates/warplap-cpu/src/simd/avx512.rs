//! AVX-512 lanes: 16 at a time, 32 registers.

use std::arch::x86_64::*;

use half::{bf16, f16};

use super::{Lanes, Task};

/// AVX-512 (F, BW, VL, DQ).
#[derive(Clone, Copy, Debug)]
pub struct Avx512;

/// Enters a task with the instruction set on.
///
/// # Safety
/// The machine has the features.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,f16c")]
pub(super) unsafe fn enter<T: Task>(task: T) -> T::Out {
    // SAFETY: this function has the features the task needs.
    unsafe { task.run::<Avx512>() }
}

const fn first(n: usize) -> __mmask16 {
    ((1u32 << n) - 1) as __mmask16
}

/// Rounds to nearest even by adding 0x7fff plus the last kept bit; NaN stays NaN.
///
/// # Safety
/// The machine has the features.
#[inline(always)]
unsafe fn to_bf16(v: __m512) -> __m256i {
    // SAFETY: the caller's word.
    unsafe {
        let bits = _mm512_castps_si512(v);
        let odd = _mm512_and_si512(_mm512_srli_epi32::<16>(bits), _mm512_set1_epi32(1));
        let rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
        let nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(v, v);
        let quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x0040_0000));
        let kept = _mm512_srli_epi32::<16>(_mm512_mask_mov_epi32(rounded, nan, quiet));
        _mm512_cvtepi32_epi16(kept)
    }
}

// SAFETY of every body: the trait's contract hands instruction set and pointers to the caller.
impl Lanes for Avx512 {
    const N: usize = 16;
    const REGISTERS: usize = 32;
    type V = __m512;

    #[inline(always)]
    unsafe fn splat(x: f32) -> __m512 {
        // SAFETY: see above.
        unsafe { _mm512_set1_ps(x) }
    }
    #[inline(always)]
    unsafe fn load(p: *const f32) -> __m512 {
        // SAFETY: see above.
        unsafe { _mm512_loadu_ps(p) }
    }
    #[inline(always)]
    unsafe fn load_first(p: *const f32, n: usize) -> __m512 {
        // SAFETY: see above; masked lanes are not read.
        unsafe { _mm512_maskz_loadu_ps(first(n), p) }
    }
    #[inline(always)]
    unsafe fn store(p: *mut f32, v: __m512) {
        // SAFETY: see above.
        unsafe { _mm512_storeu_ps(p, v) }
    }
    #[inline(always)]
    unsafe fn store_first(p: *mut f32, v: __m512, n: usize) {
        // SAFETY: see above; masked lanes are not written.
        unsafe { _mm512_mask_storeu_ps(p, first(n), v) }
    }
    #[inline(always)]
    unsafe fn load_f16(p: *const f16) -> __m512 {
        // SAFETY: see above; 16 halves are 32 bytes.
        unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(p.cast())) }
    }
    #[inline(always)]
    unsafe fn load_bf16(p: *const bf16) -> __m512 {
        // SAFETY: see above; a brain float is the upper half of an f32.
        unsafe { _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(_mm256_loadu_si256(p.cast())))) }
    }
    #[inline(always)]
    unsafe fn store_f16(p: *mut f16, v: __m512) {
        // SAFETY: see above.
        unsafe { _mm256_storeu_si256(p.cast(), _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(v)) }
    }
    #[inline(always)]
    unsafe fn store_bf16(p: *mut bf16, v: __m512) {
        // SAFETY: see above.
        unsafe { _mm256_storeu_si256(p.cast(), to_bf16(v)) }
    }
    #[inline(always)]
    unsafe fn stream(p: *mut f32, v: __m512) {
        // SAFETY: see above; the caller's address is aligned.
        unsafe { _mm512_stream_ps(p, v) }
    }
    #[inline(always)]
    unsafe fn stream_f16(p: *mut f16, v: __m512) {
        // SAFETY: see above; the caller's address is aligned.
        unsafe { _mm256_stream_si256(p.cast(), _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(v)) }
    }
    #[inline(always)]
    unsafe fn stream_bf16(p: *mut bf16, v: __m512) {
        // SAFETY: see above; the caller's address is aligned.
        unsafe { _mm256_stream_si256(p.cast(), to_bf16(v)) }
    }
    #[inline(always)]
    unsafe fn streamed() {
        // SAFETY: see above.
        unsafe { _mm_sfence() }
    }
    #[inline(always)]
    unsafe fn fma(a: __m512, b: __m512, c: __m512) -> __m512 {
        // SAFETY: see above.
        unsafe { _mm512_fmadd_ps(a, b, c) }
    }
    #[inline(always)]
    unsafe fn add(a: __m512, b: __m512) -> __m512 {
        // SAFETY: see above.
        unsafe { _mm512_add_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn sub(a: __m512, b: __m512) -> __m512 {
        // SAFETY: see above.
        unsafe { _mm512_sub_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn mul(a: __m512, b: __m512) -> __m512 {
        // SAFETY: see above.
        unsafe { _mm512_mul_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn div(a: __m512, b: __m512) -> __m512 {
        // SAFETY: see above.
        unsafe { _mm512_div_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn max(a: __m512, b: __m512) -> __m512 {
        // SAFETY: see above.
        unsafe { _mm512_max_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn min(a: __m512, b: __m512) -> __m512 {
        // SAFETY: see above.
        unsafe { _mm512_min_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn round(a: __m512) -> __m512 {
        // SAFETY: see above.
        unsafe { _mm512_roundscale_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a) }
    }
    #[inline(always)]
    unsafe fn pow2(whole: __m512) -> __m512 {
        // SAFETY: see above.
        unsafe {
            let biased = _mm512_add_epi32(_mm512_cvtps_epi32(whole), _mm512_set1_epi32(127));
            _mm512_castsi512_ps(_mm512_slli_epi32::<23>(biased))
        }
    }
    #[inline(always)]
    unsafe fn scale_by_pow2(a: __m512, whole: __m512) -> __m512 {
        // SAFETY: see above; lanes that are masked out raise no assist.
        unsafe {
            let kept = _mm512_cmp_ps_mask::<_CMP_GE_OQ>(whole, _mm512_set1_ps(-125.0));
            _mm512_maskz_scalef_ps(kept, a, whole)
        }
    }
    #[inline(always)]
    unsafe fn sum(v: __m512) -> f32 {
        // SAFETY: see above.
        unsafe { _mm512_reduce_add_ps(v) }
    }
    #[inline(always)]
    unsafe fn largest(v: __m512) -> f32 {
        // SAFETY: see above.
        unsafe { _mm512_reduce_max_ps(v) }
    }
    #[inline(always)]
    unsafe fn transpose(rows: *mut __m512) {
        // SAFETY: see above; 16 vectors are read and written. Pairs, then quads within 128-bit parts, then the parts.
        unsafe {
            let (mut t, mut u) = ([_mm512_setzero_ps(); 16], [_mm512_setzero_ps(); 16]);
            for i in 0..8 {
                let (a, b) = (*rows.add(2 * i), *rows.add(2 * i + 1));
                t[2 * i] = _mm512_unpacklo_ps(a, b);
                t[2 * i + 1] = _mm512_unpackhi_ps(a, b);
            }
            for i in 0..4 {
                for h in 0..2 {
                    let (a, b) = (_mm512_castps_pd(t[4 * i + h]), _mm512_castps_pd(t[4 * i + 2 + h]));
                    u[4 * i + 2 * h] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, b));
                    u[4 * i + 2 * h + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, b));
                }
            }
            for c in 0..4 {
                let low = _mm512_shuffle_f32x4::<0x88>(u[c], u[4 + c]);
                let high = _mm512_shuffle_f32x4::<0xdd>(u[c], u[4 + c]);
                let low2 = _mm512_shuffle_f32x4::<0x88>(u[8 + c], u[12 + c]);
                let high2 = _mm512_shuffle_f32x4::<0xdd>(u[8 + c], u[12 + c]);
                *rows.add(c) = _mm512_shuffle_f32x4::<0x88>(low, low2);
                *rows.add(8 + c) = _mm512_shuffle_f32x4::<0xdd>(low, low2);
                *rows.add(4 + c) = _mm512_shuffle_f32x4::<0x88>(high, high2);
                *rows.add(12 + c) = _mm512_shuffle_f32x4::<0xdd>(high, high2);
            }
        }
    }
    #[inline(always)]
    unsafe fn prefetch<T>(p: *const T) {
        // SAFETY: a prefetch never faults.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(p.cast()) }
    }
}
