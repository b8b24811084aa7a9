//! A plan: how one kernel is compiled and launched for a problem. Host arithmetic alone, testable without a GPU.

use warplap_core::candidate::SourceHash;
use warplap_core::rejection::Rejection;
use warplap_core::space::{Axis, Config, Space};
use warplap_core::variant::Fit;
use warplap_cuda::{Chip, Source, TensorMapSpec};

use super::scratch::Need;

/// Static shared memory the kernels keep for their barriers, at the most.
const BARRIERS: u64 = 512;

/// One argument of a kernel, in order. Buffers are named by their place in the list of addresses a launch is given.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Argument {
    /// A tensor map of a buffer.
    Map(usize, TensorMapSpec),
    /// The address of a buffer.
    Pointer(usize),
    /// The address of scratch of the launch's stream; one of a kernel at the most.
    Scratch(Need),
    /// The address of that scratch so many words on; kernels of one chain share the scratch of its main one.
    Room(u64),
    /// A number of 32 bits.
    Int(i32),
    /// A number of 64 bits.
    Long(u64),
}

/// Blocks of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Grid {
    /// So many.
    Blocks(u64),
    /// As many clusters as run at once, and no more than there are tiles.
    Persistent { tiles: u64, cluster: u32 },
}

/// Everything a kernel is built and launched from.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Plan {
    /// What is compiled, and with which constants.
    pub(crate) source: Source,
    /// Threads of one block.
    pub(crate) threads: u32,
    /// Bytes of dynamic shared memory of one block.
    pub(crate) shared: u64,
    /// Blocks.
    pub(crate) grid: Grid,
    /// The entry's parameters, in order.
    pub(crate) arguments: Vec<Argument>,
    /// Whether it may start while the kernel before it ends; a twin says whether it can, a setting whether it does.
    pub(crate) overlap: bool,
}

impl Plan {
    /// What it needs beside the buffers it is given.
    pub(crate) fn scratch(&self) -> Need {
        let need = |argument: &Argument| match argument {
            Argument::Scratch(need) => Some(*need),
            _ => None,
        };
        self.arguments.iter().find_map(need).unwrap_or_default()
    }
}

/// Kernels that are launched with a plan's own every time: before it and behind it, on the same buffers and scratch.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct PrePostLaunches {
    /// In front of it.
    pub(crate) first: Vec<Plan>,
    /// Behind it.
    pub(crate) last: Vec<Plan>,
}

/// The host twin of one own kernel, for problems of one operation.
pub(crate) trait CudaKernelSpec<P>: Send + Sync + 'static {
    /// File stem and entry name.
    fn id(&self) -> &'static str;
    /// What it is compiled of: `source!()`.
    fn source(&self) -> SourceHash;
    /// Whether it can do a problem, and how eagerly it should be raced.
    fn fit(&self, p: &P, chip: &Chip) -> Fit;
    /// Its tunables.
    fn space(&self, p: &P, chip: &Chip) -> Space;
    /// How a setting is built and launched.
    fn plan(&self, p: &P, config: &Config, chip: &Chip) -> Result<Plan, Rejection>;
    /// What is launched with it.
    fn beside(&self, _: &P, _: &Config, _: &Chip) -> Result<PrePostLaunches, Rejection> {
        Ok(PrePostLaunches::default())
    }
}

impl<P: 'static> CudaKernelSpec<P> for &'static dyn CudaKernelSpec<P> {
    fn id(&self) -> &'static str {
        (**self).id()
    }
    fn source(&self) -> SourceHash {
        (**self).source()
    }
    fn fit(&self, p: &P, chip: &Chip) -> Fit {
        (**self).fit(p, chip)
    }
    fn space(&self, p: &P, chip: &Chip) -> Space {
        (**self).space(p, chip)
    }
    fn plan(&self, p: &P, config: &Config, chip: &Chip) -> Result<Plan, Rejection> {
        (**self).plan(p, config, chip)
    }
    fn beside(&self, p: &P, config: &Config, chip: &Chip) -> Result<PrePostLaunches, Rejection> {
        (**self).beside(p, config, chip)
    }
}

/// The axis of whether a launch may begin while the kernel before it ends.
const EARLY: &str = "EARLY";

