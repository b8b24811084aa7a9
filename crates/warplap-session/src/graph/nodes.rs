//! The nodes there are: each checks what it reads, and says what it gives.

use warplap_core::error::Error;
use warplap_ops::attention::AttentionProblem;
use warplap_ops::gemm::{Activation, Join, Layout};
use warplap_ops::norm::Kind;

use super::builder::{Builder, Facts, wrong};
use super::node::{Tensor, What};
use super::task::Ground;

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
        let name = self.name("softmax");
        let x = self.facts(&name, "x", x)?;
        self.node(name, What::Softmax, &[("x", &x)], x.shape.clone())
    }

    /// softmax(q·kᵀ / √d) · v, head by head: q is `[batch, heads, queries, d]`, k and v `[batch, heads, keys, d]` with as
    /// many heads as q or a divisor of that. `causal`: query i sees keys 0 … i.
    pub fn attention(&mut self, q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Result<Tensor, Error> {
        let name = self.name("attention");
        let (q, k) = (self.facts(&name, "q", q)?, self.facts(&name, "k", k)?);
        let v = self.facts(&name, "v", v)?;
        let [batch, heads, queries, d] = q.shape[..] else {
            return Err(wrong(&name, "q", format!("is {}, expected [batch, heads, queries, d]: reshape it", q.told())));
        };
        let [of, hkv, keys, wide] = k.shape[..] else {
            return Err(wrong(&name, "k", format!("is {}, expected [batch, heads, keys, d]: reshape it", k.told())));
        };
        if of != batch || wide != d || hkv == 0 || heads % hkv != 0 {
            let expected = format!("[{batch}, {heads} or a divisor of it, keys, {d}] as q is {:?}", q.shape);
            return Err(wrong(&name, "k", format!("is {}, expected {expected}", k.told())));
        }
        same(&name, "v", &v, &k.shape, "as k")?;
        let mut problem = AttentionProblem::new(batch, heads, queries, keys, d, q.dtype);
        (problem.hkv, problem.causal) = (hkv, causal);
        self.node(name, What::Attention(problem), &[("q", &q), ("k", &k), ("v", &v)], q.shape.clone())
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
                let reason = format!("is {}, expected [{form}] with k = {k}, the last size of x", w.told());
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

/// Checks a shape.
fn same(node: &str, field: &str, found: &Facts, shape: &[u64], why: &str) -> Result<(), Error> {
    match found.shape == shape {
        true => Ok(()),
        false => Err(wrong(node, field, format!("is {}, expected {shape:?}, {why}", found.told()))),
    }
}
