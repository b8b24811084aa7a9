//! The facts of one attention request.

use std::fmt;
use std::str::FromStr;

use warplap_core::bucket::Bucket;
use warplap_core::dtype::DType;
use warplap_core::problem::{FieldReader, Fields, MAX_SIZE, Problem, ProblemError};
use warplap_core::roofline::Work;

use super::keys::{Paged, lengths, usual_pages};
use super::sight::{Corner, Over, Sight};

/// The order of the four dimensions in memory, outermost first. Rows of one head are contiguous in both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Order {
    /// Batch, head, position, element.
    #[default]
    Bhsd,
    /// Batch, position, head, element.
    Bshd,
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Order::Bhsd { "bhsd" } else { "bshd" })
    }
}

impl FromStr for Order {
    type Err = ();
    fn from_str(text: &str) -> Result<Self, ()> {
        match text {
            "bhsd" => Ok(Order::Bhsd),
            "bshd" => Ok(Order::Bshd),
            _ => Err(()),
        }
    }
}

/// What is added to the scaled scores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mask {
    /// Nothing.
    #[default]
    None,
    /// Row-major sq×sk matrices of the problem's type, one for all or one for each of [`Over`]. Entries may be -inf.
    Add,
    /// The same of bytes: a zero hides a key from a query, everything else leaves the score as it is.
    Bool,
}

impl fmt::Display for Mask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Mask::None => "none",
            Mask::Add => "add",
            Mask::Bool => "bool",
        })
    }
}

impl FromStr for Mask {
    type Err = ();
    fn from_str(text: &str) -> Result<Self, ()> {
        match text {
            "none" => Ok(Mask::None),
            "add" => Ok(Mask::Add),
            "bool" => Ok(Mask::Bool),
            _ => Err(()),
        }
    }
}

/// The facts of O = softmax(scale · Q·Kᵀ + mask) · V, head by head.
///
/// `causal` is torch's `is_causal`: query i sees keys 0 … i (the lower triangle from the top left corner), also where
/// `sq` and `sk` differ, unless `corner=bottom` moves the diagonal to the last query and key. A query that sees no key
/// gets a row of zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AttentionProblem {
    /// Batch.
    pub b: u64,
    /// Heads of Q and O.
    pub h: u64,
    /// Heads of K and V; query head `i` reads head `i / (h / hkv)`.
    pub hkv: u64,
    /// Queries.
    pub sq: u64,
    /// Keys.
    pub sk: u64,
    /// Elements of one query and one key.
    pub d: u64,
    /// Elements of one value and one output row.
    pub dv: u64,
    /// Type of all buffers; scores, softmax and sums are kept in f32.
    pub dtype: DType,
    /// Whether query i sees keys 0 … i only.
    pub causal: bool,
    /// What is added to the scaled scores.
    pub mask: Mask,
    /// The bits of the f32 that scores are multiplied with.
    scale: u32,
    /// Order of the dimensions of Q, K, V and O.
    pub layout: Order,
    /// Whether the log-sum-exps of the scores are written too: what the backward pass begins with.
    pub lse: bool,
    /// How far the keys a query sees are from its own place at the most.
    pub window: Option<u64>,
    /// Where the diagonal begins.
    pub corner: Corner,
    /// The bits of the f32 that scores stay below by its tanh; none is zero.
    softcap: u32,
    /// Whether each head's slope times the distance of a key is taken from scores (ALiBi).
    pub alibi: bool,
    /// Who has a mask of its own.
    pub over: Over,
    /// The bits of the f32 share of weights that are dropped.
    dropout: u32,
    /// Whether each batch says how many of the keys it has.
    pub lengths: bool,
    /// Where K and V are pools of pages, and each batch names its own.
    pub paged: Option<Paged>,
}

/// Elements from one batch, head and row to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Strides {
    /// From one batch to the next.
    pub batch: usize,
    /// From one head to the next.
    pub head: usize,
    /// From one row to the next.
    pub row: usize,
}

impl AttentionProblem {
    /// Attention with one size of head, no mask and scale 1/√d.
    pub fn new(b: u64, h: u64, sq: u64, sk: u64, d: u64, dtype: DType) -> Self {
        AttentionProblem {
            b,
            h,
            hkv: h,
            sq,
            sk,
            d,
            dv: d,
            dtype,
            causal: false,
            mask: Mask::None,
            scale: usual_scale(d).to_bits(),
            layout: Order::Bhsd,
            lse: false,
            window: None,
            corner: Corner::Top,
            softcap: 0,
            alibi: false,
            over: Over::All,
            dropout: 0,
            lengths: false,
            paged: None,
        }
    }