/// The space of a twin; where its launches may begin early, whether they do is an axis: behind a kernel that lets
/// nobody begin early it costs a quarter of a microsecond, behind one that does it saves half of one and more.
pub(crate) fn space<P>(twin: &(impl CudaKernelSpec<P> + ?Sized), p: &P, chip: &Chip) -> Space {
    let space = twin.space(p, chip);
    let can = space.default_config().is_some_and(|c| twin.plan(p, &c, chip).is_ok_and(|plan| plan.overlap));
    if !can {
        return space;
    }
    // In front of the others: who lists a space by its axes meets every kernel once before any of them a second time.
    let early = Space::single().axis(Axis::ints(EARLY, [0, 1]));
    let axes = space.axes().iter().cloned().fold(early, Space::axis);
    space.rules().iter().cloned().fold(axes, Space::rule)
}

/// The plan of a setting of [`space`], and what is launched with it. Whether a launch may begin early is for the first
/// of them to heed; the others follow one of ours.
pub(crate) fn plan<P>(
    twin: &(impl CudaKernelSpec<P> + ?Sized),
    p: &P,
    config: &Config,
    chip: &Chip,
) -> Result<(Plan, PrePostLaunches), Rejection> {
    let (mut plan, mut beside) = (twin.plan(p, config, chip)?, twin.beside(p, config, chip)?);
    let begins = beside.first.first_mut().unwrap_or(&mut plan);
    begins.overlap &= config.int(EARLY) == Some(1);
    Ok((plan, beside))
}

/// An axis of a config; a config that lacks one was made for another space.
pub(crate) fn axis(config: &Config, name: &'static str) -> Result<u64, Rejection> {
    let missing = || Rejection::DoesNotBuild { reason: format!("the config has no {name}") };
    config.int(name).and_then(|v| u64::try_from(v).ok()).ok_or_else(missing)
}

/// A size as kernels take it; who lets larger ones through has not checked them.
pub(crate) fn int(size: u64) -> Argument {
    Argument::Int(i32::try_from(size).unwrap_or(i32::MAX))
}

/// One operand's part of a stage in panels of 64 elements of 2 bytes: bytes, and lines of one copy. Twin of `Operand`
/// in `hopper.cuh`.
pub(crate) struct Operand {
    pub(crate) bytes: u64,
    pub(crate) lines: u32,
}

impl Operand {
    /// `rows` of the tile by `bk`; `flat` where the tile's rows are contiguous in memory; `share` blocks bring parts.
    pub(crate) fn new(rows: u64, bk: u64, flat: bool, share: u64) -> Result<Self, Rejection> {
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
pub(crate) fn stages(chip: &Chip, stage: u64, fixed: u64, resident: u64, most: u64) -> Result<u64, Rejection> {
    let room = (chip.shared_memory + 1024) / resident.max(1);
    let deepest = room.saturating_sub(1024 + BARRIERS + fixed) / stage.max(1);
    if deepest < 2 {
        let reason = format!("two stages of {stage} bytes and {fixed} bytes beside them do not fit shared memory");
        return Err(Rejection::OverLimits { reason });
    }
    Ok(deepest.min(most))
}

/// Columns of one staged panel of C.
pub(crate) fn panel(columns: u64) -> u64 {
    [64, 32].into_iter().find(|w| columns.is_multiple_of(*w)).unwrap_or(16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pipeline_is_as_deep_as_shared_memory_and_no_deeper() {
        let chip = Chip::h200();
        let deep = stages(&chip, 32 << 10, 1024, 1, 8).unwrap();
        assert!(deep * (32 << 10) + 1024 + BARRIERS <= chip.shared_memory);
        assert!((deep + 1) * (32 << 10) + 1024 + BARRIERS > chip.shared_memory);
        assert_eq!(stages(&chip, 1024, 0, 2, 8), Ok(8));
        assert!(matches!(stages(&chip, 120 << 10, 0, 1, 8), Err(Rejection::OverLimits { .. })));
    }

    #[test]
    fn shared_operands_are_dealt_out_in_whole_panels_or_in_runs_of_rows() {
        let shapes = [(128, 64, false, 1), (128, 64, false, 2), (256, 64, true, 2), (96, 64, true, 1)];
        let got = shapes.map(|(rows, bk, flat, share)| Operand::new(rows, bk, flat, share).map(|o| (o.bytes, o.lines)));
        assert_eq!(got, [Ok((16384, 128)), Ok((16384, 64)), Ok((32768, 64)), Ok((16384, 64))]);
        assert!(Operand::new(72, 64, false, 2).is_err());
    }
}
