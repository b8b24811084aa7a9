//! Activations lane by lane, for every instruction set.

use warplap_cpu::simd::{Lanes, exp, exp_m1};

use crate::gemm::Activation;

/// An activation lane by lane; NaN stays NaN, and of -infinity GELU and SiLU are NaN, as in double precision.
/// Exponentials are squared because [`exp`] ends near the largest f32: the square of that is infinite, and what a number
/// far below zero is divided by it is nothing.
///
/// # Safety
/// The machine has the instruction set of `L`.
#[inline(always)]
pub(crate) unsafe fn activate<L: Lanes>(act: Activation, x: L::V) -> L::V {
    // SAFETY: the caller has the instruction set.
    unsafe {
        let one = L::splat(1.0);
        match act {
            Activation::None => x,
            // The second is given where one of them is NaN.
            Activation::Relu => L::max(L::zero(), x),
            Activation::Gelu => gelu::<L>(x),
            Activation::GeluTanh => {
                // x (1 + tanh(u)) / 2 = x / (1 + (e^-u)²)
                let cubic = L::fma(L::mul(x, x), L::splat(0.044715), one);
                let root = exp::<L>(L::mul(L::mul(x, cubic), L::splat(-0.797_884_6)));
                L::div(x, L::fma(root, root, one))
            }
            Activation::Silu => {
                let root = exp::<L>(L::mul(x, L::splat(-0.5)));
                L::div(x, L::fma(root, root, one))
            }
            Activation::Tanh => {
                // (e^2x - 1) / (e^2x + 1), of which nothing is lost near zero; from 10 on it is one.
                let near = L::max(L::splat(-10.0), L::min(L::splat(10.0), x));
                let above = exp_m1::<L>(L::add(near, near));
                L::div(above, L::add(above, L::splat(2.0)))
            }
            Activation::Sigmoid => {
                // Nothing times what is near is nothing, or NaN, which `exp` makes a number of.
                let near = L::max(L::splat(-104.0), L::min(L::splat(104.0), x));
                let root = exp::<L>(L::mul(near, L::splat(-0.5)));
                L::div(one, L::fma(root, root, L::fma(near, L::zero(), one)))
            }
        }
    }
}

/// x Φ(x) = max(x, 0) - |x| Φ(-|x|), with Φ(-|x|) = e^(-x²/2) times a polynomial of t = 1 / (1 + p |x| / √2):
/// Abramowitz and Stegun, "Handbook of Mathematical Functions", 7.1.26, off by at most 0.75e-7. Nothing cancels on
/// either side.
///
/// # Safety
/// As for [`activate`].
#[inline(always)]
unsafe fn gelu<L: Lanes>(x: L::V) -> L::V {
    // SAFETY: the caller has the instruction set.
    unsafe {
        // Nothing is left of the tail from 16 on. That is NaN times infinity on the left, as for everybody, and must not
        // be asked for on the right.
        let below = L::sub(L::zero(), x);
        let far = L::min(L::max(below, x), L::splat(16.0));
        // p / √2, and half of each coefficient.
        let t = L::div(L::splat(1.0), L::fma(far, L::splat(0.231_641_89), L::splat(1.0)));
        let mut p = L::splat(0.530_702_7);
        p = L::fma(p, t, L::splat(-0.726_576));
        p = L::fma(p, t, L::splat(0.710_706_9));
        p = L::fma(p, t, L::splat(-0.142_248_37));
        p = L::fma(p, t, L::splat(0.127_414_8));
        let tail = L::mul(L::mul(p, t), exp::<L>(L::mul(L::mul(far, far), L::splat(-0.5))));
        L::sub(L::max(L::zero(), x), L::mul(L::max(below, far), tail))
    }
}
