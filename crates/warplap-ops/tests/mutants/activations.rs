//! Activations that are right near zero and wrong far from it: exponentials end, overflow, or meet their like.

use half::bf16;
use warplap_core::arg::Arg;
use warplap_core::dtype::DType;
use warplap_core::rejection::Rejection;
use warplap_core::variant::Kernel;
use warplap_cpu::{Cpu, Slice, SliceMut};
use warplap_ops::gated::{GatedProblem, slot};
use warplap_ops::gemm::Activation;

/// What is done to one element.
type Of = fn(f32) -> f32;

/// A mutant's name, where it fits, and what it makes of an element.
type Wrong = (&'static str, fn(&GatedProblem) -> bool, Of);

pub(crate) const ACTIVATIONS: &[Wrong] = &[
    // A number far enough below zero, divided by the largest denominator there is, is a number.
    ("silu_over_at_most_2_to_60", silu, |x| x / (1.0 + (-x * LOG2_E).min(60.0).exp2())),
    ("silu_over_at_most_2_to_127", silu, |x| x / (1.0 + (-x).min(88.0).exp())),
    ("gelu_tanh_over_at_most_2_to_60", gelu_tanh, |x| x / (1.0 + (turned(x) * LOG2_E).min(60.0).exp2())),
    ("gelu_tanh_over_at_most_2_to_127", gelu_tanh, |x| x / (1.0 + turned(x).min(88.0).exp())),
    // Infinity over infinity.
    ("silu_by_a_growing_exponential", silu, |x| x * x.exp() / (1.0 + x.exp())),
    ("sigmoid_by_a_growing_exponential", sigmoid, |x| x.exp() / (1.0 + x.exp())),
    ("tanh_by_a_growing_exponential", tanh, |x| ((2.0 * x).exp() - 1.0) / ((2.0 * x).exp() + 1.0)),
    ("gelu_tanh_by_a_growing_exponential", gelu_tanh, |x| x * (-turned(x)).exp() / (1.0 + (-turned(x)).exp())),
];

const LOG2_E: f32 = std::f32::consts::LOG2_E;

/// What GELU in its tanh form has e to the power of.
fn turned(x: f32) -> f32 {
    -1.595_769 * (x + 0.044715 * x * x * x)
}

fn is(p: &GatedProblem, act: Activation) -> bool {
    p.act == act && p.dtype != DType::F16
}
fn silu(p: &GatedProblem) -> bool {
    is(p, Activation::Silu)
}
fn gelu_tanh(p: &GatedProblem) -> bool {
    is(p, Activation::GeluTanh)
}
fn tanh(p: &GatedProblem) -> bool {
    is(p, Activation::Tanh)
}
fn sigmoid(p: &GatedProblem) -> bool {
    is(p, Activation::Sigmoid)
}

/// The kernel of a mutant, for rows without padding that are multiplied.
pub(crate) fn built(_: &GatedProblem, of: Of) -> Box<dyn Kernel<Cpu>> {
    Box::new(Elements(of))
}

struct Elements(Of);

impl Kernel<Cpu> for Elements {
    fn launch(&self, args: &mut [Arg<'_, Cpu>], _: &()) -> Result<(), Rejection> {
        let (a, b) = (args[slot::A].read()?, args[slot::B].read()?);
        match (a, b, args[slot::Y].write()?) {
            (Slice::F32(a), Slice::F32(b), SliceMut::F32(y)) => {
                y.iter_mut().zip(a).zip(b).for_each(|((y, a), b)| *y = self.0(*a) * b);
            }
            (Slice::Bf16(a), Slice::Bf16(b), SliceMut::Bf16(y)) => {
                let one = |a: bf16, b: bf16| bf16::from_f32(self.0(a.to_f32()) * b.to_f32());
                y.iter_mut().zip(a).zip(b).for_each(|((y, a), b)| *y = one(*a, *b));
            }
            _ => {}
        }
        Ok(())
    }
}
