//! Dense products, declared: the facts of a request, and how programs name them.

use std::fmt::Display;
use std::hash::{Hash, Hasher};

use warplap_core::bucket::Bucket;
use warplap_core::declare::{declared, problem};
use warplap_core::dtype::DType;
use warplap_core::problem::{Fields, Problem, ProblemError};
use warplap_core::roofline::{Ceilings, Work};

use super::{Activation, Gemm, Join, Kind, Layout, Rms, Scale};
use crate::extent::MAX_ELEMENTS;

problem! {
    /// The facts of C (m×n) = act(scale ∘ (A (m×k) · B (k×n)) + bias), joined with another matrix where there is one,
    /// or of a batch of such products; with a pair, of act(A · B) ∘ (A · B2), either half scaled. The matrices of a
    /// batch follow each other without a gap: the next begins where a further line of the last would. All share one
    /// bias.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct GemmProblem {
        /// Rows of A and C.
        pub m: u64 => size(),
        /// Columns of B and C.
        pub n: u64 => size(),
        /// Columns of A, rows of B.
        pub k: u64 => size(),
        /// Type of A, B and C in memory; sums are kept in f32.
        pub dtype: DType = DType::F32 => float().shown(),
        /// Order of A.
        pub a: Layout = Layout::Row => word().always_in_key(),
        /// Order of B.
        pub b: Layout = Layout::Row => word().always_in_key(),
        /// Elements from one row (column) of A to the next.
        pub lda: u64 = line(a, k, m) => size().not_in_key(),
        /// Elements from one row (column) of B to the next.
        pub ldb: u64 = line(b, n, k) => size().not_in_key(),
        /// Elements from one row of C to the next.
        pub ldc: u64 = n => size().not_in_key(),
        /// The largest power of two up to 64 that divides every buffer's address in bytes.
        pub align: u64 = 64 => size().always_in_key(),
        /// Products in the batch.
        pub batch: u64 = 1 => size(),
        /// Whether the factors of an f32 product may be rounded to tf32 (eleven bits); sums are kept in f32 all the
        /// same.
        pub tf32: bool = false => flag(),
        /// Whether a bias is added, one element for each column of C.
        pub bias: bool = false => flag(),
        /// What is done to every element then.
        pub act: Activation = Activation::None => word(),
        /// How the element of another matrix is taken in last; it lies as C does.
        pub join: Join = Join::None => word(),
        /// Whether it is a pair: the activated product is multiplied with that of A and a second B, which lies as B
        /// does. A pair has no bias and joins nothing else.
        pub pair: bool = false => flag(),
        /// What the product is multiplied with before anything else; both halves of a pair are.
        pub scale: Scale = Scale::None => word(),
        /// Whether A's rows are divided by their root mean square, and what is added under the root: RMSNorm in front
        /// of a product, whose factors come out of it (scale is none then).
        pub rms: Option<Rms> = None => maybe(Rms::EXPECTED).whether_in_key(Option::is_some),
    }
}

/// Elements of a line of a matrix in an order: of a row, or of a column.
fn line(layout: Layout, row: u64, column: u64) -> u64 {
    if layout == Layout::Row { row } else { column }
}

/// Three words instead of eighteen fields: every call of a known problem hashes it.
impl Hash for GemmProblem {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        // Sizes have at most 21 bits (`MAX_SIZE`); larger ones only share a hash, they are still not equal.
        state.write_u64(self.m ^ self.n << 21 ^ self.k << 42);
        state.write_u64(self.lda ^ self.ldb << 21 ^ self.ldc << 42);
        let flags =
            (self.dtype as u64) << 8 ^ (self.a as u64) << 12 ^ (self.b as u64) << 13 ^ u64::from(self.tf32) << 14;
        let epilogue = u64::from(self.bias) << 15 ^ (self.act as u64) << 48 ^ (self.join as u64) << 56;
        let front = u64::from(self.pair) << 60 ^ (self.scale as u64) << 61 ^ u64::from(self.rms.is_some()) << 63;
        state.write_u64(self.align ^ flags ^ epilogue ^ front ^ self.batch << 16);
    }
}

