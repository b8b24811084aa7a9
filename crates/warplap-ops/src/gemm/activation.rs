//! Activations: what is done to every element of a product after the bias, as a word of the problem and in double
//! precision.

use warplap_core::declare::words;

words! {
    /// What is done to every element of a product.
    #[derive(Default)]
    pub enum Activation {
        /// Nothing.
        #[default]
        None = "none",
        /// max(x, 0).
        Relu = "relu",
        /// GELU by the error function, which is what torch's `gelu` is unless told otherwise.
        Gelu = "gelu",
        /// GELU in its tanh form.
        GeluTanh = "gelu_tanh",
        /// x · sigmoid(x).
        Silu = "silu",
        /// The hyperbolic tangent.
        Tanh = "tanh",
        /// 1 / (1 + e^-x).
        Sigmoid = "sigmoid",
    }
}

impl Activation {
    /// Whether it takes an exponential: it is rounded, and its argument may be too far for one.
    pub(crate) const fn is_smooth(self) -> bool {
        !matches!(self, Activation::None | Activation::Relu)
    }

    /// How `epilogue.cuh` counts it.
    pub(crate) const fn code(self) -> i64 {
        match self {
            Activation::None => 0,
            Activation::Relu => 1,
            Activation::GeluTanh => 2,
            Activation::Gelu => 3,
            Activation::Silu => 4,
            Activation::Tanh => 5,
            Activation::Sigmoid => 6,
        }
    }

    /// Its value in double precision.
    pub fn of(self, x: f64) -> f64 {
        match self {
            Activation::None => x,
            // Not `max`, which would make a number of NaN.
            Activation::Relu => {
                if x < 0.0 {
                    0.0
                } else {
                    x
                }
            }
            Activation::Gelu => 0.5 * x * libm::erfc(-x * std::f64::consts::FRAC_1_SQRT_2),
            Activation::GeluTanh => {
                let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x);
                // x · (1 + tanh(u)) / 2, which loses no digits where x is far below zero.
                x / (1.0 + (-2.0 * inner).exp())
            }
            Activation::Silu => x / (1.0 + (-x).exp()),
            Activation::Tanh => x.tanh(),
            Activation::Sigmoid => 1.0 / (1.0 + (-x).exp()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warplap_core::declare::Words;

    #[test]
    fn the_values_are_those_of_torch() {
        // relu, gelu, gelu(approximate="tanh"), silu, tanh and sigmoid of -3, -0.5, 0.75 and 4 in float64.
        for (activation, right) in [
            (Activation::None, [-3.0, -0.5, 0.75, 4.0]),
            (Activation::Relu, [0.0, 0.0, 0.75, 4.0]),
            (Activation::Gelu, [-0.004049694095, -0.154268769363, 0.580029485717, 3.999873315033]),
            (Activation::GeluTanh, [-0.003637392082, -0.154285990175, 0.579960555166, 3.999929754052]),
            (Activation::Silu, [-0.142277619533, -0.188770334399, 0.509384024382, 3.928055160152]),
            (Activation::Tanh, [-0.995054753687, -0.462117157260, 0.635148952387, 0.999329299739]),
            (Activation::Sigmoid, [0.047425873178, 0.377540668798, 0.679178699175, 0.982013790038]),
        ] {
            for (x, right) in [-3.0, -0.5, 0.75, 4.0].into_iter().zip(right) {
                assert!((activation.of(x) - right).abs() < 1e-11, "{activation}({x}) = {}", activation.of(x));
            }
            assert!(activation.of(f64::NAN).is_nan(), "{activation}");
        }
    }

    #[test]
    fn ends_are_those_of_torch() {
        // Of -infinity, infinity, and of what lies furthest from zero, in float64.
        let nan = f64::NAN;
        for (activation, right) in [
            (Activation::None, [f64::NEG_INFINITY, f64::INFINITY, -1e300, 1e300]),
            (Activation::Relu, [0.0, f64::INFINITY, 0.0, 1e300]),
            (Activation::Gelu, [nan, f64::INFINITY, 0.0, 1e300]),
            (Activation::GeluTanh, [nan, f64::INFINITY, 0.0, 1e300]),
            (Activation::Silu, [nan, f64::INFINITY, 0.0, 1e300]),
            (Activation::Tanh, [-1.0, 1.0, -1.0, 1.0]),
            (Activation::Sigmoid, [0.0, 1.0, 0.0, 1.0]),
        ] {
            for (x, right) in [f64::NEG_INFINITY, f64::INFINITY, -1e300, 1e300].into_iter().zip(right) {
                let got = activation.of(x);
                assert!(got == right || got.is_nan() && right.is_nan(), "{activation}({x}) = {got}");
            }
        }
    }

    #[test]
    fn words_are_read_back_and_others_are_not() {
        for activation in Activation::ALL {
            assert_eq!(activation.name().parse(), Ok(activation));
            assert!(Activation::SENTENCE.contains(activation.name()));
        }
        assert_eq!("swish".parse::<Activation>(), Err(()));
    }
}
