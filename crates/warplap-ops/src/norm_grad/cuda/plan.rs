//! What the plans of a norm's gradients share: the facts kernels are compiled with, the arguments, and the sum of parts
//! of columns.

use warplap_cuda::{BLOCK, ELEMENT, PHILOX, ROWS, Source, dtype_code};

use crate::cuda::plan::{Argument, Grid, Plan, int};
use crate::norm::Kind;
use crate::norm_grad::{NormGradProblem, SLOTS, slot};
use crate::philox::Dropout;

/// What kernels include.
pub(super) const HEADERS: [(&str, &str); 4] = [BLOCK, ROWS, PHILOX, ELEMENT];

/// Facts of the problem that every kernel is compiled with.
pub(super) fn facts(p: &NormGradProblem) -> Vec<(&'static str, i64)> {
    vec![
        ("DTYPE", dtype_code(p.norm.dtype)),
        ("LAYER", i64::from(p.norm.kind == Kind::Layer)),
        ("WEIGHT", i64::from(p.norm.weight)),
        ("BIAS", i64::from(p.norm.bias)),
        ("TOTAL", i64::from(p.total)),
        ("DROPOUT", i64::from(p.norm.dropout() > 0.0)),
    ]
}

/// The parameters that every main entry has: all slots in order, scratch, then rows, elements of a row, what is added
/// under the root, below which half-word an element is dropped, and what others grow by.
pub(super) fn arguments(p: &NormGradProblem, scratch: Argument) -> Vec<Argument> {
    // A float is the 32 bits it consists of.
    let float = |x: f32| Argument::Int(x.to_bits() as i32);
    let dropout = Dropout::new(p.norm.dropout());
    let below = Argument::Int(dropout.below as i32);
    let numbers = [scratch, int(p.norm.rows), int(p.norm.n), float(p.norm.eps()), below, float(dropout.grown)];
    (0..SLOTS).map(Argument::Pointer).chain(numbers).collect()
}

/// Columns that a block adds up, one a thread of the first of its warps.
const COLUMNS: u64 = 32;

/// What is launched behind: parts of columns, one row of them for each block, become the gradients of weight and bias.
pub(super) fn columns(p: &NormGradProblem, parts: u64) -> Plan {
    let defines = facts(p);
    Plan {
        source: Source { entry: "columns", text: include_str!("columns.cu"), headers: &[ELEMENT], defines },
        threads: 32 * 16,
        shared: 0,
        grid: Grid::Blocks(p.norm.n.div_ceil(COLUMNS)),
        arguments: vec![
            Argument::Room(0),
            Argument::Pointer(slot::DWEIGHT),
            Argument::Pointer(slot::DBIAS),
            int(parts),
            int(p.norm.n),
        ],
        overlap: false,
    }
}
