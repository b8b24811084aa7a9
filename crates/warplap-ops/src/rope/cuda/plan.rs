//! What the plans of rotary position embedding share: the facts kernels are compiled with, the arguments.

use warplap_core::dtype::DType;
use warplap_cuda::dtype_code;

use crate::cuda::plan::{Argument, int};
use crate::rope::{Pairs, RopeProblem, SLOTS};

/// Facts of the problem that every kernel is compiled with.
pub(super) fn facts(p: &RopeProblem) -> Vec<(&'static str, i64)> {
    let flag = i64::from;
    vec![
        ("DTYPE", dtype_code(p.dtype)),
        ("WIDENED", flag(p.table == DType::F32)),
        ("POSITIONS", p.positions.dtype().map_or(0, |dtype| dtype.bytes() as i64)),
        ("H", p.h as i64),
        ("HK", p.hk as i64),
        ("D", p.d as i64),
        ("ROT", p.rot as i64),
        ("PLAIN", p.plain as i64),
        ("WIDE", flag(p.wide)),
        ("INTERLEAVED", flag(p.pairs == Pairs::Interleaved)),
        ("BIAS", flag(p.bias)),
        ("BACK", flag(p.back)),
        ("INPLACE", flag(p.in_place)),
    ]
}

/// The parameters that every entry has: all slots in order, rows, rows of the table, and elements from a row to the
/// next of x, of k and of the table.
pub(super) fn arguments(p: &RopeProblem) -> Vec<Argument> {
    let numbers = [p.rows, p.n, p.ld, p.ldk, p.ldt].map(int);
    (0..SLOTS).map(Argument::Pointer).chain(numbers).collect()
}
