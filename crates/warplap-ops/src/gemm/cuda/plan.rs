//! A plan: how one kernel is compiled and launched for a problem. Host arithmetic alone, testable without a GPU.

use warplap_core::dtype::DType;
use warplap_core::rejection::Rejection;
use warplap_core::space::{Config, Space};
use warplap_core::variant::Fit;
use warplap_cuda::{Chip, Source, TensorMapSpec};

use crate::gemm::{GemmProblem, Layout};

/// Static shared memory the kernels keep for their barriers, at the most.
const BARRIERS: u64 = 512;

/// Which matrix an argument is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    A,
    B,
    C,
}

/// One argument of a kernel, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Argument {
    Map(Side, TensorMapSpec),
    Pointer(Side),
    Int(i32),
    Long(u64),
}

/// Blocks of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Grid {
    /// So many.
    Blocks(u64),
    /// As many clusters as run at once, and no more than there are tiles.
    Persistent { tiles: u64, cluster: u32 },
}

/// Everything a kernel is built and launched from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) source: Source,
    pub(super) threads: u32,
    pub(super) shared: u64,
    pub(super) grid: Grid,
    pub(super) arguments: Vec<Argument>,
    /// Whether it may start while the kernel before it ends.
    pub(super) overlap: bool,
}

/// The host twin of one own kernel.
pub(super) trait Twin: Send + Sync + 'static {
    /// File stem and entry name.
    fn id(&self) -> &'static str;
    /// The kernel's and the twin's own text.
    fn texts(&self) -> [&'static str; 2];
    fn fit(&self, p: &GemmProblem, chip: &Chip) -> Fit;
    fn space(&self, p: &GemmProblem, chip: &Chip) -> Space;
    fn plan(&self, p: &GemmProblem, config: &Config, chip: &Chip) -> Result<Plan, Rejection>;
}

/// An axis of a config; a config that lacks one was made for another space.
pub(super) fn axis(config: &Config, name: &'static str) -> Result<u64, Rejection> {
    let missing = || Rejection::DoesNotBuild { reason: format!("the config has no {name}") };
    config.int(name).and_then(|v| u64::try_from(v).ok()).ok_or_else(missing)
}

/// Why a problem is nothing for the bulk copy engine, if so.
pub(super) fn no_tma(p: &GemmProblem, chip: &Chip) -> Option<&'static str> {
    let even = |ld: u64| ld.is_multiple_of(8);
    if !chip.is_hopper() {
        Some("needs a Hopper chip")
    } else if !matches!(p.dtype, DType::F16 | DType::Bf16) {
        Some("f16 and bf16 only")
    } else if p.align < 16 || !even(p.lda) || !even(p.ldb) || !even(p.ldc) {
        Some("needs 16-byte aligned buffers and leading dimensions")
    } else if p.m.max(p.n).max(p.k) > i32::MAX as u64 {
        Some("sizes must fit 31 bits")
    } else {
        None
    }
}

/// Facts of the problem that every kernel is compiled with.
pub(super) fn facts(p: &GemmProblem) -> Vec<(&'static str, i64)> {
    let dtype = match p.dtype {
        DType::F16 => 0,
        DType::Bf16 => 1,
        _ => 2,
    };
    vec![("DTYPE", dtype), ("A_COL", i64::from(p.a == Layout::Col)), ("B_COL", i64::from(p.b == Layout::Col))]
}

/// One operand's part of a stage: bytes, and lines of one copy. `None` where a cluster cannot share it.
pub(super) struct Operand {
    pub(super) bytes: u64,
    pub(super) lines: u32,
}

impl Operand {
    /// `rows` of the tile by `bk`; `flat` where the tile's rows are contiguous in memory; `share` blocks bring parts.
    pub(super) fn new(rows: u64, bk: u64, flat: bool, share: u64) -> Result<Self, Rejection> {
        let (panels, tall) = if flat { (rows.div_ceil(64), bk) } else { (bk / 64, rows) };
        // Whole panels are dealt out, or each is cut into runs of rows.
        let whole = if flat { panels.is_multiple_of(share) } else { !rows.is_multiple_of(8 * share) };
        let lines = tall / if whole { 1 } else { share };
        if (whole && !panels.is_multiple_of(share)) || lines > 256 {
            let reason = format!("{rows} rows of {bk} cannot be shared by {share} blocks");
            return Err(Rejection::DoesNotBuild { reason });
        }
        Ok(Operand { bytes: panels * tall * 128, lines: lines as u32 })
    }
}

/// The deepest pipeline that fits: `fixed` bytes beside the stages, `resident` blocks on a multiprocessor.
pub(super) fn stages(chip: &Chip, stage: u64, fixed: u64, resident: u64, most: u64) -> Result<u64, Rejection> {
    let room = (chip.shared_memory + 1024) / resident.max(1);
    let deepest = room.saturating_sub(1024 + BARRIERS + fixed) / stage.max(1);
    if deepest < 2 {
        let reason = format!("two stages of {stage} bytes and {fixed} bytes beside them do not fit shared memory");
        return Err(Rejection::OverLimits { reason });
    }
    Ok(deepest.min(most))
}

/// Columns of one staged panel of C.
pub(super) fn panel(columns: u64) -> u64 {
    [64, 32].into_iter().find(|w| columns.is_multiple_of(*w)).unwrap_or(16)
}

/// The map of A or B with boxes of 64 contiguous elements by so many lines, or of C with its own box.
pub(super) fn map(p: &GemmProblem, side: Side, block: [u32; 2]) -> Argument {
    let (inner, outer, pitch) = match (side, p.a, p.b) {
        (Side::A, Layout::Row, _) => (p.k, p.m, p.lda),
        (Side::A, Layout::Col, _) => (p.m, p.k, p.lda),
        (Side::B, _, Layout::Row) => (p.n, p.k, p.ldb),
        (Side::B, _, Layout::Col) => (p.k, p.n, p.ldb),
        (Side::C, ..) => (p.n, p.m, p.ldc),
    };
    // Rows that do not end on a cache line make wide fetches bring what nobody asked for.
    let promote = (pitch * 2).is_multiple_of(128);
    let swizzle = block[0] * 2;
    Argument::Map(side, TensorMapSpec { dtype: p.dtype, inner, outer, pitch, block, swizzle, promote })
}

/// Sizes as the kernels take them; `no_tma` has checked that they fit.
pub(super) fn sizes(p: &GemmProblem) -> [Argument; 3] {
    [p.m, p.n, p.k].map(|v| Argument::Int(i32::try_from(v).unwrap_or(i32::MAX)))
}

/// Output tiles of 128 by 128.
pub(super) fn tiles(p: &GemmProblem) -> u64 {
    p.m.div_ceil(128) * p.n.div_ceil(128)
}

/// Whether starting early pays: not where everything comes from memory anyway.
pub(super) fn overlap(p: &GemmProblem, chip: &Chip) -> bool {
    (p.m * p.k + p.k * p.n + p.m * p.n) * 2 <= chip.l2 || p.m > 64
}