    /// What scores are multiplied with.
    pub fn scale(&self) -> f32 {
        f32::from_bits(self.scale)
    }

    /// The same problem with another scale.
    pub fn with_scale(mut self, scale: f32) -> Self {
        self.scale = scale.to_bits();
        self
    }

    /// What scores stay below, where there is something.
    pub fn softcap(&self) -> Option<f32> {
        (self.softcap != 0).then(|| f32::from_bits(self.softcap))
    }

    /// The same problem with scores that stay below a number.
    pub fn with_softcap(mut self, cap: f32) -> Self {
        self.softcap = cap.to_bits();
        self
    }

    /// The share of weights that are dropped; what is kept grows by as much as is missing.
    pub fn dropout(&self) -> f32 {
        f32::from_bits(self.dropout)
    }

    /// The same problem with another share; `None` where it is not from 0 to below 1.
    pub fn with_dropout(mut self, share: f32) -> Option<Self> {
        self.dropout = (share + 0.0).to_bits();
        (0.0..1.0).contains(&share).then_some(self)
    }

    /// What queries see, where a batch has all keys.
    pub fn sight(&self) -> Sight {
        Sight::of(self, self.sk)
    }

    /// What queries see in a batch that has the first of the keys: the last corner is at the last of these.
    pub fn sight_of(&self, keys: usize) -> Sight {
        Sight::of(self, keys as u64)
    }

    /// Whether keys lie in pages, or each batch has a number of its own.
    pub fn is_uneven(&self) -> bool {
        self.lengths || self.paged.is_some()
    }

    /// Page numbers of one batch.
    pub fn entries(&self) -> u64 {
        self.paged.map_or(0, |paged| self.sk.div_ceil(paged.page))
    }

    /// So many pages that every batch has its own, and a few that nobody names.
    fn usual_pages(&self) -> u64 {
        usual_pages(self.b, self.entries())
    }

    /// The same problem with pools no larger than its batches need.
    fn with_few_pages(mut self) -> Self {
        if let Some(Paged { page, pages }) = self.paged {
            self.paged = Some(Paged { page, pages: pages.min(self.usual_pages()) });
        }
        self
    }

    /// Whether scores are more than products with a scale and something added.
    pub fn is_bent(&self) -> bool {
        self.softcap != 0 || self.alibi || self.mask == Mask::Bool
    }

    /// Whether some query may see nothing, by its place alone.
    pub fn may_see_nothing(&self) -> bool {
        let (first, last) = (self.sight().of_query(0), self.sight().of_query(self.sq as usize - 1));
        first.is_empty() || last.is_empty() || self.is_uneven()
    }

    /// Masks by batch and by head.
    pub fn masks(&self) -> [u64; 2] {
        match self.over {
            Over::All => [1, 1],
            Over::Heads => [1, self.h],
            Over::Batches => [self.b, 1],
            Over::Each => [self.b, self.h],
        }
    }

    /// How masks lie in memory; those that are shared have a step of zero.
    pub fn mask_strides(&self) -> Strides {
        let ([batches, heads], one) = (self.masks(), (self.sq * self.sk) as usize);
        let batch = if batches > 1 { heads as usize * one } else { 0 };
        Strides { batch, head: if heads > 1 { one } else { 0 }, row: self.sk as usize }
    }

    /// Query heads that share one head of K and V.
    pub fn group(&self) -> u64 {
        self.h / self.hkv
    }

    fn strides(&self, heads: u64, rows: u64, width: u64) -> Strides {
        let (heads, rows, width) = (heads as usize, rows as usize, width as usize);
        let (head, row) = match self.layout {
            Order::Bhsd => (rows * width, width),
            Order::Bshd => (width, heads * width),
        };
        Strides { batch: heads * rows * width, head, row }
    }

    /// How Q lies in memory.
    pub fn q_strides(&self) -> Strides {
        self.strides(self.h, self.sq, self.d)
    }

    /// How many pieces K and V lie in, and keys of each: batches, or pages.
    pub fn pieces(&self) -> [u64; 2] {
        self.paged.map_or([self.b, self.sk], |paged| [paged.pages, paged.page])
    }

