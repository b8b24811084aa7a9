//! What the plans of products of 8-bit numbers share: facts of the problem, tensor maps of its matrices, what the copy
//! engine takes.

use warplap_core::dtype::DType;
use warplap_cuda::{Chip, ELEMENT, HOPPER, Layers, QUANT, QUANT_HOPPER, TensorMapSpec};

use crate::cuda::plan::{Argument, int};
use crate::qgemm::{QgemmProblem, Scale, slot};

/// What the kernels include.
pub(super) const HEADERS: [(&str, &str); 4] = [QUANT_HOPPER, HOPPER, QUANT, ELEMENT];

/// Why a problem is nothing for Hopper's tensor cores, if so.
pub(super) fn no_wgmma(p: &QgemmProblem, chip: &Chip) -> Option<&'static str> {
    if !chip.is_hopper() {
        Some("needs a Hopper chip")
    } else if !p.k.is_multiple_of(16) {
        Some("lines of A and B must be whole runs of 16 bytes")
    } else if p.m.max(p.n).max(p.k) > i32::MAX as u64 / 2 {
        Some("sizes must fit 30 bits")
    } else {
        None
    }
}

/// Whether sums run through all of k in the tensor cores.
pub(super) fn runs_through(p: &QgemmProblem) -> bool {
    p.is_int() || p.fast
}

/// Facts of the problem that every kernel is compiled with.
pub(super) fn facts(p: &QgemmProblem) -> Vec<(&'static str, i64)> {
    let out = match p.out {
        DType::F16 => 0,
        DType::Bf16 => 1,
        _ => 2,
    };
    let scale = match p.scale {
        Scale::None => 0,
        Scale::Tensor => 1,
        Scale::Row => 2,
        Scale::Block => 3,
    };
    vec![("INT", i64::from(p.is_int())), ("DTYPE", out), ("SCALE", scale)]
}

/// Whether factors of blocks come with their stage: lines of A's begin on 16 bytes, and B's come by four.
pub(super) fn comes_staged(p: &QgemmProblem) -> bool {
    p.scale == Scale::Block && p.m.is_multiple_of(4) && p.k_blocks().is_multiple_of(4)
}

/// Bytes that the factors of so many rows of A and so many parts of B take in a stage. Twin of `Staged` in
/// `quant_hopper.cuh`.
pub(super) fn factor_bytes(p: &QgemmProblem, rows: u64, parts: u64) -> u64 {
    if comes_staged(p) { 4 * rows + 16 * parts } else { 0 }
}

/// The facts of kernels on tensor cores.
pub(super) fn tensor_facts(p: &QgemmProblem) -> Vec<(&'static str, i64)> {
    let mut facts = facts(p);
    facts.extend([("THROUGH", i64::from(runs_through(p))), ("STAGED", i64::from(comes_staged(p)))]);
    facts
}

/// The map of A or B, lines along k as pairs of bytes, in boxes of 64 pairs by so many lines.
pub(super) fn factor_map(p: &QgemmProblem, slot: usize, lines: u32) -> Argument {
    let outer = if slot == slot::A { p.m } else { p.n };
    Argument::Map(slot, spec(DType::F16, [p.k / 2, outer], [64, lines]))
}

/// The map of C in boxes of so many columns by 64 rows.
pub(super) fn product_map(p: &QgemmProblem, columns: u32) -> Argument {
    Argument::Map(slot::C, spec(p.out, [p.n, p.m], [columns, 64]))
}

fn spec(dtype: DType, [inner, outer]: [u64; 2], block: [u32; 2]) -> TensorMapSpec {
    let size = dtype.bytes() as u64;
    // Rows that do not end on a cache line make wide fetches bring what nobody asked for.
    let (promote, swizzle) = ((inner * size).is_multiple_of(128), block[0] * size as u32);
    TensorMapSpec { dtype, inner, outer, pitch: inner, layers: Layers::Behind(1), block, swizzle, promote, tf32: false }
}

/// The last parameters of every kernel: the factors, the sizes, and how far apart B's factors are.
pub(super) fn rest(p: &QgemmProblem) -> Vec<Argument> {
    let factors = [slot::SCALE_A, slot::SCALE_B].map(Argument::Pointer);
    factors.into_iter().chain([p.m, p.n, p.k, p.b_scale_pitch()].map(int)).collect()
}
