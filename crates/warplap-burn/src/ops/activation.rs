//! Activations: what a layer does to every element of its product, and the slope of that.

use burn::backend::Backend;
use burn::backend::tensor::FloatTensor;
use warplap::Activation as Ours;

/// What is done to every element of a product, bias included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Activation {
    /// Nothing.
    #[default]
    None,
    /// The larger of the element and 0.
    Relu,
    /// x · Φ(x), by the error function.
    Gelu,
    /// The same by the hyperbolic tangent.
    GeluTanh,
    /// x · sigmoid(x).
    Silu,
    /// The hyperbolic tangent.
    Tanh,
    /// 1 / (1 + e^-x).
    Sigmoid,
}

/// √(2/π) and the cubic term of the form by the hyperbolic tangent.
const ROOT: f64 = 0.797_884_560_802_865_4;
const CUBIC: f64 = 0.044_715;

impl Activation {
    pub(crate) fn ours(self) -> Ours {
        match self {
            Activation::None => Ours::None,
            Activation::Relu => Ours::Relu,
            Activation::Gelu => Ours::Gelu,
            Activation::GeluTanh => Ours::GeluTanh,
            Activation::Silu => Ours::Silu,
            Activation::Tanh => Ours::Tanh,
            Activation::Sigmoid => Ours::Sigmoid,
        }
    }

    /// Applies it, by Burn's own operations.
    pub(crate) fn apply<B: Backend>(self, x: FloatTensor<B>) -> FloatTensor<B> {
        match self {
            Activation::None => x,
            Activation::Relu => B::relu(x),
            Activation::Gelu => B::gelu(x),
            Activation::Silu => B::float_mul(x.clone(), B::sigmoid(x)),
            Activation::Tanh => B::float_tanh(x),
            Activation::Sigmoid => B::sigmoid(x),
            Activation::GeluTanh => {
                let half = B::float_mul_scalar(x.clone(), 0.5.into());
                B::float_mul(half, B::float_add_scalar(B::float_tanh(inner::<B>(x)), 1.0.into()))
            }
        }
    }

    /// The gradient of what it was applied to, from that of what it gave. `x` is what it gave for [`Activation::Relu`]
    /// and what it was applied to otherwise.
    pub(crate) fn slope<B: Backend>(self, x: FloatTensor<B>, grad: FloatTensor<B>) -> FloatTensor<B> {
        match self {
            Activation::None => grad,
            Activation::Relu => B::relu_backward(x, grad),
            Activation::Gelu => B::gelu_backward(x, grad),
            Activation::Silu => {
                // s + x·s·(1 − s)
                let s = B::sigmoid(x.clone());
                let rest = B::float_add_scalar(B::float_neg(s.clone()), 1.0.into());
                let slope = B::float_add(s.clone(), B::float_mul(x, B::float_mul(s, rest)));
                B::float_mul(grad, slope)
            }
            Activation::Tanh => {
                // 1 − t²
                let t = B::float_tanh(x);
                let slope = B::float_add_scalar(B::float_neg(B::float_mul(t.clone(), t)), 1.0.into());
                B::float_mul(grad, slope)
            }
            Activation::Sigmoid => {
                // s·(1 − s)
                let s = B::sigmoid(x);
                let rest = B::float_add_scalar(B::float_neg(s.clone()), 1.0.into());
                B::float_mul(grad, B::float_mul(s, rest))
            }
            Activation::GeluTanh => {
                // (1 + t)/2 + x·(1 − t²)·u'/2, with t = tanh(u)
                let t = B::float_tanh(inner::<B>(x.clone()));
                let first = B::float_add_scalar(B::float_mul_scalar(t.clone(), 0.5.into()), 0.5.into());
                let square = B::float_add_scalar(B::float_neg(B::float_mul(t.clone(), t)), 1.0.into());
                let steep = B::float_mul_scalar(B::float_mul(x.clone(), x.clone()), (3.0 * CUBIC * ROOT).into());
                let steep = B::float_add_scalar(steep, ROOT.into());
                let second = B::float_mul(B::float_mul_scalar(x, 0.5.into()), B::float_mul(square, steep));
                B::float_mul(grad, B::float_add(first, second))
            }
        }
    }
}

/// √(2/π) · (x + 0.044715·x³)
fn inner<B: Backend>(x: FloatTensor<B>) -> FloatTensor<B> {
    let square = B::float_mul(x.clone(), x.clone());
    let factor = B::float_add_scalar(B::float_mul_scalar(square, (CUBIC * ROOT).into()), ROOT.into());
    B::float_mul(x, factor)
}
