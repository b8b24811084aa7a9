//! The facts of one turn of heads by their positions.

use std::fmt;
use std::str::FromStr;

use warplap_core::bucket::Bucket;
use warplap_core::dtype::DType;
use warplap_core::problem::{FieldReader, Fields, MAX_SIZE, Problem, ProblemError};
use warplap_core::roofline::Work;

/// Which two elements of a head are turned together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Pairs {
    /// One of the first half and the one as far into the second (GPT-NeoX, Llama).
    #[default]
    Halves,
    /// Two that lie side by side (GPT-J).
    Interleaved,
}

impl fmt::Display for Pairs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Pairs::Halves { "halves" } else { "interleaved" })
    }
}

impl FromStr for Pairs {
    type Err = ();
    fn from_str(text: &str) -> Result<Self, ()> {
        match text {
            "halves" => Ok(Pairs::Halves),
            "interleaved" => Ok(Pairs::Interleaved),
            _ => Err(()),
        }
    }
}

/// Which row of the table a row is turned by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Positions {
    /// That of its own number, from the first on again after the last.
    #[default]
    Rows,
    /// That of a number of 32 bits beside it.
    I32,
    /// That of a number of 64 bits beside it.
    I64,
}

impl Positions {
    /// The type of the numbers, where there are some.
    pub fn dtype(self) -> Option<DType> {
        match self {
            Positions::Rows => None,
            Positions::I32 => Some(DType::I32),
            Positions::I64 => Some(DType::I64),
        }
    }
}

impl fmt::Display for Positions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Positions::Rows => "rows",
            Positions::I32 => "i32",
            Positions::I64 => "i64",
        })
    }
}

impl FromStr for Positions {
    type Err = ();
    fn from_str(text: &str) -> Result<Self, ()> {
        [Positions::Rows, Positions::I32, Positions::I64].into_iter().find(|p| p.to_string() == text).ok_or(())
    }
}

/// The facts of one turn. Heads of a row lie one after another without gaps; rows may have gaps between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RopeProblem {
    /// Rows: tokens.
    pub rows: u64,
    /// Heads of x.
    pub h: u64,
    /// Heads of k, a second tensor of as many rows; 0 where there is none.
    pub hk: u64,
    /// Elements of a head.
    pub d: u64,
    /// The first elements of a head that are turned; the others are kept.
    pub rot: u64,
    /// Rows of the table.
    pub n: u64,
    /// Type of heads and bias; arithmetic is in f32.
    pub dtype: DType,
    /// Type of cosines and sines.
    pub table: DType,
    /// Whether the table has a column for each element that is turned, not one for each pair.
    pub wide: bool,
    /// Which elements are turned together.
    pub pairs: Pairs,
    /// Which row of the table a row is turned by.
    pub positions: Positions,
    /// Heads at the end, of k where there is one, that are not turned: values in a fused projection.
    pub plain: u64,
    /// Whether each column has a number that is added before heads are turned.
    pub bias: bool,
    /// Whether heads are turned back: what a gradient is.
    pub back: bool,
    /// Whether the result takes the place of x and k.
    pub in_place: bool,
    /// Elements from a row of x to the next.
    pub ld: u64,
    /// Elements from a row of k to the next.
    pub ldk: u64,
    /// Elements from a row of the table to the next.
    pub ldt: u64,
}

/// The largest span of one buffer: 2^31 elements.
const MAX_ELEMENTS: u64 = 1 << 31;

impl RopeProblem {
    /// Columns of the table.
    pub fn columns(&self) -> u64 {
        if self.wide { self.rot } else { self.rot / 2 }
    }

    /// All heads, of x and of k behind them.
    pub fn heads(&self) -> u64 {
        self.h + self.hk
    }

    /// Heads that are turned.
    pub fn turned(&self) -> u64 {
        self.heads() - self.plain
    }

    /// Whether what is not turned is written too.
    pub fn writes_rest(&self) -> bool {
        self.bias || !self.in_place
    }

    /// The element that one of a head's first `rot` is turned with.
    pub(crate) fn other(&self, j: usize) -> usize {
        let half = self.rot as usize / 2;
        match self.pairs {
            Pairs::Halves => (j + half) % (2 * half),
            Pairs::Interleaved => j ^ 1,
        }
    }

    /// The column of an element in the table.
    pub(crate) fn column(&self, j: usize) -> usize {
        match self.pairs {
            _ if self.wide => j,
            Pairs::Halves => j % (self.rot as usize / 2),
            Pairs::Interleaved => j / 2,
        }
    }

