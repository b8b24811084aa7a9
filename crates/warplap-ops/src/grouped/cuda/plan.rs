//! What the plans of products by groups share: the facts kernels are compiled with, the arguments, tensor maps, what
//! the copy engine takes.

use warplap_core::dtype::DType;
use warplap_cuda::{Chip, HOPPER, Layers, TensorMapSpec, dtype_code};

use crate::cuda::plan::{Argument, int};
use crate::gemm::Layout;
use crate::grouped::slot::{W, X, Y};
use crate::grouped::{GroupedProblem, SLOTS};

/// Whose rows are whose: the operation's own header.
pub(super) const GROUPS: (&str, &str) = ("groups.cuh", include_str!("groups.cuh"));

/// Tiles of all groups, for kernels of the copy engine.
const GROUP_TILES: (&str, &str) = ("group_tiles.cuh", include_str!("group_tiles.cuh"));

/// What kernels of the copy engine include.
pub(super) const COPYING: [(&str, &str); 3] = [GROUP_TILES, GROUPS, HOPPER];

/// Facts of the problem that every kernel is compiled with.
pub(super) fn facts(p: &GroupedProblem) -> Vec<(&'static str, i64)> {
    let w_col = i64::from(p.w == Layout::Col);
    vec![("DTYPE", dtype_code(p.dtype)), ("W_COL", w_col), ("EXPERTS", p.experts as i64)]
}

/// The parameters of kernels of plain pointers: all slots in order, then rows, columns of y and of x.
pub(super) fn arguments(p: &GroupedProblem) -> Vec<Argument> {
    (0..SLOTS).map(Argument::Pointer).chain(sizes(p)).collect()
}

/// Rows, columns of y and of x.
pub(super) fn sizes(p: &GroupedProblem) -> [Argument; 3] {
    [p.rows, p.n, p.k].map(int)
}

/// Why a problem is nothing for the bulk copy engine, if so.
pub(super) fn no_tma(p: &GroupedProblem, chip: &Chip) -> Option<&'static str> {
    if !chip.is_hopper() {
        Some("needs a Hopper chip")
    } else if !matches!(p.dtype, DType::F16 | DType::Bf16) {
        Some("f16 and bf16 only")
    } else if !p.n.is_multiple_of(8) || !p.k.is_multiple_of(8) {
        Some("needs lines of whole 16 bytes: n and k must be multiples of 8")
    } else if p.w == Layout::Row && !p.k.is_multiple_of(128) {
        // A block of k would reach into the next expert's matrix, and what is infinite there is no zero times zero.
        Some("k must be a multiple of 128 where w is row-major")
    } else {
        None
    }
}

/// Tiles of so many rows there may be at the most, however rows are dealt out.
pub(super) fn most_tiles(p: &GroupedProblem, tall: u64) -> u64 {
    let ragged = p.experts.min(p.rows);
    (p.rows - ragged) / tall + ragged
}

/// The map of rows of x, with boxes of 128 contiguous bytes by so many lines.
pub(super) fn map_x(p: &GroupedProblem, lines: u32) -> Argument {
    map(p, X, (p.k, p.rows), [64, lines])
}

/// The map of all matrices of w under each other, likewise.
pub(super) fn map_w(p: &GroupedProblem, lines: u32) -> Argument {
    let (inner, each) = if p.w == Layout::Row { (p.n, p.k) } else { (p.k, p.n) };
    map(p, W, (inner, p.experts * each), [64, lines])
}

/// The map of y, in boxes of 64 rows by so many columns.
pub(super) fn map_y(p: &GroupedProblem, columns: u64) -> Argument {
    map(p, Y, (p.n, p.rows), [columns as u32, 64])
}

fn map(p: &GroupedProblem, slot: usize, (inner, outer): (u64, u64), block: [u32; 2]) -> Argument {
    let size = p.dtype.bytes() as u64;
    let spec = TensorMapSpec {
        dtype: p.dtype,
        inner,
        outer,
        pitch: inner,
        layers: Layers::Behind(1),
        block,
        swizzle: block[0] * size as u32,
        // Rows that do not end on a cache line make wide fetches bring what nobody asked for.
        promote: (inner * size).is_multiple_of(128),
        tf32: false,
    };
    Argument::Map(slot, spec)
}
