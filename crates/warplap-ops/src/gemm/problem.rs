//! The facts of one dense product.

use std::hash::{Hash, Hasher};

use warplap_core::bucket::Bucket;
use warplap_core::dtype::DType;
use warplap_core::problem::{FieldReader, Fields, Problem, ProblemError};
use warplap_core::roofline::{Ceilings, Work};

use super::{Activation, Join, Kind, Layout, Rms, Scale};

/// The facts of C (m×n) = act(scale ∘ (A (m×k) · B (k×n)) + bias), joined with another matrix where there is one, or of a
/// batch of such products; with a pair, of act(A · B) ∘ (A · B2), either half scaled. The matrices of a batch follow each
/// other without a gap: the next begins where a further line of the last would. All share one bias.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GemmProblem {
    /// Rows of A and C.
    pub m: u64,
    /// Columns of B and C.
    pub n: u64,
    /// Columns of A, rows of B.
    pub k: u64,
    /// Type of A, B and C in memory; sums are kept in f32.
    pub dtype: DType,
    /// Order of A.
    pub a: Layout,
    /// Order of B.
    pub b: Layout,
    /// Elements from one row (column) of A to the next.
    pub lda: u64,
    /// Elements from one row (column) of B to the next.
    pub ldb: u64,
    /// Elements from one row of C to the next.
    pub ldc: u64,
    /// The largest power of two up to 64 that divides every buffer's address in bytes.
    pub align: u64,
    /// Products in the batch.
    pub batch: u64,
    /// Whether the factors of an f32 product may be rounded to tf32 (eleven bits); sums are kept in f32 all the same.
    pub tf32: bool,
    /// Whether a bias is added, one element for each column of C.
    pub bias: bool,
    /// What is done to every element then.
    pub act: Activation,
    /// How the element of another matrix is taken in last; it lies as C does.
    pub join: Join,
    /// Whether it is a pair: the activated product is multiplied with that of A and a second B, which lies as B does. A
    /// pair has no bias and joins nothing else.
    pub pair: bool,
    /// What the product is multiplied with before anything else; both halves of a pair are.
    pub scale: Scale,
    /// Whether A's rows are divided by their root mean square, and what is added under the root: RMSNorm in front of a
    /// product, whose factors come out of it (scale is none then).
    pub rms: Option<Rms>,
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
        let pick = |layout, row, col| if layout == Layout::Row { row } else { col };
        (pick(self.a, self.k, self.m), pick(self.b, self.n, self.k))
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

    /// Whether no matrix has padding.
    pub fn is_packed(&self) -> bool {
        (self.lda, self.ldb) == self.packed() && self.ldc == self.n
    }
}

/// The largest total of one matrix: 2^31 elements.
const MAX_ELEMENTS: u64 = 1 << 31;

impl Problem for GemmProblem {
    type Op = super::Gemm;

