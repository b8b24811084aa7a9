//! What the plans of dense products share: facts of the problem, tensor maps of its matrices, what the copy engine
//! takes.

use warplap_core::dtype::DType;
use warplap_core::rejection::Rejection;
use warplap_cuda::{AMPERE, Chip, ELEMENT, EPILOGUE, HOPPER, Layers, PAIR, TensorMapSpec};

use crate::cuda::plan::{Argument, Operand, int};
use crate::gemm::{Activation, GemmProblem, Join, Layout, slot};

/// What the kernels include.
pub(super) const HEADERS: [(&str, &str); 5] = [HOPPER, AMPERE, ELEMENT, EPILOGUE, PAIR];

/// Why a kernel that takes one B stands aside.
pub(super) const ONE_B: &str = "takes one B: no pair (pair=true)";

/// Which matrix an argument is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    A,
    B,
    C,
    /// The second B of a pair.
    B2 = slot::B2 as isize,
}

const _: () = assert!(Side::A as usize == slot::A && Side::B as usize == slot::B && Side::C as usize == slot::C);

/// Why a problem is nothing for the bulk copy engine, if so.
pub(super) fn no_tma(p: &GemmProblem, chip: &Chip) -> Option<&'static str> {
    let even = |ld: u64| ld.is_multiple_of(8);
    if !chip.is_hopper() {
        Some("needs a Hopper chip")
    } else if !matches!(p.dtype, DType::F16 | DType::Bf16) {
        Some("f16 and bf16 only")
    } else if p.align < 16 || !even(p.lda) || !even(p.ldb) || !even(p.ldc) {
        Some("needs 16-byte aligned buffers and leading dimensions")
    } else if p.m.max(p.n).max(p.k) > i32::MAX as u64 || p.batch > 65535 {
        Some("sizes must fit 31 bits, and a batch 16")
    } else {
        None
    }
}

/// Why a problem is nothing for kernels of plain pointers from sm_80 on, if so.
pub(super) fn no_copies(p: &GemmProblem, chip: &Chip) -> Option<&'static str> {
    if chip.capability.0 < 8 {
        Some("needs asynchronous copies (sm_80 or newer)")
    } else if p.m.max(p.n).max(p.k) > i32::MAX as u64 / 2 {
        Some("sizes must fit 30 bits")
    } else {
        None
    }
}

/// Bytes of the widest copy, up to 16, that the alignment of the buffers and a leading dimension allow.
pub(super) fn vector(p: &GemmProblem, ld: u64) -> u64 {
    let line = ld * p.dtype.bytes() as u64;
    [16, 8, 4].into_iter().find(|v| p.align.is_multiple_of(*v) && line.is_multiple_of(*v)).unwrap_or(2)
}

/// The arguments of kernels of plain pointers: matrices, sizes, leading dimensions, those of the epilogue, and the second
/// B of a pair.
pub(super) fn plain(p: &GemmProblem) -> Vec<Argument> {
    let mut arguments = [Side::A, Side::B, Side::C].map(pointer).to_vec();
    arguments.extend(&sizes(p)[..3]);
    arguments.extend([p.lda, p.ldb, p.ldc].map(Argument::Long));
    arguments.extend(epilogue(p));
    arguments.extend(p.pair.then(|| pointer(Side::B2)));
    arguments
}

/// The map of a pair's second B, behind the parameters of the epilogue, of kernels of the copy engine.
pub(super) fn second(p: &GemmProblem, block: [u32; 2]) -> Option<Argument> {
    p.pair.then(|| map(p, Side::B2, block))
}

/// Columns of C that come of so many columns of B in a tile: a pair takes half of them from either B.
pub(super) fn columns(p: &GemmProblem, bn: u64) -> u64 {
    if p.pair { bn / 2 } else { bn }
}

