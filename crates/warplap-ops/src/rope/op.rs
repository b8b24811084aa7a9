//! Rotary position embedding, declared: the facts of a request, the slots of a launch, and how programs name it.

use warplap_core::array::Array;
use warplap_core::bucket::Bucket;
use warplap_core::declare::{declared, problem, words};
use warplap_core::dtype::DType;
use warplap_core::op::{Answer, Op, drawn};
use warplap_core::problem::{MAX_SIZE, Problem, ProblemError};
use warplap_core::roofline::Work;
use warplap_core::slot::{Signature, Slot};

use super::answer;
use crate::extent::{apart, rounded};

words! {
    /// Which two elements of a head are turned together.
    #[derive(Default)]
    pub enum Pairs {
        /// One of the first half and the one as far into the second (GPT-NeoX, Llama).
        #[default]
        Halves = "halves",
        /// Two that lie side by side (GPT-J).
        Interleaved = "interleaved",
    }
}

words! {
    /// Which row of the table a row is turned by.
    #[derive(Default)]
    pub enum Positions {
        /// That of its own number, from the first on again after the last.
        #[default]
        Rows = "rows",
        /// That of a number of 32 bits beside it.
        I32 = "i32",
        /// That of a number of 64 bits beside it.
        I64 = "i64",
    }
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

problem! {
    /// The facts of one turn. Heads of a row lie one after another without gaps; rows may have gaps between them.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct RopeProblem {
        /// Rows: tokens.
        pub rows: u64 => size(),
        /// Heads of x.
        pub h: u64 => size(),
        /// Heads of k, a second tensor of as many rows; 0 where there is none.
        pub hk: u64 = 0 => whole("a number of heads").only_as(|hk| *hk <= MAX_SIZE, "a number from 0 to 1048576"),
        /// Elements of a head.
        pub d: u64 => size(),
        /// The first elements of a head that are turned; the others are kept.
        pub rot: u64 = d => size(),
        /// Rows of the table.
        pub n: u64 = rows => size().not_in_key(),
        /// Type of heads and bias; arithmetic is in f32.
        pub dtype: DType = DType::F32 => float().shown(),
        /// Type of cosines and sines.
        pub table: DType = dtype => float(),
        /// Whether the table has a column for each element that is turned, not one for each pair.
        pub wide: bool = false => flag(),
        /// Which elements are turned together.
        pub pairs: Pairs = Pairs::Halves => word().shown(),
        /// Which row of the table a row is turned by.
        pub positions: Positions = Positions::Rows => word(),
        /// Heads at the end, of k where there is one, that are not turned: values in a fused projection.
        pub plain: u64 = 0 => whole("a number of heads"),
        /// Whether each column has a number that is added before heads are turned.
        pub bias: bool = false => flag(),
        /// Whether heads are turned back: what a gradient is.
        pub back: bool = false => flag().not_in_key(),
        /// Whether the result takes the place of x and k.
        pub in_place("inplace"): bool = false => flag(),
        /// Elements from a row of x to the next.
        pub ld: u64 = h * d => whole("a number of elements"),
        /// Elements from a row of k to the next.
        pub ldk: u64 = hk * d => whole("a number of elements"),
        /// Elements from a row of the table to the next.
        pub ldt: u64 = columns(rot, wide) => whole("a number of elements"),
    }
}

/// Columns of a table.
fn columns(rot: u64, wide: bool) -> u64 {
    if wide { rot } else { rot / 2 }
}