impl GemmProblem {
    /// A product of row-major matrices without padding.
    pub fn new(m: u64, n: u64, k: u64, dtype: DType) -> Self {
        let (a, b, align, batch, tf32) = (Layout::Row, Layout::Row, 64, 1, false);
        let (bias, act, join, pair, scale, rms) = (false, Activation::None, Join::None, false, Scale::None, None);
        let (lda, ldb, ldc) = (k, n, n);
        GemmProblem { m, n, k, dtype, a, b, lda, ldb, ldc, align, batch, tf32, bias, act, join, pair, scale, rms }
    }

    /// A batch of so many such products.
    pub fn with_batch(self, batch: u64) -> Self {
        GemmProblem { batch, ..self }
    }

    /// The same product with a bias or an activation, or both.
    pub fn with_epilogue(self, bias: bool, act: Activation) -> Self {
        GemmProblem { bias, act, ..self }
    }

    /// The same product joined with another matrix.
    pub fn with_join(self, join: Join) -> Self {
        GemmProblem { join, ..self }
    }

    /// The activated product as the first of a pair.
    pub fn with_pair(self, pair: bool) -> Self {
        GemmProblem { pair, ..self }
    }

    /// The same product with factors.
    pub fn with_scale(self, scale: Scale) -> Self {
        GemmProblem { scale, ..self }
    }

    /// The same product behind an RMSNorm without a gain.
    pub fn with_rms(self, rms: Option<Rms>) -> Self {
        GemmProblem { rms, ..self }
    }

    /// Whether anything is done to the product before it is stored.
    pub fn has_epilogue(&self) -> bool {
        self.bias || self.act != Activation::None || self.join != Join::None || self.is_scaled()
    }

    /// Whether kernels multiply the product with factors: given ones, or those of an RMSNorm.
    pub fn is_scaled(&self) -> bool {
        self.scale != Scale::None || self.rms.is_some()
    }

    /// Rows of all products of the batch.
    pub fn rows(&self) -> u64 {
        self.m * self.batch
    }

    /// One product of the batch.
    pub fn single(&self) -> Self {
        GemmProblem { batch: 1, ..*self }
    }

    /// The same product with A and B in other orders, without padding.
    pub fn with_layouts(mut self, a: Layout, b: Layout) -> Self {
        (self.a, self.b) = (a, b);
        (self.lda, self.ldb) = self.packed();
        self
    }

    fn packed(&self) -> (u64, u64) {
        (line(self.a, self.k, self.m), line(self.b, self.n, self.k))
    }

    /// What kind of product it is.
    pub fn kind(&self) -> Kind {
        match (self.m, self.n) {
            (1, _) => Kind::VecMat,
            (_, 1) => Kind::MatVec,
            _ => Kind::General,
        }
    }

    /// Lines of A and elements of one: rows, or columns where those are contiguous.
    pub fn a_lines(&self) -> (u64, u64) {
        if self.a == Layout::Row { (self.m, self.k) } else { (self.k, self.m) }
    }

    /// Lines of B and elements of one.
    pub fn b_lines(&self) -> (u64, u64) {
        if self.b == Layout::Row { (self.k, self.n) } else { (self.n, self.k) }
    }

    /// Elements from one A, B and C of the batch to the next.
    pub fn strides(&self) -> [u64; 3] {
        [self.a_lines().0 * self.lda, self.b_lines().0 * self.ldb, self.m * self.ldc]
    }

    /// Elements A spans, all of the batch.
    pub fn a_len(&self) -> usize {
        self.span(self.a_lines(), self.lda)
    }

    /// Elements B spans, all of the batch.
    pub fn b_len(&self) -> usize {
        self.span(self.b_lines(), self.ldb)
    }

    /// Elements C spans, all of the batch.
    pub fn c_len(&self) -> usize {
        self.span((self.m, self.n), self.ldc)
    }

    fn span(&self, (lines, line): (u64, u64), ld: u64) -> usize {
        ((self.batch.max(1) * lines).max(1).saturating_sub(1)).saturating_mul(ld).saturating_add(line) as usize
    }

    /// Whether every matrix is one buffer.
    fn bounded(&self) -> Result<(), ProblemError> {
        for (field, (len, what)) in [("m", (self.a_len(), "A")), ("k", (self.b_len(), "B")), ("n", (self.c_len(), "C"))]
        {
            if len as u64 > MAX_ELEMENTS {
                return Err(ProblemError::value(field, len, format!("at most {MAX_ELEMENTS} elements in {what}")));
            }
        }
        Ok(())
    }

