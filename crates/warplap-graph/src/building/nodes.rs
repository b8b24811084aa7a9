//! The nodes there are: each checks what it reads, and says what it gives.

use warplap_core::error::Error;
use warplap_ops::gemm::{Activation, Join, Layout};
use warplap_ops::norm::Kind;
use warplap_ops::softmax::SoftmaxProblem;

use crate::builder::{Builder, Facts, same, wrong};
use crate::node::{Tensor, What};
use crate::task::Ground;

impl<D: Ground> Builder<D> {
    /// a + b, element by element.
    pub fn add(&mut self, a: Tensor, b: Tensor) -> Result<Tensor, Error> {
        self.joined("add", Activation::None, Join::Add, a, b)
    }

    /// a ∘ b, element by element.
    pub fn mul(&mut self, a: Tensor, b: Tensor) -> Result<Tensor, Error> {
        self.joined("mul", Activation::None, Join::Mul, a, b)
    }

    /// act(a) ∘ b, element by element.
    pub fn gated(&mut self, a: Tensor, b: Tensor, act: Activation) -> Result<Tensor, Error> {
        self.joined("gated", act, Join::Mul, a, b)
    }

    /// An activation, element by element.
    pub fn activation(&mut self, x: Tensor, act: Activation) -> Result<Tensor, Error> {
        let name = self.name(act.name());
        let x = self.facts(&name, "x", x)?;
        self.node(name, What::Element { act, join: Join::None }, &[("x", &x)], x.shape.clone())
    }

    /// max(x, 0).
    pub fn relu(&mut self, x: Tensor) -> Result<Tensor, Error> {
        self.activation(x, Activation::Relu)
    }

    /// GELU by the error function.
    pub fn gelu(&mut self, x: Tensor) -> Result<Tensor, Error> {
        self.activation(x, Activation::Gelu)
    }

    /// x · sigmoid(x).
    pub fn silu(&mut self, x: Tensor) -> Result<Tensor, Error> {
        self.activation(x, Activation::Silu)
    }

    /// x · wᵀ over the last size of x (…×k); w is n×k, as layers keep it.
    pub fn linear(&mut self, x: Tensor, w: Tensor) -> Result<Tensor, Error> {
        self.product("linear", Layout::Col, x, w, None)
    }

    /// x · wᵀ + bias; the bias has n numbers.
    pub fn linear_bias(&mut self, x: Tensor, w: Tensor, bias: Tensor) -> Result<Tensor, Error> {
        self.product("linear", Layout::Col, x, w, Some(bias))
    }

    /// x · w over the last size of x (…×k); w is k×n.
    pub fn matmul(&mut self, x: Tensor, w: Tensor) -> Result<Tensor, Error> {
        self.product("matmul", Layout::Row, x, w, None)
    }

    /// RMSNorm of rows with a weight of n numbers.
    pub fn rms_norm(&mut self, x: Tensor, weight: Tensor, eps: f32) -> Result<Tensor, Error> {
        self.norm(x, Kind::Rms, Some(weight), None, eps)
    }

    /// LayerNorm of rows with a weight and a bias of n numbers each.
    pub fn layer_norm(&mut self, x: Tensor, weight: Tensor, bias: Tensor, eps: f32) -> Result<Tensor, Error> {
        self.norm(x, Kind::Layer, Some(weight), Some(bias), eps)
    }

