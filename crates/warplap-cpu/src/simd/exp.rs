//! e^x for vectors, accurate to two units in the last place.

use super::Lanes;

/// e^x lane by lane. Below about -87 (and for -infinity) it gives zero; above 88 it saturates near the largest f32.
///
/// # Safety
/// The machine has the instruction set of `L`.
#[inline(always)]
pub unsafe fn exp<L: Lanes>(x: L::V) -> L::V {
    // SAFETY: the caller has the instruction set.
    unsafe {
        let x = L::max(L::min(x, L::splat(88.3)), L::splat(-104.0));
        let (n, r, p) = parts::<L>(x);
        // Tiny results become zero, which is what a softmax wants of them.
        L::scale_by_pow2(L::fma(L::mul(r, r), p, L::add(r, L::splat(1.0))), n)
    }
}

/// e^x - 1 lane by lane, accurate near zero too: off by at most a few units in the last place. `x` must lie between -80
/// and 80; NaN stays NaN.
///
/// # Safety
/// The machine has the instruction set of `L`.
#[inline(always)]
pub unsafe fn exp_m1<L: Lanes>(x: L::V) -> L::V {
    // SAFETY: the caller has the instruction set.
    unsafe {
        let (n, r, p) = parts::<L>(x);
        // 2^n (e^r - 1) + (2^n - 1), of which the second is nothing near zero, and elsewhere the larger by far.
        let (below, power) = (L::fma(L::mul(r, r), p, r), L::pow2(n));
        L::fma(below, power, L::sub(power, L::splat(1.0)))
    }
}

/// n, r and p with x = n ln 2 + r, |r| <= ln 2 / 2 and e^r = 1 + r + r² p.
///
/// # Safety
/// The machine has the instruction set of `L`.
#[inline(always)]
unsafe fn parts<L: Lanes>(x: L::V) -> (L::V, L::V, L::V) {
    // SAFETY: the caller has the instruction set.
    unsafe {
        // ln 2 is split so that n * high is exact.
        let n = L::round(L::mul(x, L::splat(std::f32::consts::LOG2_E)));
        let r = L::fma(n, L::splat(-0.693_359_4), x);
        let r = L::fma(n, L::splat(2.121_944_4e-4), r);
        // Minimax polynomial of e^r on that range (coefficients close to 1/k!).
        let mut p = L::splat(1.987_569_1e-4);
        p = L::fma(p, r, L::splat(1.398_199_9e-3));
        p = L::fma(p, r, L::splat(8.333_452e-3));
        p = L::fma(p, r, L::splat(4.166_579_6e-2));
        p = L::fma(p, r, L::splat(1.666_666_6e-1));
        (n, r, L::fma(p, r, L::splat(0.5)))
    }
}

/// 2^x lane by lane, accurate to two units in the last place. Below about -125 (and for -infinity) it gives zero; `x`
/// must be below 127.
///
/// # Safety
/// The machine has the instruction set of `L`.
#[inline(always)]
pub unsafe fn exp2<L: Lanes>(x: L::V) -> L::V {
    // SAFETY: the caller has the instruction set.
    unsafe {
        // Without the bound, x - n would be NaN for -infinity.
        let x = L::max(x, L::splat(-300.0));
        let n = L::round(x);
        let r = L::sub(x, n);
        // Least relative error for 2^r on [-1/2, 1/2].
        let mut p = L::splat(1.327_646_7e-3);
        p = L::fma(p, r, L::splat(9.675_541e-3));
        p = L::fma(p, r, L::splat(5.550_713_5e-2));
        p = L::fma(p, r, L::splat(2.402_212e-1));
        p = L::fma(p, r, L::splat(6.931_469e-1));
        p = L::fma(p, r, L::splat(1.000_000_1));
        L::scale_by_pow2(p, n)
    }
}
