//! A block-sparse product as text and as a key, and what it is raced as.

use warplap_core::bucket::Bucket;
use warplap_core::dtype::DType;
use warplap_core::problem::{FieldReader, Fields, MAX_SIZE, Problem, ProblemError};
use warplap_core::roofline::{Ceilings, Work};

use super::BsrProblem;
use super::factor::Factor;
use super::legal::{along_k, shape};
use super::pattern::Pattern;
use crate::gemm::Layout;

const DTYPES: &str = "one of f32, f16, bf16, f8e4m3";

/// The order of B where none is said.
pub(super) fn usual_order(dtype: DType) -> Layout {
    if dtype == DType::F8E4m3 { Layout::Col } else { Layout::Row }
}

/// The shortest decimal text that still reads as the same thing.
fn shortest(exact: f64, same: impl Fn(f64) -> bool) -> String {
    let texts = (0..=17).map(|digits| format!("{exact:.digits$}"));
    texts.into_iter().find(|t| t.parse().is_ok_and(&same)).unwrap_or_else(|| exact.to_string())
}

/// Half powers of two: `2^-3`, `2^-3.5`.
fn density_class(density: f64) -> String {
    if density == 0.0 { "empty".into() } else { format!("2^{}", (2.0 * density.log2()).round() / 2.0 + 0.0) }
}

fn imbalance_class(imbalance: f64) -> &'static str {
    // Rows that differ by the one block that rounding leaves are even.
    match imbalance {
        i if i < 1.25 => "1",
        i if i <= 2.0 => "2",
        i if i <= 4.0 => "4",
        i if i <= 8.0 => "8",
        _ => "more",
    }
}

impl Problem for BsrProblem {
    type Op = super::Bsr;

