//! An attention request as text and as a key, and what it is raced as.

use warplap_core::bucket::Bucket;
use warplap_core::dtype::DType;
use warplap_core::problem::{FieldReader, Fields, MAX_SIZE, Problem, ProblemError};
use warplap_core::roofline::Work;

use super::keys::{Paged, usual_pages};
use super::packed::Packed;
use super::sight::{Corner, Over};
use super::{AttentionProblem, Mask, Order, Tiles};

/// The scale where none is said.
pub(super) fn usual_scale(d: u64) -> f32 {
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
        "softcap", "alibi", "over", "dropout", "lse", "lengths", "page", "pages", "tq", "tk", "tile", "live",
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
            .with_unless("tile", self.squares().side, 0)
            .with_unless("live", self.squares().live, 0)
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
            .with_unless("tq", self.totals()[0], 0)
            .with_unless("tk", self.totals()[1], self.totals()[0])
    }

    fn read(fields: &mut FieldReader) -> Result<Self, ProblemError> {
        // Every field is asked for before one is missed: what was never asked for counts as unknown.
        let (h, sq, d) = (fields.size("h"), fields.size("sq"), fields.size("d"));
        let b = fields.size_or("b", 1)?;
        let [sk, hkv, dv] = ["sk", "hkv", "dv"].map(|name| fields.size_or(name, 0));
        let (sk, hkv, dv) = (sk?, hkv?, dv?);
        let dtype = fields.word_or("dtype", "one of f32, f16, bf16", DType::F32)?;
        let causal = fields.word_or("causal", "true or false", false)?;
        let mask = fields.word_or("mask", "none, add, bool or tiles", Mask::None)?;
        let mask = Tiles::read(fields, mask)?;
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
        let (tq, tk) = (fields.size_or("tq", 0)?, fields.size_or("tk", 0)?);
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
        p.packed = (tq > 0).then(|| Packed { tq, tk: or(tk, tq) });
        p.check_totals(tk)?;
        p = p.with_dropout(dropout).ok_or_else(|| ProblemError::value("dropout", dropout, share))?;
        if over != Over::All && mask == Mask::None {
            return Err(ProblemError::value(
                "over",
                over,
                "a mask that it speaks of: mask=add, mask=bool or mask=tiles",
            ));
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
        let ([stretches, tall], [pieces, long]) = (p.stretches(), p.pieces());
        let [rows, keys] = match (tq > 0, page > 0) {
            (true, _) => ["tq", "tk"],
            (_, true) => ["sq", "pages"],
            _ => ["sq", "sk"],
        };
        for (field, elements, what) in [
            (rows, wide([stretches, h, tall, p.d.max(p.dv)]), "Q and O"),
            (keys, wide([pieces, p.hkv, long, p.d.max(p.dv)]), "K and V"),
            (
                "mask",
                if p.mask == Mask::None {
                    0
                } else {
                    wide([p.masks()[0], p.masks()[1], p.mask_sides()[0], p.mask_sides()[1]])
                },
                "the mask",
            ),
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
            .with_unless("tile", r.squares().side, 0)
            .with_unless("live", r.squares().live, 0)
            .with_unless("window", self.window.unwrap_or(0), 0)
            .with_unless("corner", self.corner, Corner::Top)
            .with_unless("softcap", self.softcap().is_some(), false)
            .with_unless("alibi", self.alibi, false)
            .with_unless("over", self.over, Over::All)
            .with_unless("dropout", self.dropout() != 0.0, false)
            .with_unless("lse", self.lse, false)
            // How large the pools are decides nothing.
            .with_unless("lengths", self.lengths, false)
            .with_unless("page", self.paged.map_or(0, |paged| paged.page), 0)
            .with_unless("tq", r.totals()[0], 0)
            .with_unless("tk", r.totals()[1], r.totals()[0])
    }

    fn raced(&self) -> Self {
        self.as_raced()
    }

    fn representative(&self, bucket: &Bucket) -> Self {
        if bucket.is_exact() {
            return self.as_raced();
        }
        // One query stays one query: decoding is a matter of memory, not of arithmetic.
        let round = |name, size| if size == 1 { 1 } else { bucket.round_changing(name, size).min(MAX_SIZE) };
        let mut r = *self;
        (r.b, r.sq, r.sk) = (round("b", self.b), round("sq", self.sq), round("sk", self.sk));
        if let Some(Packed { tq, tk }) = self.packed {
            r = r.with_totals(round("tq", tq), round("tk", tk));
        }
        r.as_raced()
    }

    fn smaller(&self) -> Option<Self> {
        let mut smaller = *self;
        (smaller.b, smaller.h, smaller.hkv) = (1, self.h / self.hkv, 1);
        // Two squares and a piece of a third, where there are squares.
        let most = self.mask.tiles().map_or(96, |tiles| 2 * tiles.side + 32);
        (smaller.sq, smaller.sk) = (self.sq.min(most), self.sk.min(most));
        if let Some(Packed { tq, tk }) = self.packed {
            // Sequences of unequal lengths, one of nothing among them.
            smaller.b = self.b.min(3);
            let packed = Packed { tq: tq.min(smaller.b * smaller.sq), tk: tk.min(smaller.b * smaller.sk) };
            smaller.packed = Some(packed);
        }
        let smaller = smaller.as_raced();
        (smaller != *self).then_some(smaller)
    }

    fn work(&self) -> Work {
        let ([pairs, keys], width) = (self.seen(), (self.d + self.dv) as f64);
        let elements = self.q_len() as f64 + self.o_len() as f64 + self.hkv as f64 * keys * width;
        let numbers = match self.packed {
            Some(_) => 2 * (self.b + 1),
            None if self.lengths => self.b,
            None => self.b * self.entries(),
        };
        let others = self.mask_bytes() + if self.lse { self.lse_len() as f64 * 4.0 } else { 0.0 };
        let bytes = elements * self.dtype.bytes() as f64 + others + numbers as f64 * 4.0;
        Work { flops: 2.0 * self.h as f64 * pairs * width, bytes }
    }

    fn dtype(&self) -> DType {
        self.dtype
    }
}

impl AttentionProblem {
    /// Squares where the mask is of them, else zeros.
    fn squares(&self) -> Tiles {
        self.mask.tiles().unwrap_or(Tiles { side: 0, live: 0 })
    }

    /// Rows of Q and of K where sequences are packed, else zeros.
    fn totals(&self) -> [u64; 2] {
        self.packed.map_or([0, 0], |packed| [packed.tq, packed.tk])
    }

    /// Whether sequences that are packed make up their totals; `tk` as it was said.
    fn check_totals(&self, tk: u64) -> Result<(), ProblemError> {
        let Some(packed) = self.packed else {
            let beside = "the queries of all sequences beside it: tq=4096";
            return if tk == 0 { Ok(()) } else { Err(ProblemError::value("tk", tk, beside)) };
        };
        if self.lengths || self.paged.is_some() {
            let alone = "nothing beside lengths or page: offsets say how many keys a sequence has";
            return Err(ProblemError::value("tq", packed.tq, alone));
        }
        for (name, total, of, longest) in [("tq", packed.tq, "sq", self.sq), ("tk", packed.tk, "sk", self.sk)] {
            let most = self.b * longest;
            if total > most {
                return Err(ProblemError::value(name, total, format!("at most b sequences of {of}: {most}")));
            }
        }
        Ok(())
    }

    /// The same problem with other totals, of so many sequences that most are about half as long as the longest: how
    /// many they are exactly decides less than how long the longest is and how much there is in all.
    fn with_totals(mut self, tq: u64, tk: u64) -> Self {
        let least = tq.div_ceil(self.sq).max(tk.div_ceil(self.sk));
        self.b = if self.sq > 1 { (2 * least).min(MAX_SIZE) } else { least };
        self.packed = Some(Packed { tq, tk });
        self
    }
}

#[cfg(test)]
#[path = "problem_tests.rs"]
mod tests;
