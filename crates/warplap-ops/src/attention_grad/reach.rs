//! How far numbers reach on the way to attention's gradients, and what follows from it: how far a kernel may be off.

use warplap_core::dtype::DType;
use warplap_core::tolerance::Tolerance;

use crate::attention::{AttentionProblem, leaning};
use crate::philox::Dropout;
use crate::right::largest_row_norm;

/// The largest magnitudes met on the way.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Reach {
    /// Norms of rows of Q, K, V, O and dO.
    norms: [f64; 5],
    /// Elements of Q, K and dO.
    elements: [f64; 3],
    /// A query's: the sum of its weights, and the norm of their gradients of scores.
    query: [f64; 2],
    /// A key's: the sum of its weights, the norm of their gradients of scores, and their own.
    key: [f64; 3],
    /// A log-sum-exp.
    lse: f64,
}

/// Sums of what all queries that share a key have of it.
pub(crate) struct Columns {
    weights: Vec<f64>,
    squares: Vec<f64>,
    slopes: Vec<f64>,
}

impl Columns {
    pub(crate) fn new(keys: usize) -> Self {
        let zeros = || vec![0f64; keys];
        Columns { weights: zeros(), squares: zeros(), slopes: zeros() }
    }
}

fn most<'a>(all: impl IntoIterator<Item = &'a f64>) -> f64 {
    all.into_iter().fold(0f64, |most, x| most.max(x.abs()))
}

/// Half of the smallest step between numbers of f16.
const F16_STEP: f64 = 2.98e-8;

impl Reach {
    /// Numbers that a GPU brings.
    pub(crate) const PLACES: usize = 14;

    /// What a GPU found: norms as squares.
    pub(crate) fn of(magnitudes: &[f64]) -> Self {
        let root = |i: usize| magnitudes[i].sqrt();
        Reach {
            norms: std::array::from_fn(root),
            elements: std::array::from_fn(|i| magnitudes[5 + i]),
            query: [magnitudes[8], root(9)],
            key: [magnitudes[10], root(11), root(12)],
            lse: magnitudes[13],
        }
    }

    /// What log-sum-exps say.
    pub(crate) fn new(lse: &[f64]) -> Self {
        Reach { lse: most(lse.iter().filter(|x| x.is_finite())), ..Reach::default() }
    }

    /// What the rows of one head say: queries, keys, values, O and its gradient, each with the length of a row.
    pub(crate) fn head(&mut self, tensors: [(&[f64], usize); 5]) {
        for (norm, (all, width)) in self.norms.iter_mut().zip(tensors) {
            *norm = norm.max(largest_row_norm(all.len() / width, width, all));
        }
        for (element, place) in self.elements.iter_mut().zip([0, 1, 4]) {
            *element = element.max(most(tensors[place].0));
        }
    }

    /// What the weights of one query and their gradients say.
    pub(crate) fn row(&mut self, weights: &[f64], slopes: &[f64], seen: &mut Columns) {
        self.query[0] = self.query[0].max(weights.iter().sum());
        self.query[1] = self.query[1].max(slopes.iter().map(|x| x * x).sum::<f64>().sqrt());
        for (j, (weight, slope)) in weights.iter().zip(slopes).enumerate() {
            seen.weights[j] += weight;
            seen.squares[j] += weight * weight;
            seen.slopes[j] += slope * slope;
        }
    }

    /// What all keys of a head say once every query was met.
    pub(crate) fn columns(&mut self, seen: &Columns) {
        let met = [most(&seen.weights), most(&seen.slopes).sqrt(), most(&seen.squares).sqrt()];
        self.key.iter_mut().zip(met).for_each(|(key, met)| *key = key.max(met));
    }

    /// How large exponents may be, and differences of dP and delta.
    fn steps(&self, p: &AttentionProblem) -> [f64; 2] {
        let ([q, k, v, o, g], scale) = (self.norms, f64::from(p.scale().abs()));
        // What is kept of dropped weights grows, and few may be left of a row's: sums of those that are count as all.
        let grown = f64::from(Dropout::new(p.dropout()).grown);
        [1.0 + q * k * scale + self.lse + leaning(p), g * (v * grown + o) * grown]
    }

    /// How far sums of so many gradients of scores may be off whose weights add up to `weights` at the most: nothing is
    /// rounded on the way to them.
    pub(crate) fn of_scores(&self, p: &AttentionProblem, length: u64, weights: f64) -> Tolerance {
        let [exponents, slope] = self.steps(p);
        Tolerance::dot(p.dtype, DType::F32, length as usize, weights * exponents * slope)
    }

    /// How far dQ, dK and dV may be off. A score that is off by e makes its weight off by a factor 1 + e, and a gradient
    /// of a score is the difference of two products of rows, times the weight. Where storage is half precision, weights
    /// and gradients of scores may be rounded to it before the last products, as matrix units demand: independent
    /// roundings, so they add up like norms; the smallest numbers of f16 are rounded by steps.
    pub(crate) fn tolerances(&self, p: &AttentionProblem) -> [Tolerance; 3] {
        let (scale, [exponents, slope]) = (f64::from(p.scale().abs()), self.steps(p));
        let of = |length: u64, sum: f64, norm: f64, with: f64| {
            let mut tolerance = Tolerance::dot(p.dtype, DType::F32, length as usize, sum * exponents * with);
            if p.dtype != DType::F32 {
                let step = if p.dtype == DType::F16 { F16_STEP * (length as f64).sqrt() } else { 0.0 };
                tolerance.floor += 3.0 * (p.dtype.roundoff() * norm + step) * with;
            }
            tolerance
        };
        let ([q, k, g], queries) = (self.elements, p.sq * p.group());
        [
            of(p.sk, self.query[0] * slope, self.query[1], k * scale),
            of(queries, self.key[0] * slope, self.key[1], q * scale),
            of(queries, self.key[0], self.key[2], g),
        ]
    }
}