    /// A norm of rows, with a weight and a bias of n numbers each where there are.
    pub fn norm(
        &mut self,
        x: Tensor,
        kind: Kind,
        weight: Option<Tensor>,
        bias: Option<Tensor>,
        eps: f32,
    ) -> Result<Tensor, Error> {
        let name = self.name(if kind == Kind::Rms { "rms_norm" } else { "layer_norm" });
        // The text form has its limits: a number that it does not take would be another one behind.
        if !(1e-20..=1.0).contains(&eps) {
            return Err(wrong(&name, "eps", format!("is {eps}, expected a number from 1e-20 to 1")));
        }
        let x = self.facts(&name, "x", x)?;
        let columns = [("weight", weight), ("bias", bias)];
        let what = What::Norm { kind, weight: weight.is_some(), bias: bias.is_some(), eps };
        let mut reads = vec![("x", x.clone())];
        for (field, tensor) in columns.into_iter().filter_map(|(field, tensor)| Some((field, tensor?))) {
            let facts = self.facts(&name, field, tensor)?;
            same(&name, field, &facts, &[x.n()], "one number a column of x")?;
            reads.push((field, facts));
        }
        let reads: Vec<(&str, &Facts)> = reads.iter().map(|(field, facts)| (*field, facts)).collect();
        self.node(name, what, &reads, x.shape.clone())
    }

    /// Softmax over the last size of x.
    pub fn softmax(&mut self, x: Tensor) -> Result<Tensor, Error> {
        self.softmax_of(x, None, 1.0)
    }

    /// softmax(scale · x) over the last size of x.
    pub fn softmax_scaled(&mut self, x: Tensor, scale: f32) -> Result<Tensor, Error> {
        self.softmax_of(x, None, scale)
    }

    /// softmax(scale · x + mask) over the last size of x. The mask has the sizes of x, or 1 where one of its rows is
    /// for several of x: in front, behind, or both, of those sizes that are not 1. Sizes in front may be left out. It
    /// may hold -inf.
    pub fn softmax_masked(&mut self, x: Tensor, mask: Tensor, scale: f32) -> Result<Tensor, Error> {
        self.softmax_of(x, Some(mask), scale)
    }

    fn softmax_of(&mut self, x: Tensor, mask: Option<Tensor>, scale: f32) -> Result<Tensor, Error> {
        let name = self.name("softmax");
        let x = self.facts(&name, "x", x)?;
        let rows = x.shape.iter().rev().skip(1).product();
        let plain = SoftmaxProblem::new(rows, x.n(), x.dtype).with_scale(scale);
        let reason = || wrong(&name, "scale", format!("is {scale}, expected a finite number"));
        let mut problem = plain.ok_or_else(reason)?;
        let mask = mask.map(|mask| self.facts(&name, "mask", mask)).transpose()?;
        if let Some(mask) = &mask {
            let expected = || {
                format!("is {}, expected {:?} or 1 in the place of sizes in front or behind", mask.describe(), x.shape)
            };
            (problem.mask, problem.each) =
                repeated(&x.shape, &mask.shape).ok_or_else(|| wrong(&name, "mask", expected()))?;
        }
        let mut reads = vec![("x", &x)];
        reads.extend(mask.iter().map(|mask| ("mask", mask)));
        self.node(name, What::Softmax(problem), &reads, x.shape.clone())
    }

    /// The same numbers under another shape: nothing is computed.
    pub fn reshape(&mut self, x: Tensor, shape: &[u64]) -> Result<Tensor, Error> {
        let x = self.facts("reshape", "x", x)?;
        let (have, want) = (x.shape.iter().product::<u64>(), shape.iter().product::<u64>());
        match have == want {
            true => Ok(self.tensor(x.value, x.dtype, shape.to_vec())),
            false => Err(wrong("reshape", "shape", format!("{shape:?} holds {want} numbers, expected {have} as x"))),
        }
    }

    fn joined(&mut self, word: &str, act: Activation, join: Join, a: Tensor, b: Tensor) -> Result<Tensor, Error> {
        let name = self.name(word);
        let (a, b) = (self.facts(&name, "a", a)?, self.facts(&name, "b", b)?);
        same(&name, "b", &b, &a.shape, "as a: nothing is repeated, reshape or write it out")?;
        self.node(name, What::Element { act, join }, &[("a", &a), ("b", &b)], a.shape.clone())
    }