impl RopeProblem {
    /// Columns of the table.
    pub fn columns(&self) -> u64 {
        columns(self.rot, self.wide)
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

impl Problem for RopeProblem {
    type Op = Rope;

    declared!();

    fn check(&self) -> Result<(), ProblemError> {
        let RopeProblem { rows, h, hk, d, rot, .. } = *self;
        if self.table != self.dtype && self.table != DType::F32 {
            return Err(ProblemError::value("table", self.table, format!("f32 or {} as dtype is", self.dtype)));
        }
        if rot % 2 == 1 || rot > d {
            return Err(ProblemError::value("rot", rot, format!("an even number of at most d={d}")));
        }
        if self.plain >= h + hk {
            return Err(ProblemError::value("plain", self.plain, format!("less than the {} heads", h + hk)));
        }
        if self.bias && self.back {
            return Err(ProblemError::value("bias", true, "false where heads are turned back"));
        }
        apart("ld", self.ld, h * d, rows)?;
        apart("ldk", self.ldk, hk * d, rows)?;
        apart("ldt", self.ldt, self.columns(), self.n)
    }

    fn representative(&self, bucket: &Bucket) -> Self {
        // Heads decide how a row is cut: they are never rounded.
        let rows = rounded(bucket, "rows", self.rows, self.ld.max(self.ldk));
        RopeProblem { rows, n: rounded(bucket, "n", self.n, self.ldt), ..*self }
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

/// The operation of turning heads by their positions.
#[derive(Clone, Copy, Debug)]
pub struct Rope;

/// The slots of a launch.
pub mod slot {
    /// x, rows×heads×d; in place the result takes its place.
    pub const X: usize = 0;
    /// The second tensor, rows×its heads×d, where the problem has it; likewise.
    pub const K: usize = 1;
    /// The cosines, positions×columns.
    pub const COS: usize = 2;
    /// The sines, likewise.
    pub const SIN: usize = 3;
    /// A row of the table for each row.
    pub const POSITIONS: usize = 4;
    /// What is added to the columns of x and, behind them, of k.
    pub const BIAS: usize = 5;
    /// The result of x, where it is not in place.
    pub const Y: usize = 6;
    /// The result of k, likewise.
    pub const YK: usize = 7;
}

/// How many slots there are.
pub(crate) const SLOTS: usize = 8;

/// Bytes of one vector of a GPU.
const VECTOR: u64 = 16;

/// The bytes that lines of so many elements lie on: those of a vector, where one divides a line.
pub(crate) fn align(elements: u64, dtype: DType) -> u64 {
    let bytes = elements.max(1) * dtype.bytes() as u64;
    VECTOR.min(1 << bytes.trailing_zeros())
}

impl Op for Rope {
    const NAME: &'static str = "rope";

    type Problem = RopeProblem;

    fn signature(p: &RopeProblem) -> Signature {
        let own = align(p.d, p.dtype);
        let tensor = |name: &'static str, heads: u64, ld: u64| {
            let shape = [p.rows, heads, p.d];
            let slot =
                if p.in_place { Slot::in_out(name, p.dtype, &shape) } else { Slot::input(name, p.dtype, &shape) };
            slot.strided(&[ld, p.d, 1]).aligned(own)
        };
        let result = |name: &'static str, heads: u64| {
            Slot::output(name, p.dtype, &[p.rows, heads, p.d]).aligned(own).when(!p.in_place && heads > 0)
        };
        let table = |name: &'static str| {
            let slot = Slot::input(name, p.table, &[p.n, p.columns()]).strided(&[p.ldt, 1]);
            slot.aligned(align(p.columns(), p.table))
        };
        let positions = p.positions.dtype();
        Signature(vec![
            tensor("x", p.h, p.ld),
            tensor("k", p.hk, p.ldk).when(p.hk > 0),
            table("cos"),
            table("sin"),
            Slot::input("positions", positions.unwrap_or(DType::I32), &[p.rows]).when(positions.is_some()),
            Slot::input("bias", p.dtype, &[p.heads() * p.d]).aligned(own).when(p.bias),
            result("y", p.h),
            result("yk", p.hk),
        ])
    }

    fn draw(p: &RopeProblem, rng: &mut fastrand::Rng) -> Vec<Array> {
        let mut inputs = drawn(&Self::signature(p), rng);
        let len = inputs[slot::COS].len();
        let angles: Vec<f64> = (0..len).map(|_| rng.f64() * std::f64::consts::TAU).collect();
        inputs[slot::COS] = Array::from_f64(p.table, angles.iter().map(|a| a.cos()));
        inputs[slot::SIN] = Array::from_f64(p.table, angles.iter().map(|a| a.sin()));
        if let Some(dtype) = p.positions.dtype() {
            inputs[slot::POSITIONS] = Array::from_f64(dtype, (0..p.rows).map(|_| rng.u64(0..p.n) as f64));
        }
        inputs
    }

    fn answer(p: &RopeProblem, inputs: &[Array]) -> Vec<Answer> {
        answer::answer(p, inputs)
    }
}

known! {
    /// Heads are turned by their positions (rotary embedding).
    Rope {
        aliases: ["rotary"],
        // A position that the table does not have is seen by every kernel.
        guarded: true,
        example: "rope:rows=4096,h=32,hk=8,d=128,dtype=bf16,pairs=halves",
        cpu: "
rope:rows=1,h=32,hk=8,d=128,dtype=bf16,pairs=halves
rope:rows=512,h=32,hk=8,d=128,dtype=bf16,pairs=halves
rope:rows=512,h=12,hk=12,d=64,dtype=f32,pairs=interleaved
",
        cuda: "
rope:rows=16,h=32,hk=8,d=128,n=8192,dtype=bf16,pairs=halves,positions=i64
rope:rows=4096,h=32,hk=8,d=128,dtype=bf16,pairs=halves
rope:rows=4096,h=32,hk=8,d=128,dtype=bf16,wide=true,pairs=halves
rope:rows=4096,h=48,d=128,dtype=bf16,pairs=halves,plain=8,bias=true,inplace=true
rope:rows=4096,h=16,hk=16,d=64,dtype=f16,pairs=interleaved
",
    }
}

#[cfg(test)]
#[path = "op_tests.rs"]
mod tests;