    /// Whether no matrix has padding.
    pub fn is_packed(&self) -> bool {
        (self.lda, self.ldb) == self.packed() && self.ldc == self.n
    }
}

impl Problem for GemmProblem {
    type Op = Gemm;

    declared!(text);

    fn check(&self) -> Result<(), ProblemError> {
        let (lda, ldb) = self.packed();
        for (name, ld, packed) in [("lda", self.lda, lda), ("ldb", self.ldb, ldb), ("ldc", self.ldc, self.n)] {
            if ld < packed {
                return Err(ProblemError::value(name, ld, format!("at least {packed}, the length of one line")));
            }
        }
        let wrong = |name: &str, value: &dyn Display, expected| Err(ProblemError::value(name, value, expected));
        match self {
            p if !p.align.is_power_of_two() || p.align > 64 || p.align < p.dtype.bytes() as u64 => {
                wrong("align", &p.align, "a power of two from the element's bytes to 64")
            }
            p if p.tf32 && p.dtype != DType::F32 => {
                wrong("tf32", &p.tf32, "false, or dtype=f32: only f32 is rounded to tf32")
            }
            p if p.pair && p.bias => wrong("bias", &p.bias, "false: a pair (pair=true) has no bias"),
            p if p.pair && p.join != Join::None => {
                wrong("join", &p.join, "none: a pair (pair=true) is joined with its own product")
            }
            p if p.rms.is_some() && p.scale != Scale::None => {
                wrong("scale", &p.scale, "none: the factors are those of rms")
            }
            p if p.rms.is_some() && p.a != Layout::Row => wrong("a", &p.a, "row: rms is that of contiguous rows"),
            p => p.bounded(),
        }
    }

    fn key_fields(&self, bucket: &Bucket) -> Fields {
        // How the leading dimensions lie decides cache conflicts and vector loads, their exact values do not.
        let factor = |ld: u64| (ld * self.dtype.bytes() as u64).trailing_zeros().min(12);
        let strides = [self.lda, self.ldb, self.ldc].map(|ld| factor(ld).to_string()).join("/");
        self.representative(bucket)
            .declared_key()
            .with_before("m", "kind", self.kind())
            .with_before("align", "padded", !self.is_packed())
            .with_before("align", "strides", strides)
    }

    fn representative(&self, bucket: &Bucket) -> Self {
        if bucket.is_exact() {
            return *self;
        }
        // A vector stays a vector: its kind decides who may race.
        let kept = |size, rounded| if size == 1 { 1 } else { rounded };
        let m = kept(self.m, bucket.round_changing("m", self.m));
        let (n, k) = (kept(self.n, bucket.round("n", self.n)), kept(self.k, bucket.round("k", self.k)));
        let mut r =
            GemmProblem::new(m, n, k, self.dtype).with_layouts(self.a, self.b).with_epilogue(self.bias, self.act);
        let batch = kept(self.batch, bucket.round_changing("batch", self.batch));
        (r.align, r.batch, r.tf32, r.join, r.pair) = (self.align, batch, self.tf32, self.join, self.pair);
        r.with_scale(self.scale).with_rms(self.rms)
    }

    fn ragged(&self) -> Option<Self> {
        // One short of a tile or one beyond it; what copies whole 16 bytes keeps being able to, and what cannot keeps
        // not.
        let cut = |size: u64, most: u64| match size {
            0..=2 | 8 => size,
            size if size.is_multiple_of(8) && size <= most => size - 8,
            size if size.is_multiple_of(8) => most,
            size => {
                let less = size.min(most) - 1;
                less - u64::from(less.is_multiple_of(8))
            }
        };
        let (m, n, k) = (cut(self.m, 264), cut(self.n, 264), cut(self.k, 136));
        let m = if self.a == Layout::Row && m > 1 { m - u64::from(m.is_multiple_of(8)) } else { m };
        let mut ragged =
            GemmProblem::new(m, n, k, self.dtype).with_layouts(self.a, self.b).with_epilogue(self.bias, self.act);
        (ragged.align, ragged.batch) = (self.align, self.batch.min(2));
        (ragged.tf32, ragged.join, ragged.pair) = (self.tf32, self.join, self.pair);
        (ragged.scale, ragged.rms) = (self.scale, self.rms);
        (ragged != *self && m * n * k > 0).then_some(ragged)
    }