    fn product(
        &mut self,
        word: &str,
        layout: Layout,
        x: Tensor,
        w: Tensor,
        bias: Option<Tensor>,
    ) -> Result<Tensor, Error> {
        let name = self.name(word);
        let (x, w) = (self.facts(&name, "x", x)?, self.facts(&name, "w", w)?);
        let k = x.n();
        let n = match (layout, &w.shape[..]) {
            (Layout::Col, [n, wide]) if *wide == k => *n,
            (Layout::Row, [deep, n]) if *deep == k => *n,
            _ => {
                let (form, other) = if layout == Layout::Col { ("n, k", "matmul") } else { ("k, n", "linear") };
                let reason = format!("is {}, expected [{form}] with k = {k}, the last size of x", w.describe());
                return Err(wrong(&name, "w", format!("{reason}; {other} takes it the other way round")));
            }
        };
        let bias = bias.map(|bias| self.facts(&name, "bias", bias)).transpose()?;
        if let Some(bias) = &bias {
            same(&name, "bias", bias, &[n], "one number a row of w")?;
        }
        let shape = [&x.shape[..x.shape.len().saturating_sub(1)], &[n]].concat();
        let mut reads = vec![("x", &x), ("w", &w)];
        reads.extend(bias.iter().map(|bias| ("bias", bias)));
        self.node(name, What::Product { w: layout, bias: bias.is_some() }, &reads, shape)
    }
}

/// Rows of a mask, and rows of x one after another that share one of them; `None` where that is not how it repeats.
fn repeated(x: &[u64], mask: &[u64]) -> Option<(u64, u64)> {
    let (n, rows) = x.split_last()?;
    let (_, mask) = mask.split_last().filter(|(own, _)| *own == n)?;
    let missing = rows.len().checked_sub(mask.len())?;
    let padded: Vec<u64> = std::iter::repeat_n(1, missing).chain(mask.iter().copied()).collect();
    // Sizes of 1 in x are as good as not there.
    let pairs: Vec<(u64, u64)> = rows.iter().copied().zip(padded).filter(|(x, _)| *x != 1).collect();
    let has = |(x, mask): &(u64, u64)| x == mask;
    let first = pairs.iter().position(has);
    let last = pairs.iter().rposition(has);
    let (Some(first), Some(last)) = (first, last) else {
        // One row for everybody.
        return pairs.iter().all(|(_, mask)| *mask == 1).then_some((1, 1));
    };
    let is_right =
        pairs.iter().enumerate().all(|(i, (x, mask))| if (first..=last).contains(&i) { x == mask } else { *mask == 1 });
    let product = |part: &[(u64, u64)]| part.iter().map(|(x, _)| x).product();
    is_right.then(|| (product(&pairs[first..=last]), product(&pairs[last + 1..])))
}

#[cfg(test)]
mod tests {
    use super::repeated;

    #[test]
    fn a_mask_repeats_in_front_and_behind() {
        for (x, mask, expected) in [
            (&[2, 3, 4, 5][..], &[2, 3, 4, 5][..], Some((24, 1))),
            (&[2, 3, 4, 5], &[4, 5], Some((4, 1))),
            (&[2, 3, 4, 5], &[1, 1, 4, 5], Some((4, 1))),
            (&[2, 3, 4, 5], &[2, 1, 1, 5], Some((2, 12))),
            (&[2, 3, 4, 5], &[1, 3, 1, 5], Some((3, 4))),
            (&[2, 1, 4, 5], &[2, 1, 4, 5], Some((8, 1))),
            (&[2, 3, 4, 5], &[5], Some((1, 1))),
            (&[2, 3, 4, 5], &[2, 1, 4, 5], None),
            (&[2, 3, 4, 5], &[4, 4], None),
            (&[2, 3, 4, 5], &[2, 2, 3, 4, 5], None),
            (&[2, 3, 4, 5], &[3, 5], None),
        ] {
            assert_eq!(repeated(x, mask), expected, "{x:?} {mask:?}");
        }
    }
}