    /// The column of the sine, and its sign, that an element takes its other one with: the first of a pair the other
    /// way than the second, and turned back with what its other one took it with.
    pub(crate) fn sine(&self, j: usize) -> (usize, f32) {
        let taken = if self.back { self.other(j) } else { j };
        (self.column(taken), if taken < self.other(taken) { -1.0 } else { 1.0 })
    }
}

/// A type that heads or tables have.
fn float(fields: &mut FieldReader, name: &str, usual: DType) -> Result<DType, ProblemError> {
    let expected = "one of f32, f16, bf16";
    let dtype = fields.word_or(name, expected, usual)?;
    match dtype {
        DType::F32 | DType::F16 | DType::Bf16 => Ok(dtype),
        _ => Err(ProblemError::value(name, dtype, expected)),
    }
}

impl Problem for RopeProblem {
    type Op = super::Rope;

    const FIELDS: &'static [&'static str] = &[
        "rows",
        "h",
        "hk",
        "d",
        "rot",
        "n",
        "dtype",
        "table",
        "wide",
        "pairs",
        "positions",
        "plain",
        "bias",
        "back",
        "inplace",
        "ld",
        "ldk",
        "ldt",
    ];

    fn fields(&self) -> Fields {
        Fields::new()
            .with("rows", self.rows)
            .with("h", self.h)
            .with_unless("hk", self.hk, 0)
            .with("d", self.d)
            .with_unless("rot", self.rot, self.d)
            .with_unless("n", self.n, self.rows)
            .with("dtype", self.dtype)
            .with_unless("table", self.table, self.dtype)
            .with_unless("wide", self.wide, false)
            .with("pairs", self.pairs)
            .with_unless("positions", self.positions, Positions::Rows)
            .with_unless("plain", self.plain, 0)
            .with_unless("bias", self.bias, false)
            .with_unless("back", self.back, false)
            .with_unless("inplace", self.in_place, false)
            .with_unless("ld", self.ld, self.h * self.d)
            .with_unless("ldk", self.ldk, self.hk * self.d)
            .with_unless("ldt", self.ldt, self.columns())
    }

    fn read(fields: &mut FieldReader) -> Result<Self, ProblemError> {
        let (rows, h, d) = (fields.size("rows")?, fields.size("h")?, fields.size("d")?);
        let hk = if fields.has("hk") { fields.word_or("hk", "a number of heads", 0)? } else { 0 };
        let (rot, n) = (fields.size_or("rot", d)?, fields.size_or("n", rows)?);
        let dtype = float(fields, "dtype", DType::F32)?;
        let table = float(fields, "table", dtype)?;
        if table != dtype && table != DType::F32 {
            return Err(ProblemError::value("table", table, format!("f32 or {dtype} as dtype is")));
        }
        let flag = |fields: &mut FieldReader, name| fields.word_or(name, "true or false", false);
        let wide = flag(fields, "wide")?;
        let pairs = fields.word_or("pairs", "halves or interleaved", Pairs::Halves)?;
        let positions = fields.word_or("positions", "rows, i32 or i64", Positions::Rows)?;
        let plain = fields.word_or("plain", "a number of heads", 0)?;
        let (bias, back) = (flag(fields, "bias")?, flag(fields, "back")?);
        let in_place = flag(fields, "inplace")?;
        if rot % 2 == 1 || rot > d {
            return Err(ProblemError::value("rot", rot, format!("an even number of at most d={d}")));
        }
        if hk > MAX_SIZE {
            return Err(ProblemError::value("hk", hk, format!("a number from 0 to {MAX_SIZE}")));
        }
        if plain >= h + hk {
            return Err(ProblemError::value("plain", plain, format!("less than the {} heads", h + hk)));
        }
        if bias && back {
            return Err(ProblemError::value("bias", bias, "false where heads are turned back"));
        }
        let columns = if wide { rot } else { rot / 2 };
        let mut stride = |name: &str, least: u64, lines: u64| {
            let ld = fields.word_or(name, "a number of elements", least)?;
            match ld >= least && ld.checked_mul(lines).is_some_and(|all| all <= MAX_ELEMENTS) {
                true => Ok(ld),
                false => {
                    let expected = format!("at least {least}, and {MAX_ELEMENTS} at most in all {lines} rows");
                    Err(ProblemError::value(name, ld, expected))
                }
            }
        };
        let (ld, ldk, ldt) = (stride("ld", h * d, rows)?, stride("ldk", hk * d, rows)?, stride("ldt", columns, n)?);
        Ok(RopeProblem {
            rows,
            h,
            hk,
            d,
            rot,
            n,
            dtype,
            table,
            wide,
            pairs,
            positions,
            plain,
            bias,
            back,
            in_place,
            ld,
            ldk,
            ldt,
        })
    }

    fn key_fields(&self, bucket: &Bucket) -> Fields {
        // Heads decide how a row is cut: they are never rounded. How long the table is and which way heads are turned
        // decides neither who may race nor who wins.
        let rounded = RopeProblem { n: self.representative(bucket).rows, back: false, ..self.representative(bucket) };
        rounded.fields()
    }

    fn representative(&self, bucket: &Bucket) -> Self {
        let widest = self.ld.max(self.ldk).max(1);
        let most = |line: u64, least: u64| MAX_SIZE.min(MAX_ELEMENTS / line.max(1)).max(least);
        let rows = bucket.round_changing("rows", self.rows).min(most(widest, self.rows));
        RopeProblem { rows, n: bucket.round_changing("n", self.n).min(most(self.ldt, self.n)), ..*self }
    }

    fn ragged(&self) -> Option<Self> {
        // No whole number of blocks of several rows, and rows begin anew in the table.
        (self.rows > 13).then_some(RopeProblem { rows: 13, n: self.n.min(5), ..*self })
    }

    fn work(&self) -> Work {
        let turned = (self.rows * self.turned() * self.rot) as f64;
        let touched = if self.writes_rest() { (self.rows * self.heads() * self.d) as f64 } else { turned };
        // Positions may all be the same one.
        let lines = if self.positions == Positions::Rows { self.n.min(self.rows) } else { 1 };
        let table = (2 * lines * self.columns()) as f64 * self.table.bytes() as f64;
        Work { flops: 3.0 * turned, bytes: 2.0 * touched * self.dtype.bytes() as f64 + table }
    }

    fn dtype(&self) -> DType {
        self.dtype
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rope::Rope;
    use warplap_core::op::Op;

    #[test]
    fn a_problem_reads_back_what_it_prints() {
        for text in [
            "rope:rows=4096,h=40,d=128,dtype=bf16,pairs=halves",
            "rope:rows=7,h=3,hk=1,d=80,rot=32,n=100,dtype=f16,table=f32,wide=true,pairs=interleaved,positions=i64,\
             plain=2,bias=true,inplace=true,ld=300,ldk=81,ldt=64",
            "rope:rows=7,h=3,d=8,n=1,dtype=f32,pairs=halves,positions=i32,back=true",
        ] {
            assert_eq!(Rope::text(&Rope::parse(text).unwrap()), text);
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (fields, field) in [
            ("rows=1,h=1,d=7", "'rot'"),
            ("rows=1,h=1,d=8,rot=10", "'rot'"),
            ("rows=1,h=2,d=8,plain=2", "'plain'"),
            ("rows=1,h=2,d=8,ld=15", "'ld'"),
            ("rows=1,h=2,hk=1,d=8,ldk=7", "'ldk'"),
            ("rows=1,h=2,d=8,ldt=3", "'ldt'"),
            ("rows=1048576,h=32,d=128", "'ld'"),
            ("rows=1,h=2,d=8,table=f16", "'table'"),
            ("rows=1,h=2,d=8,dtype=f64", "'dtype'"),
            ("rows=1,h=2,d=8,bias=true,back=true", "'bias'"),
            ("rows=1,h=2,d=8,positions=f32", "'positions'"),
            ("rows=1,h=2,d=8,pair=halves", "did you mean 'pairs'?"),
        ] {
            let error = Rope::parse(fields).unwrap_err().to_string();
            assert!(error.contains(field), "{fields}: {error}");
        }
    }

    #[test]
    fn a_key_rounds_rows_and_forgets_the_table_and_the_way() {
        let key = |text: &str| Rope::parse(text).unwrap().key_fields(&Bucket::PowerOfTwo);
        let whole = key("rows=1000,h=4,d=8,n=77");
        assert_eq!(whole, key("rows=1024,h=4,d=8,n=4096,back=true"));
        assert_ne!(whole, key("rows=1024,h=4,d=8,ld=40"));
        assert_ne!(whole, key("rows=1024,h=4,d=8,inplace=true"));
    }

    #[test]
    fn elements_know_their_pairs_and_a_turn_back_undoes_a_turn() {
        for text in ["d=8,rot=6", "d=8,rot=6,pairs=interleaved", "d=8,wide=true", "d=8,wide=true,pairs=interleaved"] {
            let forth = Rope::parse(&format!("rows=1,h=1,{text}")).unwrap();
            let back = RopeProblem { back: true, ..forth };
            for j in 0..forth.rot as usize {
                let other = forth.other(j);
                assert!(other != j && forth.other(other) == j, "{text}");
                // The matrix of a turn back is the other one's, mirrored.
                assert_eq!(back.sine(j), forth.sine(other), "{text}");
                assert!(
                    forth.sine(j).1 == -forth.sine(other).1 && forth.column(j) < forth.columns() as usize,
                    "{text}"
                );
            }
        }
    }
}
