//! What the plans of block-sparse kernels share: the buffers in order, the facts they are compiled with, tensor maps.

use warplap_core::dtype::DType;
use warplap_core::rejection::Rejection;
use warplap_core::space::{Axis, Config, Rule, Space};
use warplap_cuda::{Chip, Layers, TensorMapSpec, dtype_code};

pub(super) use crate::bsr::slot::{B, C, COL_IDX, PLACE, ROW_PTR, VALUES};
use crate::bsr::{BsrProblem, Factor, SLOTS, addend};
use crate::cuda::plan::{Argument, CudaKernelSpec, Grid};
use crate::gemm::Layout;

/// Behind the addresses of the slots: the block rows in the order in which they are put together, or nothing.
pub(super) const ORDER: usize = SLOTS;
/// The queue that tiles are taken from.
pub(super) const QUEUE: usize = SLOTS + 1;
/// How many addresses a launch has.
pub(super) const BUFFERS: usize = SLOTS + 2;

/// The host twin of a block-sparse kernel.
pub(super) trait BsrKernelSpec: CudaKernelSpec<BsrProblem> {
    /// Block rows that a group puts together under a setting; 0 takes rows as they come.
    fn together(&self, p: &BsrProblem, config: &Config) -> Result<usize, Rejection>;

    /// Whether tiles are taken from a queue under a setting.
    fn has_queue(&self, _: &Config) -> Result<bool, Rejection> {
        Ok(false)
    }

    /// Whether the kernel takes turned blocks where they are stored; for others they are written out in order.
    fn is_turning(&self) -> bool {
        false
    }
}

/// Why a problem is nothing for the bulk copy engine, if so.
pub(super) fn no_tma(p: &BsrProblem, chip: &Chip) -> Option<&'static str> {
    // Of bytes, B lies in columns.
    let bytes = p.out().bytes() as u64;
    if !chip.is_hopper() {
        Some("needs a Hopper chip")
    } else if (p.b == Layout::Row || p.c == Layout::Row) && !(p.n * bytes).is_multiple_of(16) {
        Some("rows of B and C must be whole runs of 16 bytes")
    } else if p.m.max(p.n).max(p.k).max(p.nnz * p.bs) > i32::MAX as u64 {
        Some("sizes must fit 31 bits")
    } else {
        None
    }
}

/// Why a problem is nothing for a Hopper kernel of half types with blocks of 16 or 32, if so.
pub(super) fn no_small_blocks(p: &BsrProblem, chip: &Chip) -> Option<&'static str> {
    no_tma(p, chip).or(no_square(p)).or(match p.bs {
        _ if !is_half(p) => Some("f16 and bf16 only"),
        16 | 32 => None,
        _ => Some("blocks of 16 or 32"),
    })
}

/// Why a problem is nothing for an mma.sync kernel that copies 16 bytes at a time, if so.
pub(super) fn no_mma(p: &BsrProblem, chip: &Chip) -> Option<&'static str> {
    if chip.capability < (8, 0) {
        return Some("needs a chip from sm_80 on");
    }
    no_usual_blocks(p).or_else(|| match p.dtype.bytes() as u64 {
        bytes if !(p.n * bytes).is_multiple_of(16) => Some("rows of B and C must be whole runs of 16 bytes"),
        _ if p.m.max(p.n).max(p.k) > i32::MAX as u64 => Some("sizes must fit 31 bits"),
        _ => None,
    })
}

/// Why a problem is nothing for a kernel of blocks of the usual sizes, square or not, if so.
pub(super) fn no_usual_blocks(p: &BsrProblem) -> Option<&'static str> {
    let usual = [p.bs, p.bc].iter().all(|size| matches!(size, 16 | 32 | 64 | 128));
    (!usual).then_some("blocks of 16, 32, 64 or 128")
}

/// The space of an mma.sync kernel whose tiles of BK columns come in stages, each of the bytes that `stage` says for BN
/// and BK, and whose rows are grouped or not.
pub(super) fn in_stages(space: Space, p: &BsrProblem, chip: &Chip, stage: fn(&BsrProblem, u64, u64) -> u64) -> Space {
    let (p, most) = (*p, chip.shared_memory);
    space.axis(Axis::ints("STAGES", [4, 3])).axis(Axis::ints("GROUPED", [0, 1])).rule(Rule::on(
        "the stages fit shared memory",
        &["BN", "BK", "STAGES"],
        move |c| {
            let of = |name| c.int(name).and_then(|v| u64::try_from(v).ok()).unwrap_or(0);
            of("STAGES") * stage(&p, of("BN"), of("BK")) <= most
        },
    ))
}

/// Why a problem is nothing for a kernel of square blocks, if so.
pub(super) fn no_square(p: &BsrProblem) -> Option<&'static str> {
    (!p.is_square()).then_some("square blocks only")
}

/// Why a problem is nothing for a kernel that reads rows of B and writes rows of C, if so.
pub(super) fn no_rows(p: &BsrProblem) -> Option<&'static str> {
    match (p.b, p.c) {
        (Layout::Row, Layout::Row) => None,
        (Layout::Col, _) => Some("B must be row-major"),
        _ => Some("C must be row-major"),
    }
}

/// Whether elements are of two bytes.
pub(super) fn is_half(p: &BsrProblem) -> bool {
    matches!(p.dtype, DType::F16 | DType::Bf16)
}

/// How much fuller than the mean the fullest row is where tiles are dealt out by their length first.
pub(super) const SKEWED: f64 = 2.0;

