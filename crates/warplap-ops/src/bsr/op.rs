//! Block-sparse products, declared: what their texts say, what a key keeps, and how programs name them.

use warplap_core::bucket::Bucket;
use warplap_core::declare::{FieldFacts, FieldRule, Words, problem};
use warplap_core::dtype::DType;
use warplap_core::problem::{FieldReader, Fields, MAX_SIZE, Problem, ProblemError};
use warplap_core::roofline::{Ceilings, Work};

use super::factor::Factor;
use super::legal::{along_k, shape};
use super::pattern::Pattern;
use super::{Bsr, BsrProblem};
use crate::gemm::Layout;

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

problem! {
    /// What the text of a block-sparse product says: a share of blocks where the problem counts them.
    #[derive(Clone)]
    struct BsrText {
        /// Rows of A and C.
        m: u64 => size(),
        /// Columns of A, rows of B.
        k: u64 => size(),
        /// Columns of B and C.
        n: u64 => size(),
        /// Rows of one block: a multiple of 8 from 8 to 128.
        bs: u64 => size(),
        /// Columns of one block, likewise.
        bc: u64 = bs => size(),
        /// The share of blocks that are stored.
        density: String => FieldRule::new("number", read_density, String::clone, DENSITY),
        /// Type of the values and B in memory; sums are kept in f32. C has it too, but for products of f8e4m3.
        dtype: DType = DType::F32 => one_of(DTYPES).shown(),
        /// Blocks of the fullest block row over those of the mean one; as even as the pattern makes it where it is left
        /// out.
        imbalance: Option<String> = None => FieldRule::new("number", read_imbalance, said, IMBALANCE),
        /// How raced inputs are drawn. No part of the key: a user's own matrix has no such name.
        pattern: Pattern = Pattern::Uniform => word(),
        /// Order of B; row, but col where it is bytes.
        b: Option<Layout> = None => maybe(Layout::SENTENCE),
        /// Order of C and of the addend.
        c: Layout = Layout::Row => word(),
        /// What the product is multiplied with.
        alpha: Factor = Factor::ONE => other(FINITE),
        /// What the addend is multiplied with; there is none where this is 0. 1 where there is a bias, else 0.
        beta: Option<Factor> = None => maybe(FINITE),
        /// Whether the addend is C's own former elements, where beta is not 0; otherwise it is an argument of its own.
        in_place("inplace"): bool = false => flag(),
        /// Whether the addend is a bias: one element for each row of C, the same for all columns.
        bias: bool = false => flag(),
        /// Whether blocks are stored turned and elsewhere: block i of A is the transpose of stored block place[i].
        turned: bool = false => flag(),
        /// Whether the factors of an f32 product may be rounded to tf32 (eleven bits); sums are kept in f32 all the
        /// same.
        tf32: bool = false => flag(),
    }
}

const DENSITY: &str = "the share of blocks that are stored, from 0 to 1";
const IMBALANCE: &str = "a number from 1 to 1048576";
const FINITE: &str = "a finite number";
const DTYPES: &[DType] = &[DType::F32, DType::F16, DType::Bf16, DType::F8E4m3];

/// The text of a number in a range, as it stands there.
fn number(fields: &mut FieldReader, name: &str, low: f64, high: f64) -> Result<String, ProblemError> {
    fields.number_or(name, low, high, low).map(|number| number.to_string())
}

fn read_density(
    fields: &mut FieldReader,
    name: &str,
    expected: &str,
    _: Option<String>,
) -> Result<String, ProblemError> {
    match fields.has(name) {
        true => number(fields, name, 0.0, 1.0),
        false => fields.word(name, expected),
    }
}

fn read_imbalance(
    fields: &mut FieldReader,
    name: &str,
    _: &str,
    _: Option<Option<String>>,
) -> Result<Option<String>, ProblemError> {
    let is_said = fields.has(name);
    number(fields, name, 1.0, MAX_SIZE as f64).map(|number| is_said.then_some(number))
}