    const FIELDS: &'static [&'static str] = &[
        "m",
        "k",
        "n",
        "bs",
        "bc",
        "density",
        "dtype",
        "imbalance",
        "pattern",
        "b",
        "c",
        "alpha",
        "beta",
        "inplace",
        "bias",
        "turned",
        "tf32",
    ];

    fn fields(&self) -> Fields {
        let density = shortest(self.density(), |d| (0.0..=1.0).contains(&d) && self.blocks_at(d) == self.nnz);
        let fields = Fields::new()
            .with("m", self.m)
            .with("k", self.k)
            .with("n", self.n)
            .with("bs", self.bs)
            .with_unless("bc", self.bc, self.bs)
            .with("density", density)
            .with("dtype", self.dtype);
        let fields = if self.row_max == self.even_max() {
            fields
        } else {
            let same = |i: f64| i >= 1.0 && self.row_max_at(i) == self.row_max;
            fields.with("imbalance", shortest(self.imbalance(), same))
        };
        fields
            .with_unless("pattern", self.pattern, Pattern::Uniform)
            .with_unless("b", self.b, Layout::Row)
            .with_unless("c", self.c, Layout::Row)
            .with_unless("alpha", self.alpha, Factor::ONE)
            .with_unless("beta", self.beta, Factor::ZERO)
            .with_unless("inplace", self.in_place, false)
            .with_unless("bias", self.bias, false)
            .with_unless("turned", self.turned, false)
            .with_unless("tf32", self.tf32, false)
    }

    fn read(fields: &mut FieldReader) -> Result<Self, ProblemError> {
        let (m, k, n) = (fields.size("m")?, fields.size("k")?, fields.size("n")?);
        let bs = fields.size("bs")?;
        let bc = if fields.has("bc") { fields.size("bc")? } else { bs };
        shape((m, k, n), (bs, bc))?;
        let dense = fields.has("density");
        let density = fields.number_or("density", 0.0, 1.0, 0.0)?;
        if !dense {
            let expected = "the share of blocks that are stored, from 0 to 1".to_string();
            return Err(ProblemError::Missing { field: "density".into(), expected });
        }
        let dtype = fields.word_or("dtype", DTYPES, DType::F32)?;
        if !matches!(dtype, DType::F32 | DType::F16 | DType::Bf16 | DType::F8E4m3) {
            return Err(ProblemError::value("dtype", dtype, DTYPES));
        }
        let skewed = fields.has("imbalance");
        let imbalance = fields.number_or("imbalance", 1.0, MAX_SIZE as f64, 1.0)?;
        let pattern = fields.word_or("pattern", Pattern::EXPECTED, Pattern::Uniform)?;
        let b = fields.word_or("b", "row or col", usual_order(dtype))?;
        along_k(dtype, b)?;
        let c = fields.word_or("c", "row or col", Layout::Row)?;
        let alpha = fields.word_or("alpha", "a finite number", Factor::ONE)?;
        let bias = fields.word_or("bias", "true or false", false)?;
        // A bias that is not multiplied with anything is the usual one.
        let beta = fields.word_or("beta", "a finite number", if bias { Factor::ONE } else { Factor::ZERO })?;
        let in_place = fields.word_or("inplace", "true or false", false)?;
        if bias && (in_place || beta == Factor::ZERO) {
            let expected = "false, or a beta other than 0 and not in place: the bias is what is added";
            return Err(ProblemError::value("bias", bias, expected));
        }
        if in_place && beta == Factor::ZERO {
            return Err(ProblemError::value(
                "inplace",
                in_place,
                "false, or a beta other than 0: nothing is added to C",
            ));
        }
        let turned = fields.word_or("turned", "true or false", false)?;
        let tf32 = fields.word_or("tf32", "true or false", false)?;
        if tf32 && dtype != DType::F32 {
            return Err(ProblemError::value("tf32", tf32, "false, or dtype=f32: only f32 is rounded to tf32"));
        }
        let plain = Self::plain((m, k, n), (bs, bc), dtype);
        let p = BsrProblem { b, c, pattern, alpha, beta, in_place, bias, turned, tf32, ..plain };
        p.filled(density, skewed.then_some(imbalance))
    }

    fn key_fields(&self, bucket: &Bucket) -> Fields {
        let r = self.representative(bucket);
        // The values of the factors change nothing; whether there are any does.
        let scale = if self.is_scaled() { "alpha" } else { "1" };
        Fields::new()
            .with("m", r.m)
            .with("k", r.k)
            .with("n", r.n)
            .with("bs", self.bs)
            .with_unless("bc", self.bc, self.bs)
            .with("dtype", self.dtype)
            .with("b", self.b)
            .with_unless("c", self.c, Layout::Row)
            .with("density", density_class(self.density()))
            .with("imbalance", imbalance_class(self.imbalance()))
            .with_unless("scale", if self.adds() { "beta" } else { scale }, "1")
            .with_unless("inplace", self.in_place, false)
            .with_unless("bias", self.bias, false)
            .with_unless("turned", self.turned, false)
            .with_unless("tf32", self.tf32, false)
    }

    fn representative(&self, bucket: &Bucket) -> Self {
        if bucket.is_exact() {
            return *self;
        }
        let blocks = |name, size: u64, block: u64| {
            bucket.round(name, size).next_multiple_of(block).min(MAX_SIZE / block * block)
        };
        let mut r = *self;
        (r.m, r.k) = (blocks("m", self.m, self.bs), blocks("k", self.k, self.bc));
        // A vector stays a vector: it decides who may race.
        r.n = if self.n == 1 { 1 } else { bucket.round_changing("n", self.n) };
        // Rounding must not leave the legal range; where it does, the problem itself is raced.
        let even = self.row_max == self.even_max();
        r.filled(self.density(), (!even && self.nnz > 0).then(|| self.imbalance())).unwrap_or(*self)
    }

    fn smaller(&self) -> Option<Self> {
        let mut r = *self;
        (r.m, r.k, r.n) = (self.m.min(16 * self.bs), self.k.min(16 * self.bc), self.n.min(32));
        let r = r.filled(self.density(), None).ok()?;
        (r != *self && r.nnz > 0).then_some(r)
    }

    fn work(&self) -> Work {
        let (bc, n) = (self.bc as f64, self.n as f64);
        let values = self.values_len() as f64;
        // At least the columns of the fullest row are needed of B; which others are is not known from counts.
        let needed = self.row_max as f64 * bc * n;
        let indices = 4.0 * (self.nnz as f64 + self.rows() as f64 + 1.0);
        let c = self.m as f64 * n * if self.adds() && !self.bias { 2.0 } else { 1.0 };
        let bytes = (values + needed) * self.dtype.bytes() as f64 + c * self.out().bytes() as f64 + indices;
        Work { flops: 2.0 * values * n, bytes }
    }

    fn floor(&self, ceilings: &Ceilings, cold: bool) -> Option<f64> {
        match ceilings.tf32 {
            Some(rate) if self.tf32 => Some(ceilings.floor_at(self.work(), rate, cold)),
            _ if self.is_bytes() => ceilings.floor_of_bytes(self.work(), cold),
            _ => ceilings.floor(self.work(), self.dtype, cold),
        }
    }

    fn dtype(&self) -> DType {
        self.dtype
    }
}

#[cfg(test)]
#[path = "problem_tests.rs"]
mod tests;
