//! What the plans of normalisation share: the facts kernels are compiled with, the arguments.

use warplap_cuda::{BLOCK, CODES, ELEMENT, PHILOX, ROWS, dtype_code};

use crate::cuda::plan::{Argument, int};
use crate::norm::{Kind, NormProblem, Quant, SLOTS};
use crate::philox::Dropout;

/// Facts of the problem that every kernel is compiled with.
pub(super) fn facts(p: &NormProblem) -> Vec<(&'static str, i64)> {
    let quant = match p.quant {
        Quant::None => 0,
        Quant::F8E4m3 => 1,
        Quant::I8 => 2,
    };
    vec![
        ("DTYPE", dtype_code(p.dtype)),
        ("LAYER", i64::from(p.kind == Kind::Layer)),
        ("RESIDUAL", i64::from(p.residual)),
        ("WEIGHT", i64::from(p.weight)),
        ("BIAS", i64::from(p.bias)),
        ("BEFORE", i64::from(p.before)),
        ("DROPOUT", i64::from(p.dropout() > 0.0)),
        ("SUM", i64::from(p.has_sum())),
        ("QUANT", quant),
    ]
}

/// What kernels include.
pub(super) const HEADERS: [(&str, &str); 5] = [BLOCK, ROWS, PHILOX, CODES, ELEMENT];

/// The parameters that every entry has: all slots in order, then rows, elements of a row, what is added under the root,
/// below which word an element is dropped, and what others grow by.
pub(super) fn arguments(p: &NormProblem) -> Vec<Argument> {
    // A float is the 32 bits it consists of.
    let float = |x: f32| Argument::Int(x.to_bits() as i32);
    let dropout = Dropout::new(p.dropout());
    let below = Argument::Int(dropout.below as i32);
    let numbers = [int(p.rows), int(p.n), float(p.eps()), below, float(dropout.grown)];
    (0..SLOTS).map(Argument::Pointer).chain(numbers).collect()
}
