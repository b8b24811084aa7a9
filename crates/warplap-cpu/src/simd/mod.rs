//! Vector lanes: one kernel source, compiled once per instruction set and chosen at run time.
//!
//! A kernel is a [`Task`] written against [`Lanes`]; [`Isa::run`] enters it with the instruction set's features on.
//! Everything a task calls must be `#[inline(always)]`: only then is it compiled with those features.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod element;
mod exp;
mod portable;

pub use element::Element;
pub use exp::{exp, exp_m1, exp2};
pub use portable::Portable;

#[cfg(target_arch = "x86_64")]
pub use {avx2::Avx2, avx512::Avx512};

use half::{bf16, f16};

/// A vector of f32 lanes.
///
/// # Safety
/// Every function needs the instruction set of its implementation, and pointers valid for the lanes it touches.
#[allow(clippy::missing_safety_doc)]
pub trait Lanes: Copy + Send + Sync + 'static {
    /// Lanes of one vector.
    const N: usize;
    /// Vector registers there are; register tiles are sized by it.
    const REGISTERS: usize;
    /// One vector.
    type V: Copy;

    /// The same number in every lane.
    unsafe fn splat(x: f32) -> Self::V;
    /// `N` numbers.
    unsafe fn load(p: *const f32) -> Self::V;
    /// The first `n < N` numbers, zero in the other lanes; nothing else is read.
    unsafe fn load_first(p: *const f32, n: usize) -> Self::V;
    /// Writes `N` numbers.
    unsafe fn store(p: *mut f32, v: Self::V);
    /// Writes the first `n < N` numbers; nothing else is written.
    unsafe fn store_first(p: *mut f32, v: Self::V, n: usize);
    /// `N` halves, widened.
    unsafe fn load_f16(p: *const f16) -> Self::V;
    /// `N` brain floats, widened.
    unsafe fn load_bf16(p: *const bf16) -> Self::V;
    /// Writes `N` halves, rounded to nearest even.
    unsafe fn store_f16(p: *mut f16, v: Self::V);
    /// Writes `N` brain floats, rounded to nearest even.
    unsafe fn store_bf16(p: *mut bf16, v: Self::V);
    /// `a * b + c`.
    unsafe fn fma(a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// Sum.
    unsafe fn add(a: Self::V, b: Self::V) -> Self::V;
    /// Difference.
    unsafe fn sub(a: Self::V, b: Self::V) -> Self::V;
    /// Product.
    unsafe fn mul(a: Self::V, b: Self::V) -> Self::V;
    /// Quotient.
    unsafe fn div(a: Self::V, b: Self::V) -> Self::V;
    /// The larger, lane by lane; `b` where one of them is NaN.
    unsafe fn max(a: Self::V, b: Self::V) -> Self::V;
    /// The smaller, lane by lane.
    unsafe fn min(a: Self::V, b: Self::V) -> Self::V;
    /// Rounded to the nearest whole number.
    unsafe fn round(a: Self::V) -> Self::V;
    /// Two to the power of whole numbers in [-126, 127].
    unsafe fn pow2(whole: Self::V) -> Self::V;
    /// Sum over the lanes.
    unsafe fn sum(v: Self::V) -> f32;
    /// Largest of the lanes.
    unsafe fn largest(v: Self::V) -> f32;
    /// Transposes the `N`×`N` numbers of `N` vectors, which lie one after another.
    unsafe fn transpose(rows: *mut Self::V);
    /// Asks for the cache line of an address; any address will do, nothing is read.
    #[inline(always)]
    unsafe fn prefetch<T>(_: *const T) {}
    /// Writes `N` numbers past the caches where there is a way to; `p` lies on a multiple of the vector's bytes.
    #[inline(always)]
    unsafe fn stream(p: *mut f32, v: Self::V) {
        // SAFETY: the caller's word.
        unsafe { Self::store(p, v) }
    }
    /// The same of `N` halves.
    #[inline(always)]
    unsafe fn stream_f16(p: *mut f16, v: Self::V) {
        // SAFETY: the caller's word.
        unsafe { Self::store_f16(p, v) }
    }
    /// The same of `N` brain floats.
    #[inline(always)]
    unsafe fn stream_bf16(p: *mut bf16, v: Self::V) {
        // SAFETY: the caller's word.
        unsafe { Self::store_bf16(p, v) }
    }
    /// What was written past the caches is seen by other threads before anything that comes later.
    #[inline(always)]
    unsafe fn streamed() {}
    /// `a * 2^whole`, and zero where `whole` is below -125: a result below the normal range would cost a microcode
    /// assist of a hundred cycles and more. `whole` is a whole number below 128.
    #[inline(always)]
    unsafe fn scale_by_pow2(a: Self::V, whole: Self::V) -> Self::V {
        // SAFETY: the caller has the instruction set.
        unsafe {
            let kept = Self::min(Self::max(Self::add(whole, Self::splat(126.0)), Self::zero()), Self::splat(1.0));
            Self::mul(Self::mul(a, Self::pow2(Self::max(whole, Self::splat(-125.0)))), kept)
        }
    }
    /// Zero in every lane.
    #[inline(always)]
    unsafe fn zero() -> Self::V {
        // SAFETY: the caller has the instruction set.
        unsafe { Self::splat(0.0) }
    }
}

