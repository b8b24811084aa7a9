//! Attention, declared: what its texts say, what a key keeps, what it is raced as, and how programs name it.

use warplap_core::bucket::Bucket;
use warplap_core::declare::{FieldFacts, Number, problem};
use warplap_core::dtype::DType;
use warplap_core::problem::{FieldReader, Fields, MAX_SIZE, Problem, ProblemError};
use warplap_core::roofline::Work;

use super::keys::{Paged, usual_pages};
use super::packed::Packed;
use super::sight::{Corner, Over};
use super::{Attention, AttentionProblem, Mask, Order, Tiles};

/// The scale where none is said.
pub(super) fn usual_scale(d: u64) -> f32 {
    (1.0 / (d as f64).sqrt()) as f32
}

/// The longest head: what vector kernels keep of one row stays in the second cache.
const MAX_HEAD: u64 = 1024;

/// The largest total of one buffer: 2^31 elements.
const MAX_ELEMENTS: u128 = 1 << 31;

/// Scores beyond this scale overflow f32 for ordinary inputs.
const MAX_SCALE: i64 = 65536;
const SCALE: &str = "a number from -65536 to 65536";
const CAP: &str = "a number from 0 to 65536";

problem! {
    /// What the text of an attention says, field by field.
    #[derive(Clone)]
    struct AttentionText {
        /// Batch: sequences.
        b: u64 = 1 => size().shown(),
        /// Heads of Q and O.
        h: u64 => size(),
        /// Queries; of the longest sequence where they are packed.
        sq: u64 => size(),
        /// Keys; of the longest sequence where they are packed.
        sk: u64 = sq => size().shown(),
        /// Elements of one query and one key.
        d: u64 => size(),
        /// Type of all buffers; scores, softmax and sums are kept in f32.
        dtype: DType = DType::F32 => float().shown(),
        /// Whether query i sees keys 0 … i only.
        causal: bool = false => flag().shown(),
        /// Heads of K and V; query head i reads head i / (h / hkv).
        hkv: u64 = h => size(),
        /// Elements of one value and one output row.
        dv: u64 = d => size(),
        /// What is added to the scaled scores.
        mask: Mask = Mask::None => other("one of none, add, bool, tiles"),
        /// Queries and keys of a square of mask=tiles, a power of two from 32 to 1024; 128 where it is left out.
        tile: u64 = 0 => size(),
        /// How many of a hundred squares of mask=tiles are looked at, about: what a race draws; 50 where it is left
        /// out.
        live: u64 = 0 => size(),
        /// What scores are multiplied with.
        scale: Number = Number::new(usual_scale(d)) => between::<{ -MAX_SCALE }, MAX_SCALE>(SCALE),
        /// Order of the dimensions of Q, K, V and O.
        layout: Order = Order::Bhsd => word(),
        /// How far the keys a query sees are from its own place at the most; 0 is no bound.
        window: u64 = 0 => size(),
        /// Where the diagonal begins.
        corner: Corner = Corner::Top => word(),
        /// What scores stay below by its tanh; 0 is nothing.
        softcap: Number = Number::new(0.0) => between::<0, MAX_SCALE>(CAP).made(Number::with_one_zero),
        /// Whether each head's slope times the distance of a key is taken from scores (ALiBi).
        alibi: bool = false => flag(),
        /// Who has a mask of its own.
        over: Over = Over::All => word(),
        /// The share of weights that are dropped.
        dropout: Number = Number::new(0.0) => share_below_one(),
        /// Whether the log-sum-exps of the scores are written too: what the backward pass begins with.
        lse: bool = false => flag(),
        /// Whether each batch says how many of the keys it has.
        lengths: bool = false => flag(),
        /// Keys of a page, where K and V are pools of pages.
        page: u64 = 0 => size(),
        /// Pages of a pool; as many as batches need where it is left out.
        pages: u64 = pages_of(b, sk, page) => size(),
        /// Queries of all sequences, where sequences lie one behind the other.
        tq: u64 = 0 => size(),
        /// Keys of all sequences, likewise.
        tk: u64 = tq => size(),
    }
}

fn pages_of(b: u64, sk: u64, page: u64) -> u64 {
    if page == 0 { 0 } else { usual_pages(b, sk.div_ceil(page)) }
}

impl AttentionText {
    fn of(p: &AttentionProblem) -> Self {
        let AttentionProblem { b, h, sq, sk, d, dtype, causal, hkv, dv, mask, layout, .. } = *p;
        let AttentionProblem { corner, alibi, over, lse, lengths, .. } = *p;
        let (Tiles { side: tile, live }, [tq, tk]) = (p.squares(), p.totals());
        let (scale, dropout) = (Number::new(p.scale()), Number::new(p.dropout()));
        let (softcap, window) = (Number::new(p.softcap().unwrap_or(0.0)), p.window.unwrap_or(0));
        let [page, pages] = p.paged.map_or([0, 0], |paged| [paged.page, paged.pages]);
        AttentionText {
            b,
            h,
            sq,
            sk,
            d,
            dtype,
            causal,
            hkv,
            dv,
            mask,
            tile,
            live,
            scale,
            layout,
            window,
            corner,
            softcap,
            alibi,
            over,
            dropout,
            lse,
            lengths,
            page,
            pages,
            tq,
            tk,
        }
    }