/// How kernels of small blocks deal out tiles: in long runs, or one a round, which evens out rows of uneven length.
pub(super) fn dealt(space: Space, p: &BsrProblem) -> Space {
    space.axis(Axis::ints("DEAL", if p.imbalance() > SKEWED { [1, 0] } else { [0, 1] })).rule(Rule::on(
        "one tile a round is for long rows first",
        &["GROUPED", "DEAL"],
        |c| c.int("DEAL") == Some(0) || c.int("GROUPED") == Some(1),
    ))
}

/// Facts of the problem that every kernel is compiled with.
pub(super) fn facts(p: &BsrProblem) -> Vec<(&'static str, i64)> {
    let mut facts = type_facts(p);
    facts.extend([("BS", p.bs as i64), ("BC", p.bc as i64), ("C_COL", i64::from(p.c == Layout::Col))]);
    facts.extend(scale_facts(p));
    facts
}

/// The types: that of C, and of products of f8e4m3 what `quant.cuh` takes besides.
pub(super) fn type_facts(p: &BsrProblem) -> Vec<(&'static str, i64)> {
    let mut facts = vec![("DTYPE", dtype_code(p.out()))];
    if p.is_bytes() {
        facts.extend([("BYTES", 1), ("INT", 0), ("SCALE", 0)]);
    }
    facts
}

/// What happens to sums before they are stored, as `scaled.cuh` is told it.
pub(super) fn scale_facts(p: &BsrProblem) -> [(&'static str, i64); 3] {
    let plain = (p.alpha, p.beta) == (Factor::ONE, Factor::ONE);
    let bias = if p.bias { 1 + i64::from(plain) } else { 0 };
    [("SCALED", i64::from(p.is_scaled())), ("ADDS", i64::from(p.adds())), ("BIAS", bias)]
}

/// The last arguments of every kernel: `SCALE_PARAMETERS` of `scaled.cuh`.
pub(super) fn scale_arguments(p: &BsrProblem) -> [Argument; 3] {
    // A number of 32 bits, whatever it means.
    let bits = |factor: Factor| Argument::Int(factor.get().to_bits() as i32);
    [Argument::Pointer(addend(p)), bits(p.alpha), bits(p.beta)]
}

/// Whether B can be seen as whole panels of 64 columns, so that one copy brings several.
pub(super) fn is_wide(p: &BsrProblem) -> bool {
    p.b == Layout::Row && p.n.is_multiple_of(64)
}

/// The stored blocks as one tall matrix of their rows.
pub(super) fn values_map(p: &BsrProblem, block: [u32; 2]) -> Argument {
    spec(VALUES, p, (p.bc, p.nnz.max(1) * p.bs), block)
}

/// C in boxes of 64 columns by so many lines.
pub(super) fn c_map(p: &BsrProblem, lines: u64) -> Argument {
    match p.c {
        Layout::Row => spec_of(C, p.out(), (p.n, p.m), [64, lines as u32]),
        Layout::Col => spec_of(C, p.out(), (p.m, p.n), [lines as u32, 64]),
    }
}

/// A row-major B in boxes of 64 columns by so many lines, or, where it is wide, of `columns` by so many lines.
pub(super) fn b_map(p: &BsrProblem, lines: u64, columns: u64) -> Argument {
    if !is_wide(p) {
        return spec(B, p, (p.n, p.k), [64, lines as u32]);
    }
    let (pitch, layers) = (p.n, Layers::PrePostLaunches(p.n / 64, (columns / 64) as u32));
    let (dtype, block) = (p.dtype, [64, lines as u32]);
    Argument::Map(
        B,
        TensorMapSpec { dtype, inner: 64, outer: p.k, pitch, layers, block, swizzle: 128, promote: true, tf32: false },
    )
}

/// A column-major B in boxes of so many elements along K by so many columns.
pub(super) fn b_col_map(p: &BsrProblem, deep: u64, columns: u64) -> Argument {
    spec(B, p, (p.k, p.n), [deep as u32, columns as u32])
}

/// A matrix without gaps between its lines, in boxes whose swizzle is as wide as they are.
pub(super) fn spec(buffer: usize, p: &BsrProblem, (inner, outer): (u64, u64), block: [u32; 2]) -> Argument {
    spec_of(buffer, p.dtype, (inner, outer), block)
}

/// Lines of bytes along k, of the blocks or of B, in boxes as wide as a block. To the copy engine they are pairs.
pub(super) fn bytes_map(p: &BsrProblem, buffer: usize, lines: u64) -> Argument {
    let (wide, outer) = if buffer == B { (p.k, p.n) } else { (p.bc, p.nnz.max(1) * p.bs) };
    spec_of(buffer, DType::F16, (wide / 2, outer), [(p.bc / 2) as u32, lines as u32])
}

fn spec_of(buffer: usize, dtype: DType, (inner, outer): (u64, u64), block: [u32; 2]) -> Argument {
    let bytes = dtype.bytes() as u64;
    let wide = u64::from(block[0]) * bytes;
    let swizzle = if wide <= 128 { wide as u32 } else { 0 };
    // Rows that do not end on a cache line make wide fetches bring what nobody asked for.
    let promote = (inner * bytes).is_multiple_of(128);
    Argument::Map(
        buffer,
        TensorMapSpec {
            dtype,
            inner,
            outer,
            pitch: inner,
            layers: Layers::Behind(1),
            block,
            swizzle,
            promote,
            tf32: false,
        },
    )
}

/// A grid that stays: as many blocks or clusters as run at once, and no more than there are tiles.
pub(super) fn persistent(tiles: u64, cluster: u64, resident: u64, chip: &Chip) -> Grid {
    match cluster {
        1 => Grid::Blocks(tiles.min(u64::from(chip.multiprocessors) * resident.max(1))),
        _ => Grid::Persistent { tiles, cluster: cluster as u32 },
    }
}

/// Bytes that aligning the stages, and what a kernel declares itself, may take.
pub(super) const MARGIN: u64 = 2048;