    /// How K lies in memory; from one page to the next where it lies in pages, not from batch to batch.
    pub fn k_strides(&self) -> Strides {
        self.strides(self.hkv, self.pieces()[1], self.d)
    }

    /// How V lies in memory, as K does.
    pub fn v_strides(&self) -> Strides {
        self.strides(self.hkv, self.pieces()[1], self.dv)
    }

    /// How O lies in memory.
    pub fn o_strides(&self) -> Strides {
        self.strides(self.h, self.sq, self.dv)
    }

    /// Elements of Q.
    pub fn q_len(&self) -> usize {
        (self.b * self.h * self.sq * self.d) as usize
    }

    /// Elements of K.
    pub fn k_len(&self) -> usize {
        (self.pieces().iter().product::<u64>() * self.hkv * self.d) as usize
    }

    /// Elements of V.
    pub fn v_len(&self) -> usize {
        (self.pieces().iter().product::<u64>() * self.hkv * self.dv) as usize
    }

    /// Elements of O.
    pub fn o_len(&self) -> usize {
        (self.b * self.h * self.sq * self.dv) as usize
    }

    /// Log-sum-exps: one a query.
    pub fn lse_len(&self) -> usize {
        (self.b * self.h * self.sq) as usize
    }

    /// Elements of the mask; none without one.
    pub fn mask_len(&self) -> usize {
        if self.mask == Mask::None { 0 } else { (self.masks().iter().product::<u64>() * self.sq * self.sk) as usize }
    }

    /// The type of the mask's elements.
    pub fn mask_dtype(&self) -> DType {
        if self.mask == Mask::Bool { DType::Bool } else { self.dtype }
    }

    /// Bytes of the mask that somebody looks at for certain.
    pub(crate) fn mask_bytes(&self) -> f64 {
        let pairs = self.masks().iter().product::<u64>() as f64 * self.pairs() as f64;
        if self.mask == Mask::None || self.is_uneven() { 0.0 } else { pairs * self.mask_dtype().bytes() as f64 }
    }

    /// Pairs of a query and a key it sees, in one head of a batch that has all keys.
    pub fn pairs(&self) -> u64 {
        if self.window.is_some() || self.corner == Corner::Bottom {
            return self.pairs_of(self.sk);
        }
        if !self.causal {
            return self.sq * self.sk;
        }
        let corner = self.sq.min(self.sk);
        corner * (corner + 1) / 2 + (self.sq - corner) * self.sk
    }

    /// The same of a batch that has the first of the keys.
    fn pairs_of(&self, keys: u64) -> u64 {
        let sight = Sight::of(self, keys);
        (0..self.sq as usize).map(|i| sight.of_query(i).len() as u64).sum()
    }

    /// Pairs of a query and a key it sees, in one head of each batch, and keys that somebody looks at, both summed over
    /// batches as they are drawn. What a page that nobody has hides is taken off: at most its own keys.
    fn seen(&self) -> [f64; 2] {
        // Nobody looks at the keys before the first query's or behind the last one's.
        let keys = |sight: Sight| sight.of_query(self.sq as usize - 1).end.saturating_sub(sight.of_query(0).start);
        let all = match self.lengths {
            false => [self.b as f64 * self.pairs() as f64, self.b as f64 * keys(self.sight()) as f64],
            true => lengths(self).fold([0.0; 2], |[pairs, seen], n| {
                [pairs + self.pairs_of(n) as f64, seen + keys(self.sight_of(n as usize)) as f64]
            }),
        };
        match self.paged {
            Some(Paged { page, pages }) => {
                let hidden = if self.b * self.entries() > 1 { page } else { 0 };
                let pairs = (all[0] - (hidden * self.sq) as f64).max(0.0);
                // Where there are fewer pages than entries, batches share them.
                [pairs, (all[1] - hidden as f64).clamp(0.0, (pages * page) as f64)]
            }
            None => all,
        }
    }
}

fn usual_scale(d: u64) -> f32 {
    (1.0 / (d as f64).sqrt()) as f32
}

/// The longest head: what vector kernels keep of one row stays in the second cache.
const MAX_HEAD: u64 = 1024;

/// The largest total of one buffer: 2^31 elements.
const MAX_ELEMENTS: u128 = 1 << 31;

/// Scores beyond this scale overflow f32 for ordinary inputs.
const MAX_SCALE: f64 = 65536.0;