    const FIELDS: &'static [&'static str] = &[
        "m", "n", "k", "dtype", "a", "b", "lda", "ldb", "ldc", "align", "batch", "tf32", "bias", "act", "join", "pair",
        "scale", "rms",
    ];

    fn fields(&self) -> Fields {
        let (lda, ldb) = self.packed();
        let fields = Fields::new()
            .with("m", self.m)
            .with("n", self.n)
            .with("k", self.k)
            .with("dtype", self.dtype)
            .with_unless("a", self.a, Layout::Row)
            .with_unless("b", self.b, Layout::Row)
            .with_unless("lda", self.lda, lda)
            .with_unless("ldb", self.ldb, ldb)
            .with_unless("ldc", self.ldc, self.n)
            .with_unless("align", self.align, 64)
            .with_unless("batch", self.batch, 1)
            .with_unless("tf32", self.tf32, false)
            .with_unless("bias", self.bias, false)
            .with_unless("act", self.act, Activation::None)
            .with_unless("join", self.join, Join::None)
            .with_unless("pair", self.pair, false)
            .with_unless("scale", self.scale, Scale::None);
        match self.rms {
            Some(rms) => fields.with("rms", rms),
            None => fields,
        }
    }

    fn read(fields: &mut FieldReader) -> Result<Self, ProblemError> {
        let (m, n, k) = (fields.size("m")?, fields.size("n")?, fields.size("k")?);
        let dtype = fields.word_or("dtype", "one of f32, f16, bf16", DType::F32)?;
        if !matches!(dtype, DType::F32 | DType::F16 | DType::Bf16) {
            return Err(ProblemError::value("dtype", dtype, "one of f32, f16, bf16"));
        }
        let a = fields.word_or("a", "row or col", Layout::Row)?;
        let b = fields.word_or("b", "row or col", Layout::Row)?;
        let mut p = GemmProblem::new(m, n, k, dtype).with_layouts(a, b);
        for (name, ld) in [("lda", &mut p.lda), ("ldb", &mut p.ldb), ("ldc", &mut p.ldc)] {
            let packed = *ld;
            *ld = fields.size_or(name, packed)?;
            if *ld < packed {
                return Err(ProblemError::value(name, *ld, format!("at least {packed}, the length of one line")));
            }
        }
        p.align = fields.size_or("align", 64)?;
        if !p.align.is_power_of_two() || p.align > 64 || p.align < dtype.bytes() as u64 {
            return Err(ProblemError::value("align", p.align, "a power of two from the element's bytes to 64"));
        }
        p.batch = fields.size_or("batch", 1)?;
        p.tf32 = fields.word_or("tf32", "true or false", false)?;
        if p.tf32 && dtype != DType::F32 {
            return Err(ProblemError::value("tf32", p.tf32, "false, or dtype=f32: only f32 is rounded to tf32"));
        }
        p.bias = fields.word_or("bias", "true or false", false)?;
        p.act = fields.word_or("act", Activation::WORDS, Activation::None)?;
        p.join = fields.word_or("join", Join::WORDS, Join::None)?;
        p.pair = fields.word_or("pair", "true or false", false)?;
        if p.pair && p.bias {
            return Err(ProblemError::value("bias", p.bias, "false: a pair (pair=true) has no bias"));
        }
        if p.pair && p.join != Join::None {
            return Err(ProblemError::value("join", p.join, "none: a pair (pair=true) is joined with its own product"));
        }
        p.scale = fields.word_or("scale", Scale::WORDS, Scale::None)?;
        p.rms = fields.word_or("rms", Rms::WORDS, Rms::none())?.0;
        if p.rms.is_some() && p.scale != Scale::None {
            return Err(ProblemError::value("scale", p.scale, "none: the factors are those of rms"));
        }
        if p.rms.is_some() && p.a != Layout::Row {
            return Err(ProblemError::value("a", p.a, "row: rms is that of contiguous rows"));
        }
        for (field, (len, what)) in [("m", (p.a_len(), "A")), ("k", (p.b_len(), "B")), ("n", (p.c_len(), "C"))] {
            if len as u64 > MAX_ELEMENTS {
                return Err(ProblemError::value(field, len, format!("at most {MAX_ELEMENTS} elements in {what}")));
            }
        }
        Ok(p)
    }

    fn key_fields(&self, bucket: &Bucket) -> Fields {
        let r = self.representative(bucket);
        // How the leading dimensions lie decides cache conflicts and vector loads, their exact values do not.
        let factor = |ld: u64| (ld * self.dtype.bytes() as u64).trailing_zeros().min(12);
        let strides = [self.lda, self.ldb, self.ldc].map(|ld| factor(ld).to_string()).join("/");
        Fields::new()
            .with("kind", self.kind())
            .with("m", r.m)
            .with("n", r.n)
            .with("k", r.k)
            .with("dtype", self.dtype)
            .with("a", self.a)
            .with("b", self.b)
            .with("padded", !self.is_packed())
            .with("strides", strides)
            .with("align", self.align)
            .with_unless("batch", r.batch, 1)
            .with_unless("tf32", self.tf32, false)
            .with_unless("bias", self.bias, false)
            .with_unless("act", self.act, Activation::None)
            .with_unless("join", self.join, Join::None)
            .with_unless("pair", self.pair, false)
            .with_unless("scale", self.scale, Scale::None)
            .with_unless("rms", self.rms.is_some(), false)
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

#[cfg(test)]
#[path = "problem_tests.rs"]
mod tests;