fn said(text: &Option<String>) -> String {
    text.clone().unwrap_or_default()
}

impl BsrText {
    fn of(p: &BsrProblem) -> Self {
        let BsrProblem { m, k, n, bs, bc, dtype, pattern, c, alpha, in_place, bias, turned, tf32, .. } = *p;
        let density = shortest(p.density(), |d| (0.0..=1.0).contains(&d) && p.blocks_at(d) == p.nnz);
        let same = |i: f64| i >= 1.0 && p.row_max_at(i) == p.row_max;
        let imbalance = (p.row_max != p.even_max()).then(|| shortest(p.imbalance(), same));
        let (b, beta) = ((p.b != Layout::Row).then_some(p.b), p.adds().then_some(p.beta));
        BsrText { m, k, n, bs, bc, density, dtype, imbalance, pattern, b, c, alpha, beta, in_place, bias, turned, tf32 }
    }

    fn problem(self) -> Result<BsrProblem, ProblemError> {
        let BsrText { m, k, n, bs, bc, dtype, pattern, c, alpha, in_place, bias, turned, tf32, .. } = self;
        shape((m, k, n), (bs, bc))?;
        let b = self.b.unwrap_or_else(|| usual_order(dtype));
        along_k(dtype, b)?;
        // A bias that is not multiplied with anything is the usual one.
        let beta = self.beta.unwrap_or(if bias { Factor::ONE } else { Factor::ZERO });
        if bias && (in_place || beta == Factor::ZERO) {
            let expected = "false, or a beta other than 0 and not in place: the bias is what is added";
            return Err(ProblemError::value("bias", bias, expected));
        }
        if in_place && beta == Factor::ZERO {
            let expected = "false, or a beta other than 0: nothing is added to C";
            return Err(ProblemError::value("inplace", in_place, expected));
        }
        if tf32 && dtype != DType::F32 {
            return Err(ProblemError::value("tf32", tf32, "false, or dtype=f32: only f32 is rounded to tf32"));
        }
        let plain = BsrProblem::plain((m, k, n), (bs, bc), dtype);
        let p = BsrProblem { b, c, pattern, alpha, beta, in_place, bias, turned, tf32, ..plain };
        let number = |text: &String| text.parse().unwrap_or(f64::NAN);
        p.filled(number(&self.density), self.imbalance.as_ref().map(number))
    }
}

impl Problem for BsrProblem {
    type Op = Bsr;

    const FIELDS: &'static [&'static str] = BsrText::DECLARED;

    fn fields(&self) -> Fields {
        BsrText::of(self).declared_fields()
    }

    fn read(fields: &mut FieldReader) -> Result<Self, ProblemError> {
        BsrText::declared_read(fields)?.problem()
    }

    fn table(&self) -> Vec<FieldFacts> {
        BsrText::of(self).declared_table()
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

known! {
    /// Block-sparse products.
    Bsr {
        aliases: ["bsr_matmul"],
        check: { cpu: super::check_on_cpu, cuda: super::check_on_cuda },
        example: "bsr:m=4096,k=4096,n=512,bs=64,density=0.125,dtype=f32",
        cpu: "
# An eighth of the blocks, and a twentieth of small ones.
bsr:m=2048,k=2048,n=512,bs=32,density=0.125,dtype=f32
bsr:m=2048,k=2048,n=512,bs=64,density=0.125,dtype=f32
bsr:m=2048,k=2048,n=512,bs=16,density=0.05,dtype=f32
",
        cuda: "
# An eighth of the blocks, and a twentieth of small ones.
bsr:m=4096,k=4096,n=4096,bs=64,density=0.125,dtype=f16
bsr:m=4096,k=4096,n=4096,bs=16,density=0.05,dtype=f16
# Bytes along k.
bsr:m=4096,k=4096,n=4096,bs=128,density=0.125,dtype=f8e4m3,b=col
",
    }
}

#[cfg(test)]
#[path = "op_tests.rs"]
mod tests;