impl Problem for AttentionProblem {
    type Op = super::Attention;

    const FIELDS: &'static [&'static str] = &[
        "b", "h", "sq", "sk", "d", "dtype", "causal", "hkv", "dv", "mask", "scale", "layout", "window", "corner",
        "softcap", "alibi", "over", "dropout", "lse", "lengths", "page", "pages",
    ];

    fn fields(&self) -> Fields {
        Fields::new()
            .with("b", self.b)
            .with("h", self.h)
            .with("sq", self.sq)
            .with("sk", self.sk)
            .with("d", self.d)
            .with("dtype", self.dtype)
            .with("causal", self.causal)
            .with_unless("hkv", self.hkv, self.h)
            .with_unless("dv", self.dv, self.d)
            .with_unless("mask", self.mask, Mask::None)
            .with_unless("scale", self.scale(), usual_scale(self.d))
            .with_unless("layout", self.layout, Order::Bhsd)
            .with_unless("window", self.window.unwrap_or(0), 0)
            .with_unless("corner", self.corner, Corner::Top)
            .with_unless("softcap", self.softcap().unwrap_or(0.0), 0.0)
            .with_unless("alibi", self.alibi, false)
            .with_unless("over", self.over, Over::All)
            .with_unless("dropout", self.dropout(), 0.0)
            .with_unless("lse", self.lse, false)
            .with_unless("lengths", self.lengths, false)
            .with_unless("page", self.paged.map_or(0, |paged| paged.page), 0)
            .with_unless(
                "pages",
                self.paged.map_or(0, |paged| paged.pages),
                self.paged.map_or(0, |_| self.usual_pages()),
            )
    }

    fn read(fields: &mut FieldReader) -> Result<Self, ProblemError> {
        // Every field is asked for before one is missed: what was never asked for counts as unknown.
        let (h, sq, d) = (fields.size("h"), fields.size("sq"), fields.size("d"));
        let b = fields.size_or("b", 1)?;
        let [sk, hkv, dv] = ["sk", "hkv", "dv"].map(|name| fields.size_or(name, 0));
        let (sk, hkv, dv) = (sk?, hkv?, dv?);
        let dtype = fields.word_or("dtype", "one of f32, f16, bf16", DType::F32)?;
        let causal = fields.word_or("causal", "true or false", false)?;
        let mask = fields.word_or("mask", "none, add or bool", Mask::None)?;
        let scale = fields.number_or("scale", -MAX_SCALE, MAX_SCALE, f64::NAN)?;
        let layout = fields.word_or("layout", "bhsd or bshd", Order::Bhsd)?;
        let lse = fields.word_or("lse", "true or false", false)?;
        let window = fields.size_or("window", 0)?;
        let corner = fields.word_or("corner", "top or bottom", Corner::Top)?;
        let softcap = fields.number_or("softcap", 0.0, MAX_SCALE, 0.0)?;
        let alibi = fields.word_or("alibi", "true or false", false)?;
        let over = fields.word_or("over", "all, heads, batches or each", Over::All)?;
        let share = "a number from 0 to below 1";
        let dropout = fields.word_or("dropout", share, 0.0)?;
        let lengths = fields.word_or("lengths", "true or false", false)?;
        let (page, pages) = (fields.size_or("page", 0)?, fields.size_or("pages", 0)?);
        let (h, sq, d) = (h?, sq?, d?);
        if !matches!(dtype, DType::F32 | DType::F16 | DType::Bf16) {
            return Err(ProblemError::value("dtype", dtype, "one of f32, f16, bf16"));
        }
        let or = |given: u64, usual: u64| if given == 0 { usual } else { given };
        let sk = or(sk, sq);
        let mut p = AttentionProblem::new(b, h, sq, sk, d, dtype);
        (p.hkv, p.dv, p.causal, p.mask, p.layout) = (or(hkv, h), or(dv, d), causal, mask, layout);
        (p.lse, p.window, p.corner, p.alibi, p.over) = (lse, (window > 0).then_some(window), corner, alibi, over);
        if softcap > 0.0 {
            p = p.with_softcap(softcap as f32);
        }
        p.lengths = lengths;
        if page > 0 {
            p.paged = Some(Paged { page, pages: or(pages, usual_pages(b, sk.div_ceil(page))) });
        } else if pages > 0 {
            return Err(ProblemError::value("pages", pages, "the keys of a page beside it: page=16"));
        }
        p = p.with_dropout(dropout).ok_or_else(|| ProblemError::value("dropout", dropout, share))?;
        if over != Over::All && mask == Mask::None {
            return Err(ProblemError::value("over", over, "a mask that it speaks of: mask=add or mask=bool"));
        }
        if !scale.is_nan() {
            p = p.with_scale(scale as f32);
        }
        if h % p.hkv != 0 {
            return Err(ProblemError::value("hkv", p.hkv, format!("a divisor of h={h}")));
        }
        for (name, width) in [("d", p.d), ("dv", p.dv)] {
            if width > MAX_HEAD {
                return Err(ProblemError::value(name, width, format!("a whole number from 1 to {MAX_HEAD}")));
            }
        }
        let wide = |sizes: [u64; 4]| sizes.iter().map(|s| u128::from(*s)).product::<u128>();
        let [pieces, long] = p.pieces();
        for (field, elements, what) in [
            ("sq", wide([b, h, sq, p.d.max(p.dv)]), "Q and O"),
            (if page > 0 { "pages" } else { "sk" }, wide([pieces, p.hkv, long, p.d.max(p.dv)]), "K and V"),
            ("mask", if p.mask == Mask::None { 0 } else { wide([p.masks()[0], p.masks()[1], sq, sk]) }, "the mask"),
        ] {
            if elements > MAX_ELEMENTS {
                return Err(ProblemError::value(field, elements, format!("at most {MAX_ELEMENTS} elements in {what}")));
            }
        }
        Ok(p)
    }

    fn key_fields(&self, bucket: &Bucket) -> Fields {
        let r = self.representative(bucket);
        // The scale is a number every kernel multiplies with: it decides neither who may race nor who wins.
        Fields::new()
            .with("b", r.b)
            .with("h", self.h)
            .with("hkv", self.hkv)
            .with("sq", r.sq)
            .with("sk", r.sk)
            .with("d", self.d)
            .with("dv", self.dv)
            .with("dtype", self.dtype)
            .with("causal", self.causal)
            .with("mask", self.mask)
            .with("layout", self.layout)
            .with_unless("window", self.window.unwrap_or(0), 0)
            .with_unless("corner", self.corner, Corner::Top)
            .with_unless("softcap", self.softcap != 0, false)
            .with_unless("alibi", self.alibi, false)
            .with_unless("over", self.over, Over::All)
            .with_unless("dropout", self.dropout != 0, false)
            .with_unless("lse", self.lse, false)
            // How large the pools are decides nothing.
            .with_unless("lengths", self.lengths, false)
            .with_unless("page", self.paged.map_or(0, |paged| paged.page), 0)
    }

    fn raced(&self) -> Self {
        self.with_few_pages()
    }

    fn representative(&self, bucket: &Bucket) -> Self {
        if bucket.is_exact() {
            return self.with_few_pages();
        }
        // One query stays one query: decoding is a matter of memory, not of arithmetic.
        let round = |name, size| if size == 1 { 1 } else { bucket.round_changing(name, size).min(MAX_SIZE) };
        let mut r = *self;
        (r.b, r.sq, r.sk) = (round("b", self.b), round("sq", self.sq), round("sk", self.sk));
        r.with_few_pages()
    }

    fn smaller(&self) -> Option<Self> {
        let (b, h, hkv) = (1, self.h / self.hkv, 1);
        let smaller =
            AttentionProblem { b, h, hkv, sq: self.sq.min(96), sk: self.sk.min(96), ..*self }.with_few_pages();
        (smaller != *self).then_some(smaller)
    }

    fn work(&self) -> Work {
        let ([pairs, keys], width) = (self.seen(), (self.d + self.dv) as f64);
        let elements = self.q_len() as f64 + self.o_len() as f64 + self.hkv as f64 * keys * width;
        let numbers = if self.lengths { self.b } else { self.b * self.entries() };
        let others = self.mask_bytes() + if self.lse { self.lse_len() as f64 * 4.0 } else { 0.0 };
        let bytes = elements * self.dtype.bytes() as f64 + others + numbers as f64 * 4.0;
        Work { flops: 2.0 * self.h as f64 * pairs * width, bytes }
    }

    fn dtype(&self) -> DType {
        self.dtype
    }
}

#[cfg(test)]
#[path = "problem_tests.rs"]
mod tests;
