//! Portable lanes: plain arrays. The compiler turns them into the baseline's vectors: NEON with fused
//! multiply-add on AArch64, SSE2 on x86-64.

use half::{bf16, f16};

use super::{Lanes, Task};

/// Four lanes in a plain array: one 128-bit vector.
#[derive(Clone, Copy, Debug)]
pub struct Portable;

const N: usize = 4;

/// Runs a task, compiled once and not wherever it is called from.
///
/// # Safety
/// What the task asks for.
#[inline(never)]
pub(super) unsafe fn enter<T: Task>(task: T) -> T::Out {
    // SAFETY: the caller's word; no feature is needed.
    unsafe { task.run::<Portable>() }
}

#[inline(always)]
fn zip(a: [f32; N], b: [f32; N], f: impl Fn(f32, f32) -> f32) -> [f32; N] {
    std::array::from_fn(|i| f(a[i], b[i]))
}

/// Four f16. On x86-64 a conversion asks what the machine has and may be done bit by bit: compiled once, not in every
/// kernel, of which no machine with AVX2 runs this form.
#[cfg_attr(target_arch = "x86_64", inline(never))]
#[cfg_attr(not(target_arch = "x86_64"), inline(always))]
unsafe fn widened(p: *const f16) -> [f32; N] {
    // SAFETY: the caller's pointer is valid for so many.
    std::array::from_fn(|i| unsafe { (*p.add(i)).to_f32() })
}

/// The nearest f16, likewise.
#[cfg_attr(target_arch = "x86_64", inline(never))]
#[cfg_attr(not(target_arch = "x86_64"), inline(always))]
fn narrowed(x: f32) -> f16 {
    f16::from_f32(x)
}

// SAFETY of every body: the trait's contract hands valid pointers; no feature is needed.
impl Lanes for Portable {
    const N: usize = N;
    const REGISTERS: usize = if cfg!(target_arch = "aarch64") { 32 } else { 16 };
    type V = [f32; N];

    #[inline(always)]
    unsafe fn splat(x: f32) -> [f32; N] {
        [x; N]
    }
    #[inline(always)]
    unsafe fn load(p: *const f32) -> [f32; N] {
        // SAFETY: see above.
        unsafe { p.cast::<[f32; N]>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn load_first(p: *const f32, n: usize) -> [f32; N] {
        // SAFETY: see above; only the first n are read.
        std::array::from_fn(|i| if i < n { unsafe { *p.add(i) } } else { 0.0 })
    }
    #[inline(always)]
    unsafe fn store(p: *mut f32, v: [f32; N]) {
        // SAFETY: see above.
        unsafe { p.cast::<[f32; N]>().write_unaligned(v) }
    }
    #[inline(always)]
    unsafe fn store_first(p: *mut f32, v: [f32; N], n: usize) {
        for (i, x) in v.iter().enumerate().take(n) {
            // SAFETY: see above; only the first n are written.
            unsafe { *p.add(i) = *x }
        }
    }
    #[inline(always)]
    unsafe fn load_f16(p: *const f16) -> [f32; N] {
        // SAFETY: see above.
        unsafe { widened(p) }
    }
    #[inline(always)]
    unsafe fn load_bf16(p: *const bf16) -> [f32; N] {
        // SAFETY: see above.
        std::array::from_fn(|i| unsafe { f32::from_bits(u32::from((*p.add(i)).to_bits()) << 16) })
    }
    #[inline(always)]
    unsafe fn store_f16(p: *mut f16, v: [f32; N]) {
        for (i, x) in v.iter().enumerate() {
            // SAFETY: see above.
            unsafe { *p.add(i) = narrowed(*x) }
        }
    }
    #[inline(always)]
    unsafe fn store_bf16(p: *mut bf16, v: [f32; N]) {
        for (i, x) in v.iter().enumerate() {
            // SAFETY: see above.
            unsafe { *p.add(i) = bf16::from_f32(*x) }
        }
    }
    #[inline(always)]
    unsafe fn fma(a: [f32; N], b: [f32; N], c: [f32; N]) -> [f32; N] {
        // Where the baseline has no fused instruction, `mul_add` would be a library call per lane.
        let fused = cfg!(any(target_feature = "fma", target_arch = "aarch64"));
        std::array::from_fn(|i| if fused { a[i].mul_add(b[i], c[i]) } else { a[i] * b[i] + c[i] })
    }
    #[inline(always)]
    unsafe fn add(a: [f32; N], b: [f32; N]) -> [f32; N] {
        zip(a, b, |a, b| a + b)
    }
    #[inline(always)]
    unsafe fn sub(a: [f32; N], b: [f32; N]) -> [f32; N] {
        zip(a, b, |a, b| a - b)
    }
    #[inline(always)]
    unsafe fn mul(a: [f32; N], b: [f32; N]) -> [f32; N] {
        zip(a, b, |a, b| a * b)
    }
    #[inline(always)]
    unsafe fn div(a: [f32; N], b: [f32; N]) -> [f32; N] {
        zip(a, b, |a, b| a / b)
    }
    #[inline(always)]
    unsafe fn max(a: [f32; N], b: [f32; N]) -> [f32; N] {
        zip(a, b, |a, b| if a > b { a } else { b })
    }
    #[inline(always)]
    unsafe fn min(a: [f32; N], b: [f32; N]) -> [f32; N] {
        zip(a, b, |a, b| if a < b { a } else { b })
    }
    #[inline(always)]
    unsafe fn round(a: [f32; N]) -> [f32; N] {
        // Adding and taking away 1.5 * 2^23 rounds to nearest even for |x| < 2^22.
        const MAGIC: f32 = 12_582_912.0;
        a.map(|x| (x + MAGIC) - MAGIC)
    }
    #[inline(always)]
    unsafe fn pow2(whole: [f32; N]) -> [f32; N] {
        whole.map(|x| f32::from_bits(((x as i32).wrapping_add(127) << 23) as u32))
    }
    #[inline(always)]
    unsafe fn sum(v: [f32; N]) -> f32 {
        (v[0] + v[2]) + (v[1] + v[3])
    }
    #[inline(always)]
    unsafe fn largest(v: [f32; N]) -> f32 {
        v.into_iter().fold(f32::NEG_INFINITY, |a, b| if a > b { a } else { b })
    }
    #[inline(always)]
    unsafe fn transpose(rows: *mut [f32; N]) {
        // SAFETY: see above; N vectors are read and written.
        unsafe {
            let rows = rows.cast::<[[f32; N]; N]>();
            let from = *rows;
            *rows = std::array::from_fn(|i| std::array::from_fn(|j| from[j][i]));
        }
    }
}