    fn work(&self) -> Work {
        let (m, n, k, batch) = (self.m as f64, self.n as f64, self.k as f64, self.batch as f64);
        let has = [self.bias, self.act != Activation::None, self.join != Join::None, self.pair];
        let [bias, act, join, pair] = has.map(|has| f64::from(u8::from(has)));
        let elements = batch * (m * k + k * n * (1.0 + pair) + m * n * (1.0 + join)) + bias * n;
        // An activation counts as one operation, however it is computed.
        let scaled = f64::from(u8::from(self.is_scaled()));
        let each = 2.0 * k * (1.0 + pair) + bias + act + join + pair + scaled;
        let factors = if self.scale == Scale::Rows { 4.0 * batch * m } else { 0.0 };
        Work { flops: batch * m * n * each, bytes: elements * self.dtype.bytes() as f64 + factors }
    }

    fn dtype(&self) -> DType {
        self.dtype
    }

    fn floor(&self, ceilings: &Ceilings, cold: bool) -> Option<f64> {
        match ceilings.tf32 {
            Some(rate) if self.tf32 => Some(ceilings.floor_at(self.work(), rate, cold)),
            _ => ceilings.floor(self.work(), self.dtype, cold),
        }
    }
}

known! {
    /// Dense products, with what stands before and behind them.
    Gemm {
        aliases: ["matmul"],
        example: "gemm:m=1024,n=1024,k=1024,dtype=f32",
        cpu: "
# Square products: in the nearest cache, in the next one, and beyond.
gemm:m=64,n=64,k=64,dtype=f32
gemm:m=256,n=256,k=256,dtype=f32
gemm:m=512,n=512,k=512,dtype=f32
gemm:m=1024,n=1024,k=1024,dtype=f32
# A skinny product and a matrix times a vector: memory decides.
gemm:m=2048,n=16,k=2048,dtype=f32
gemm:m=4096,n=1,k=4096,dtype=f32
# Half storage, sums in f32.
gemm:m=512,n=512,k=512,dtype=bf16
# A layer with its bias and activation.
gemm:m=256,n=1024,k=512,dtype=f32,b=col,bias=true,act=gelu
# A layer that a residual is added to, and the half of a gated one.
gemm:m=256,n=512,k=1024,dtype=f32,b=col,bias=true,join=add
gemm:m=256,n=1024,k=512,dtype=f32,b=col,act=silu,join=mul
# Both products of a gated layer at once.
gemm:m=256,n=1024,k=512,dtype=f32,b=col,act=silu,pair=true
",
        cuda: "
# Square products: one wave and many.
gemm:m=1024,n=1024,k=1024,dtype=bf16
gemm:m=4096,n=4096,k=4096,dtype=bf16
# A layer of a language model: prompt, batch of tokens, one token.
gemm:m=4096,n=11008,k=4096,dtype=bf16
gemm:m=128,n=4096,k=4096,dtype=bf16
gemm:m=16,n=4096,k=4096,dtype=bf16
gemm:m=1,n=4096,k=4096,dtype=bf16
# The same layer with its bias and activation in the kernel.
gemm:m=4096,n=11008,k=4096,dtype=bf16,b=col,bias=true,act=gelu_tanh
# With a residual, and the half of a gated layer.
gemm:m=4096,n=4096,k=11008,dtype=bf16,b=col,join=add
gemm:m=4096,n=11008,k=4096,dtype=bf16,b=col,act=silu,join=mul
# Both products of a gated layer at once: prompt, batch of tokens, few tokens.
gemm:m=4096,n=11008,k=4096,dtype=bf16,b=col,act=silu,pair=true
gemm:m=256,n=11008,k=4096,dtype=bf16,b=col,act=silu,pair=true
gemm:m=16,n=11008,k=4096,dtype=bf16,b=col,act=silu,pair=true
# Sizes that no tile divides.
gemm:m=1000,n=1000,k=1000,dtype=f16
# Plain f32.
gemm:m=2048,n=2048,k=2048,dtype=f32
",
    }
}

#[cfg(test)]
#[path = "op_tests.rs"]
mod tests;
