//! AVX2 lanes: 8 at a time, 16 registers.

use std::arch::x86_64::*;

use half::{bf16, f16};

use super::{Lanes, Task};

/// AVX2 with FMA and F16C.
#[derive(Clone, Copy, Debug)]
pub struct Avx2;

/// Enters a task with the instruction set on.
///
/// # Safety
/// The machine has the features.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn enter<T: Task>(task: T) -> T::Out {
    // SAFETY: this function has the features the task needs.
    unsafe { task.run::<Avx2>() }
}

/// Eight ones, then eight zeros: a window into it masks the first n lanes.
static MASK: [i32; 16] = [-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0];

/// A mask of the first `n` lanes.
///
/// # Safety
/// The machine has AVX2.
#[inline(always)]
unsafe fn first(n: usize) -> __m256i {
    // SAFETY: n <= 8, so the window lies inside MASK.
    unsafe { _mm256_loadu_si256(MASK.as_ptr().add(8 - n.min(8)).cast()) }
}

// SAFETY of every body: the trait's contract hands instruction set and pointers to the caller.
impl Lanes for Avx2 {
    const N: usize = 8;
    const REGISTERS: usize = 16;
    type V = __m256;

    #[inline(always)]
    unsafe fn splat(x: f32) -> __m256 {
        // SAFETY: see above.
        unsafe { _mm256_set1_ps(x) }
    }
    #[inline(always)]
    unsafe fn load(p: *const f32) -> __m256 {
        // SAFETY: see above.
        unsafe { _mm256_loadu_ps(p) }
    }
    #[inline(always)]
    unsafe fn load_first(p: *const f32, n: usize) -> __m256 {
        // SAFETY: see above; masked lanes are not read.
        unsafe { _mm256_maskload_ps(p, first(n)) }
    }
    #[inline(always)]
    unsafe fn store(p: *mut f32, v: __m256) {
        // SAFETY: see above.
        unsafe { _mm256_storeu_ps(p, v) }
    }
    #[inline(always)]
    unsafe fn store_first(p: *mut f32, v: __m256, n: usize) {
        // SAFETY: see above; masked lanes are not written.
        unsafe { _mm256_maskstore_ps(p, first(n), v) }
    }
    #[inline(always)]
    unsafe fn load_f16(p: *const f16) -> __m256 {
        // SAFETY: see above; 8 halves are 16 bytes.
        unsafe { _mm256_cvtph_ps(_mm_loadu_si128(p.cast())) }
    }
    #[inline(always)]
    unsafe fn load_bf16(p: *const bf16) -> __m256 {
        // SAFETY: see above; a brain float is the upper half of an f32.
        unsafe { _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(_mm_loadu_si128(p.cast())))) }
    }
    #[inline(always)]
    unsafe fn store_f16(p: *mut f16, v: __m256) {
        // SAFETY: see above.
        unsafe { _mm_storeu_si128(p.cast(), _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(v)) }
    }
    #[inline(always)]
    unsafe fn store_bf16(p: *mut bf16, v: __m256) {
        // SAFETY: see above. Round to nearest even by adding 0x7fff plus the last kept bit; NaN stays NaN.
        unsafe {
            let bits = _mm256_castps_si256(v);
            let odd = _mm256_and_si256(_mm256_srli_epi32::<16>(bits), _mm256_set1_epi32(1));
            let rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
            let nan = _mm256_castps_si256(_mm256_cmp_ps::<_CMP_UNORD_Q>(v, v));
            let quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x0040_0000));
            let kept = _mm256_srli_epi32::<16>(_mm256_blendv_epi8(rounded, quiet, nan));
            // The pack works within 128-bit halves: bring its two useful quarters together.
            let packed = _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_packus_epi32(kept, kept));
            _mm_storeu_si128(p.cast(), _mm256_castsi256_si128(packed));
        }
    }
    #[inline(always)]
    unsafe fn stream(p: *mut f32, v: __m256) {
        // SAFETY: see above; the caller's address is aligned.
        unsafe { _mm256_stream_ps(p, v) }
    }
    #[inline(always)]
    unsafe fn streamed() {
        // SAFETY: see above.
        unsafe { _mm_sfence() }
    }
    #[inline(always)]
    unsafe fn fma(a: __m256, b: __m256, c: __m256) -> __m256 {
        // SAFETY: see above.
        unsafe { _mm256_fmadd_ps(a, b, c) }
    }
    #[inline(always)]
    unsafe fn add(a: __m256, b: __m256) -> __m256 {
        // SAFETY: see above.
        unsafe { _mm256_add_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn sub(a: __m256, b: __m256) -> __m256 {
        // SAFETY: see above.
        unsafe { _mm256_sub_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn mul(a: __m256, b: __m256) -> __m256 {
        // SAFETY: see above.
        unsafe { _mm256_mul_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn div(a: __m256, b: __m256) -> __m256 {
        // SAFETY: see above.
        unsafe { _mm256_div_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn max(a: __m256, b: __m256) -> __m256 {
        // SAFETY: see above.
        unsafe { _mm256_max_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn min(a: __m256, b: __m256) -> __m256 {
        // SAFETY: see above.
        unsafe { _mm256_min_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn round(a: __m256) -> __m256 {
        // SAFETY: see above.
        unsafe { _mm256_round_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a) }
    }
    #[inline(always)]
    unsafe fn pow2(whole: __m256) -> __m256 {
        // SAFETY: see above.
        unsafe {
            let biased = _mm256_add_epi32(_mm256_cvtps_epi32(whole), _mm256_set1_epi32(127));
            _mm256_castsi256_ps(_mm256_slli_epi32::<23>(biased))
        }
    }
    #[inline(always)]
    unsafe fn sum(v: __m256) -> f32 {
        // SAFETY: see above.
        unsafe {
            let four = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
            let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps::<1>(two, two)))
        }
    }
    #[inline(always)]
    unsafe fn largest(v: __m256) -> f32 {
        // SAFETY: see above.
        unsafe {
            let four = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
            let two = _mm_max_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_max_ss(two, _mm_shuffle_ps::<1>(two, two)))
        }
    }
    #[inline(always)]
    unsafe fn transpose(rows: *mut __m256) {
        // SAFETY: see above; 8 vectors are read and written. Pairs, then quads within 128-bit halves, then the halves.
        unsafe {
            let (mut t, mut u) = ([_mm256_setzero_ps(); 8], [_mm256_setzero_ps(); 8]);
            for i in 0..4 {
                let (a, b) = (*rows.add(2 * i), *rows.add(2 * i + 1));
                t[2 * i] = _mm256_unpacklo_ps(a, b);
                t[2 * i + 1] = _mm256_unpackhi_ps(a, b);
            }
            for i in 0..2 {
                for h in 0..2 {
                    let (a, b) = (_mm256_castps_pd(t[4 * i + h]), _mm256_castps_pd(t[4 * i + 2 + h]));
                    u[4 * i + 2 * h] = _mm256_castpd_ps(_mm256_unpacklo_pd(a, b));
                    u[4 * i + 2 * h + 1] = _mm256_castpd_ps(_mm256_unpackhi_pd(a, b));
                }
            }
            for c in 0..4 {
                *rows.add(c) = _mm256_permute2f128_ps::<0x20>(u[c], u[4 + c]);
                *rows.add(4 + c) = _mm256_permute2f128_ps::<0x31>(u[c], u[4 + c]);
            }
        }
    }
    #[inline(always)]
    unsafe fn prefetch<T>(p: *const T) {
        // SAFETY: a prefetch never faults.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(p.cast()) }
    }
}