/// The part of a stage that holds columns of B, or of both of a pair. Twin of `Weights` in `pair.cuh`.
pub(super) fn weights(p: &GemmProblem, bn: u64, bk: u64, share: u64) -> Result<Operand, Rejection> {
    let flat = p.b == Layout::Row;
    if !p.pair {
        return Operand::new(bn, bk, flat, share);
    }
    if !bn.is_multiple_of(if flat { 128 } else { 16 }) || share > 2 {
        let reason = format!("{bn} columns of B have no halves that {share} blocks can share");
        return Err(Rejection::DoesNotBuild { reason });
    }
    // Of two blocks one brings B's half, the other B2's.
    let half = Operand::new(bn / 2, bk, flat, 1)?;
    Ok(Operand { bytes: 2 * half.bytes, ..half })
}

/// Facts of the problem that every kernel is compiled with.
pub(super) fn facts(p: &GemmProblem) -> Vec<(&'static str, i64)> {
    let dtype = match p.dtype {
        DType::F16 => 0,
        DType::Bf16 => 1,
        _ => 2,
    };
    let [a_col, b_col] = [p.a, p.b].map(|layout| i64::from(layout == Layout::Col));
    let mut facts = vec![("DTYPE", dtype), ("A_COL", a_col), ("B_COL", b_col), ("BATCH", i64::from(p.batch > 1))];
    if p.bias {
        facts.push(("BIAS", 1));
    }
    if p.pair {
        facts.push(("PAIR", 1));
    }
    facts.extend((p.join != Join::None).then(|| ("JOIN", p.join.code())));
    facts.extend((p.act != Activation::None).then(|| ("ACT", p.act.code())));
    facts
}

/// The last parameters of every kernel: the bias where the problem has one, then what is joined and how it lies.
pub(super) fn epilogue(p: &GemmProblem) -> Vec<Argument> {
    let mut arguments = Vec::new();
    if p.bias {
        arguments.push(Argument::Pointer(slot::BIAS));
    }
    if p.join != Join::None {
        arguments.extend([Argument::Pointer(slot::JOINED), Argument::Long(p.ldc)]);
    }
    arguments
}

/// The map of A or B with boxes of 128 contiguous bytes by so many lines, or of C with its own box.
pub(super) fn map(p: &GemmProblem, side: Side, block: [u32; 2]) -> Argument {
    let (inner, outer, pitch) = match (side, p.a, p.b) {
        (Side::A, Layout::Row, _) => (p.k, p.m, p.lda),
        (Side::A, Layout::Col, _) => (p.m, p.k, p.lda),
        (Side::B | Side::B2, _, Layout::Row) => (p.n, p.k, p.ldb),
        (Side::B | Side::B2, _, Layout::Col) => (p.k, p.n, p.ldb),
        (Side::C, ..) => (p.n, p.m, p.ldc),
    };
    // Rows that do not end on a cache line make wide fetches bring what nobody asked for.
    let size = p.dtype.bytes() as u64;
    let promote = (pitch * size).is_multiple_of(128);
    let swizzle = block[0] * size as u32;
    let layers = Layers::Behind(p.batch);
    let dtype = p.dtype;
    let spec = TensorMapSpec { dtype, inner, outer, pitch, layers, block, swizzle, promote, tf32: false };
    Argument::Map(side as usize, spec)
}

/// A map of f32 whose copies are rounded to tf32.
pub(super) fn rounded(map: Argument) -> Argument {
    match map {
        Argument::Map(side, spec) => Argument::Map(side, TensorMapSpec { tf32: true, ..spec }),
        other => other,
    }
}

/// Sizes as the kernels take them; `no_tma` has checked that they fit.
pub(super) fn sizes(p: &GemmProblem) -> [Argument; 4] {
    [p.m, p.n, p.k, p.batch].map(int)
}

/// Output tiles of 128 by 128, or by 64 of a pair: as much work.
pub(super) fn tiles(p: &GemmProblem) -> u64 {
    p.m.div_ceil(128) * p.n.div_ceil(columns(p, 128)) * p.batch
}

/// A buffer's address as an argument.
pub(super) fn pointer(side: Side) -> Argument {
    Argument::Pointer(side as usize)
}
