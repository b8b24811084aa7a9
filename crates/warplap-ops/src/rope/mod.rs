//! Rotary position embedding: heads of x, and of a second tensor k, are turned pair by pair by angles of a table. With
//! a bias in front of it and heads that are only biased, it is what follows the product of a fused projection, in one
//! launch. Turned back it is its own gradient.
//!
//! For the two elements a and b of a pair: `a·cos − b·sin` and `b·cos + a·sin`. The table has one row a position and
//! one column a pair; a wide one has a column for each element, as models have it that write the two halves out. A
//! position that the table does not have makes what is turned not a number: nothing is read there.

mod answer;
#[cfg(feature = "cpu")]
pub mod cpu;
#[cfg(feature = "cuda")]
pub mod cuda;
mod known;
mod problem;

pub use problem::{Pairs, Positions, RopeProblem};

use warplap_core::array::Array;
use warplap_core::dtype::DType;
use warplap_core::op::{Answer, Op, drawn};
use warplap_core::slot::{Signature, Slot};

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
        let given = |name: &'static str, heads: u64, ld: u64| {
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
            given("x", p.h, p.ld),
            given("k", p.hk, p.ldk).when(p.hk > 0),
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