/// An instruction set of this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Isa {
    /// Plain arrays; the compiler makes of them what the baseline allows (on AArch64 that is NEON).
    Portable,
    /// AVX2 with FMA and F16C: 8 lanes, 16 registers.
    Avx2,
    /// AVX-512 (F, BW, VL, DQ): 16 lanes, 32 registers.
    Avx512,
}

impl Isa {
    /// The best this machine has.
    pub fn best() -> Isa {
        *Isa::available().last().unwrap_or(&Isa::Portable)
    }

    /// All this machine has, worst first.
    pub fn available() -> Vec<Isa> {
        #[allow(unused_mut)]
        let mut result = vec![Isa::Portable];
        #[cfg(target_arch = "x86_64")]
        {
            let avx2 =
                is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c");
            if avx2 {
                result.push(Isa::Avx2);
            }
            if avx2
                && is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512vl")
                && is_x86_feature_detected!("avx512dq")
            {
                result.push(Isa::Avx512);
            }
        }
        result
    }

    /// The name used in configs and fingerprints.
    pub const fn name(self) -> &'static str {
        match self {
            Isa::Portable => "portable",
            Isa::Avx2 => "avx2",
            Isa::Avx512 => "avx512",
        }
    }

    /// The instruction set of a name, if this machine has it.
    pub fn named(name: &str) -> Option<Isa> {
        Isa::available().into_iter().find(|i| i.name() == name)
    }

    /// f32 lanes of one vector.
    pub const fn lanes(self) -> usize {
        match self {
            Isa::Portable => Portable::N,
            Isa::Avx2 => 8,
            Isa::Avx512 => 16,
        }
    }

    /// Vector registers.
    pub const fn registers(self) -> usize {
        match self {
            Isa::Portable => Portable::REGISTERS,
            Isa::Avx2 => 16,
            Isa::Avx512 => 32,
        }
    }

    /// Runs a task compiled for this instruction set. One that the machine does not have runs as the portable one.
    #[inline]
    pub fn run<T: Task>(self, task: T) -> T::Out {
        match self {
            // SAFETY: `available` saw these features on this machine; the constructors of Isa outside of it are
            // guarded here once more by the same cached detection.
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 if is_x86_feature_detected!("avx512dq") && is_x86_feature_detected!("avx512vl") => unsafe {
                avx512::enter(task)
            },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") => unsafe {
                avx2::enter(task)
            },
            // SAFETY: portable lanes need no feature.
            _ => unsafe { portable::enter(task) },
        }
    }
}

/// A piece of work written once for every instruction set.
pub trait Task {
    /// What it gives back.
    type Out;
    /// Does the work with lanes `L`. Mark the implementation `#[inline(always)]`.
    ///
    /// # Safety
    /// The machine has the instruction set of `L`.
    unsafe fn run<L: Lanes>(self) -> Self::Out;
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Everything;

    impl Task for Everything {
        type Out = ();