    fn problem(self) -> Result<AttentionProblem, ProblemError> {
        let AttentionText { page, pages, tq, tk, .. } = self;
        let mut p = AttentionProblem::new(self.b, self.h, self.sq, self.sk, self.d, self.dtype);
        (p.hkv, p.dv, p.causal, p.layout) = (self.hkv, self.dv, self.causal, self.layout);
        p.mask = Tiles::said(self.mask, self.tile, self.live)?;
        (p.lse, p.corner, p.alibi, p.over, p.lengths) = (self.lse, self.corner, self.alibi, self.over, self.lengths);
        p.window = (self.window > 0).then_some(self.window);
        p = p.with_scale(self.scale.get());
        if self.softcap.get() > 0.0 {
            p = p.with_softcap(self.softcap.get());
        }
        p = p.with_dropout(self.dropout.get()).unwrap_or(p);
        p.paged = (page > 0).then_some(Paged { page, pages });
        p.packed = (tq > 0).then_some(Packed { tq, tk });
        if page == 0 && pages > 0 {
            return Err(ProblemError::value("pages", pages, "the keys of a page beside it: page=16"));
        }
        p.check_totals(tk)?;
        p.check()?;
        Ok(p)
    }
}

impl Problem for AttentionProblem {
    type Op = Attention;

    const FIELDS: &'static [&'static str] = AttentionText::DECLARED;

    fn fields(&self) -> Fields {
        AttentionText::of(self).declared_fields()
    }

    fn read(fields: &mut FieldReader) -> Result<Self, ProblemError> {
        AttentionText::declared_read(fields)?.problem()
    }

    fn table(&self) -> Vec<FieldFacts> {
        AttentionText::of(self).declared_table()
    }

    fn check(&self) -> Result<(), ProblemError> {
        if self.over != Over::All && self.mask == Mask::None {
            return Err(ProblemError::value(
                "over",
                self.over,
                "a mask that it speaks of: mask=add, mask=bool or mask=tiles",
            ));
        }
        if !self.h.is_multiple_of(self.hkv) {
            return Err(ProblemError::value("hkv", self.hkv, format!("a divisor of h={}", self.h)));
        }
        for (name, width) in [("d", self.d), ("dv", self.dv)] {
            if width > MAX_HEAD {
                return Err(ProblemError::value(name, width, format!("a whole number from 1 to {MAX_HEAD}")));
            }
        }
        let wide = |sizes: [u64; 4]| sizes.iter().map(|s| u128::from(*s)).product::<u128>();
        let ([stretches, tall], [pieces, long]) = (self.stretches(), self.pieces());
        let [rows, keys] = match (self.packed.is_some(), self.paged.is_some()) {
            (true, _) => ["tq", "tk"],
            (_, true) => ["sq", "pages"],
            _ => ["sq", "sk"],
        };
        for (field, elements, what) in [
            (rows, wide([stretches, self.h, tall, self.d.max(self.dv)]), "Q and O"),
            (keys, wide([pieces, self.hkv, long, self.d.max(self.dv)]), "K and V"),
            (
                "mask",
                if self.mask == Mask::None {
                    0
                } else {
                    wide([self.masks()[0], self.masks()[1], self.mask_sides()[0], self.mask_sides()[1]])
                },
                "the mask",
            ),
        ] {
            if elements > MAX_ELEMENTS {
                return Err(ProblemError::value(field, elements, format!("at most {MAX_ELEMENTS} elements in {what}")));
            }
        }
        Ok(())
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

known! {
    /// Attention forward.
    Attention {
        aliases: ["sdpa"],
        // A seed points nowhere; page numbers and lengths are held against what there is before they are followed.
        guarded: true,
        example: "attention:b=1,h=8,sq=512,sk=512,d=64,dtype=f32,causal=false",
        cpu: "
# A prompt, a causal short one, one token against a long past.
attention:b=1,h=8,sq=512,sk=512,d=64,dtype=f32,causal=false
attention:b=1,h=8,sq=128,sk=128,d=64,dtype=f32,causal=true
attention:b=1,h=8,sq=1,sk=2048,d=64,dtype=f32,causal=false
",
        cuda: "
# A prompt, short and long, causal and with a mask; one token against a long past, with heads of its own and shared.
attention:b=1,h=8,sq=512,sk=512,d=64,dtype=f16,causal=false
attention:b=2,h=16,sq=2048,sk=2048,d=64,dtype=bf16,causal=false
attention:b=2,h=16,sq=2048,sk=2048,d=128,dtype=bf16,causal=true
attention:b=2,h=16,sq=1024,sk=1024,d=128,dtype=f16,causal=false,mask=add
attention:b=1,h=32,sq=1,sk=4096,d=128,dtype=bf16,causal=false
attention:b=1,h=32,sq=1,sk=16384,d=128,dtype=bf16,causal=false,hkv=8
",
    }
}

#[cfg(test)]
#[path = "op_tests.rs"]
mod tests;