        #[inline(always)]
        unsafe fn run<L: Lanes>(self) {
            let a: Vec<f32> = (0..L::N).map(|i| i as f32 - 3.5).collect();
            let mut out = vec![0f32; L::N];
            // SAFETY: all pointers are valid for N lanes; the task is entered by Isa::run.
            unsafe {
                let v = L::load(a.as_ptr());
                L::store(out.as_mut_ptr(), L::fma(v, L::splat(2.0), L::splat(1.0)));
                assert!(out.iter().zip(&a).all(|(o, a)| *o == a * 2.0 + 1.0));
                L::store(out.as_mut_ptr(), L::div(L::splat(3.0), v));
                assert!(out.iter().zip(&a).all(|(o, a)| *o == 3.0 / a));
                assert_eq!(L::sum(v), a.iter().sum::<f32>());
                assert_eq!(L::largest(v), L::N as f32 - 4.5);
                for n in 0..L::N {
                    out.fill(7.0);
                    L::store_first(out.as_mut_ptr(), L::load_first(a.as_ptr(), n), n);
                    assert_eq!(out[..n], a[..n]);
                    assert!(out[n..].iter().all(|x| *x == 7.0));
                    L::store(out.as_mut_ptr(), L::load_first(a.as_ptr(), n));
                    assert!(out[n..].iter().all(|x| *x == 0.0));
                }
                let mut room = vec![0f32; 2 * L::N];
                let skip = room.as_ptr().align_offset(4 * L::N);
                L::stream(room.as_mut_ptr().add(skip), v);
                L::streamed();
                assert_eq!(room[skip..skip + L::N], a);
                let h: Vec<f16> = a.iter().map(|x| f16::from_f32(*x)).collect();
                L::store(out.as_mut_ptr(), L::load_f16(h.as_ptr()));
                assert_eq!(out, a);
                let b: Vec<bf16> = a.iter().map(|x| bf16::from_f32(*x)).collect();
                L::store(out.as_mut_ptr(), L::load_bf16(b.as_ptr()));
                assert_eq!(out, a);
                let odd: Vec<f32> = (0..L::N).map(|i| 1.0 + i as f32 * 0.001_234_5).collect();
                let mut h = vec![f16::ZERO; L::N];
                L::store_f16(h.as_mut_ptr(), L::load(odd.as_ptr()));
                assert!(h.iter().zip(&odd).all(|(h, x)| *h == f16::from_f32(*x)));
                let mut room = vec![f16::ZERO; 2 * L::N];
                let skip = room.as_ptr().align_offset(2 * L::N);
                L::stream_f16(room.as_mut_ptr().add(skip), L::load(odd.as_ptr()));
                L::streamed();
                assert_eq!(room[skip..skip + L::N], h);
                let mut b = vec![bf16::ZERO; L::N];
                L::store_bf16(b.as_mut_ptr(), L::load(odd.as_ptr()));
                assert!(b.iter().zip(&odd).all(|(b, x)| *b == bf16::from_f32(*x)));
                let mut room = vec![bf16::ZERO; 2 * L::N];
                let skip = room.as_ptr().align_offset(2 * L::N);
                L::stream_bf16(room.as_mut_ptr().add(skip), L::load(odd.as_ptr()));
                L::streamed();
                assert_eq!(room[skip..skip + L::N], b);
                let xs: Vec<f32> = (0..L::N).map(|i| -88.0 + i as f32 * 5.37).map(|x| x.min(0.0)).collect();
                L::store(out.as_mut_ptr(), exp::<L>(L::load(xs.as_ptr())));
                for (got, x) in out.iter().zip(&xs) {
                    let right = f64::from(*x).exp();
                    assert!((f64::from(*got) - right).abs() <= 3e-7 * right + 1e-37, "exp({x}) = {got}, not {right}");
                }
                for start in [-30.0, -3.0, -0.4, -1e-4, 0.0, 1e-30, 2.0, 30.0] {
                    let xs: Vec<f32> = (0..L::N).map(|i| start * (1.0 + i as f32 * 0.1)).collect();
                    L::store(out.as_mut_ptr(), exp_m1::<L>(L::load(xs.as_ptr())));
                    for (got, x) in out.iter().zip(&xs) {
                        let right = f64::from(*x).exp_m1();
                        assert!(
                            (f64::from(*got) - right).abs() <= 5e-7 * right.abs(),
                            "e^{x} - 1 = {got}, not {right}"
                        );
                    }
                }
                L::store(out.as_mut_ptr(), exp_m1::<L>(L::splat(f32::NAN)));
                assert!(out.iter().all(|x| x.is_nan()));
                let mut square = [L::zero(); 16];
                for (i, row) in square[..L::N].iter_mut().enumerate() {
                    *row = L::fma(L::splat(1.0), v, L::splat(100.0 * i as f32));
                }
                L::transpose(square.as_mut_ptr());
                for (i, row) in square[..L::N].iter().enumerate() {
                    L::store(out.as_mut_ptr(), *row);
                    assert!(out.iter().enumerate().all(|(j, x)| *x == 100.0 * j as f32 + a[i]));
                }
                L::prefetch(out.as_ptr());
                for x in [f32::NEG_INFINITY, f32::MIN, -400.0] {
                    L::store(out.as_mut_ptr(), exp::<L>(L::splat(x)));
                    assert!(out.iter().all(|x| *x == 0.0));
                    L::store(out.as_mut_ptr(), exp2::<L>(L::splat(x)));
                    assert!(out.iter().all(|x| *x == 0.0));
                }
                for start in [-126.0, -20.0, -1.0, 0.0, 100.0] {
                    let xs: Vec<f32> = (0..L::N).map(|i| start + i as f32 * 0.377).collect();
                    L::store(out.as_mut_ptr(), exp2::<L>(L::load(xs.as_ptr())));
                    for (got, x) in out.iter().zip(&xs) {
                        let right = f64::from(*x).exp2();
                        assert!((f64::from(*got) - right).abs() <= 3e-7 * right + 1e-37, "2^{x} = {got}, not {right}");
                    }
                }
            }
        }
    }

    #[test]
    fn every_instruction_set_of_this_machine_computes_the_same() {
        for isa in Isa::available() {
            isa.run(Everything);
            assert_eq!(Isa::named(isa.name()), Some(isa));
        }
    }
}
