//! Ceilings: what the device can do at best, measured by small kernels of their own (tensor cores, plain lanes, reads
//! from L2 and from memory, an empty launch). Where they cannot be built, bounds stated from the chip's counts and
//! clock serve.

use std::collections::BTreeMap;
use std::ffi::c_void;

use warplap_core::dtype::DType;
use warplap_core::roofline::{Bandwidth, Ceilings};

use crate::chip::Chip;
use crate::compile::Source;
use crate::device::cuda::Cuda;
use crate::driver::{Event, Graph, LaunchShape};
use crate::error::CudaError;
use crate::memory::Buffer;

/// Bytes of the largest set: many times any L2.
const FAR: usize = 1 << 30;

/// Bytes one multiprocessor takes from L2 in a clock at the most.
const L2_BYTES_PER_CLOCK: f64 = 64.0;

/// And from its own cache.
const NEAREST_BYTES_PER_CLOCK: f64 = 128.0;

/// Arithmetic is measured at one moment's clock, and clocks rise by a few percent on a rested chip.
const CLOCK_HEADROOM: f64 = 1.05;

/// Reads are measured alone; a kernel writes beside them.
const TRAFFIC_HEADROOM: f64 = 1.25;

/// What tensor cores multiply; f32 stands for tf32.
const DTYPES: [DType; 3] = [DType::F16, DType::Bf16, DType::F32];

/// Repetitions of each; the best counts.
const REPEATS: usize = 5;

pub(crate) fn measure(cuda: &Cuda) -> Result<Ceilings, CudaError> {
    let far = FAR.min(usize::try_from(cuda.chip().memory / 8).unwrap_or(FAR));
    let room = Buffer::new(cuda.context(), DType::F32, far / 4)?;
    let copy = copied(cuda, &room, far)?;
    let mut ceilings = stated(cuda.chip(), copy);
    let lower = |slot: &mut f64, measured: Option<f64>, headroom: f64| {
        if let Some(rate) = measured {
            *slot = slot.min(rate * headroom);
        }
    };
    for dtype in [DType::F16, DType::Bf16] {
        if let Some(slot) = ceilings.flops.get_mut(&dtype) {
            lower(slot, tensor(cuda, dtype, &room), CLOCK_HEADROOM);
        }
    }
    if let Some(slot) = &mut ceilings.tf32 {
        lower(slot, tensor(cuda, DType::F32, &room), CLOCK_HEADROOM);
    }
    if let Some(slot) = ceilings.flops.get_mut(&DType::F32) {
        lower(slot, lane_rate(cuda, &room), CLOCK_HEADROOM);
    }
    // Half of L2: the rest of it is a neighbour's on chips whose L2 has two sides.
    let near = (cuda.chip().l2 / 2).clamp(1 << 20, far as u64);
    let [l2, memory] = [(near, 40), (far as u64, 1)].map(|(bytes, rounds)| read(cuda, &room, bytes, rounds));
    let (memory, l2) = (memory.unwrap_or(copy).max(copy), l2.map(|rate| rate.max(copy)));
    if let [near, far] = ceilings.bandwidth.as_mut_slice() {
        far.rate = memory;
        lower(&mut near.rate, l2, TRAFFIC_HEADROOM);
    }
    ceilings.launch = launch(cuda).unwrap_or(0.0);
    Ok(ceilings)
}

/// Bytes per second of a copy of half the room into the other.
fn copied(cuda: &Cuda, room: &Buffer, bytes: usize) -> Result<f64, CudaError> {
    let half = bytes / 2;
    let seconds = best(cuda, || {
        // SAFETY: the two halves of one buffer.
        unsafe { cuda.stream().copy_across(room.address + half as u64, room.address, half) }
    })?;
    Ok(2.0 * half as f64 / seconds)
}

/// The least seconds of a few repetitions.
fn best(cuda: &Cuda, mut queue: impl FnMut() -> Result<(), CudaError>) -> Result<f64, CudaError> {
    let (start, end) = (Event::new(cuda.context())?, Event::new(cuda.context())?);
    let mut least = f64::INFINITY;
    for _ in 0..REPEATS {
        start.record(cuda.stream())?;
        queue()?;
        end.record(cuda.stream())?;
        least = least.min(start.seconds_to(&end)?);
    }
    Ok(least)
}

/// One of the kernels of the file.
fn source(part: i64, dtype: DType) -> Source {
    Source {
        entry: "ceilings",
        text: include_str!("../../cu/ceilings.cu"),
        headers: &[crate::HOPPER],
        defines: vec![("PART", part), ("DTYPE", crate::dtype_code(dtype))],
    }
}

/// Every kernel of a chip, for the test that compiles them.
pub(crate) fn sources(chip: &Chip) -> Vec<Source> {
    let tensor = DTYPES.map(|dtype| source(i64::from(!chip.is_hopper()), dtype));
    tensor.into_iter().chain([2, 3].map(|part| source(part, DType::F16))).collect()
}

/// Seconds of one launch over so many bytes of the room. `None` where the kernel cannot be built or launched.
fn timed(cuda: &Cuda, source: &Source, shape: LaunchShape, room: &Buffer, bytes: u64, rounds: i32) -> Option<f64> {
    let function = cuda.build(source).ok()?;
    function.allow_shared(shape.shared).ok()?;
    let (address, units) = (room.address, bytes / 16);
    let arguments: [*const c_void; 4] = [
        (&raw const address).cast(),
        (&raw const address).cast(),
        (&raw const units).cast(),
        (&raw const rounds).cast(),
    ];
    // SAFETY: the entry takes two addresses, a count of sixteen-byte units the room holds, and an int; it writes
    // nothing or a few floats to the room's beginning.
    best(cuda, || unsafe { function.launch(&shape, &arguments, cuda.stream()) }).ok().filter(|s| *s > 0.0)
}

/// Tensor cores; f32 stands for tf32, of which a step is half as deep.
fn tensor(cuda: &Cuda, dtype: DType, room: &Buffer) -> Option<f64> {
    let (chip, rounds) = (cuda.chip(), 1000);
    let depth = if dtype == DType::F32 { 0.5 } else { 1.0 };
    let sms = chip.multiprocessors;
    let (part, grid, shared, each) = if chip.is_hopper() {
        // Two warpgroups of m64n256, sixty-four deep.
        (0, sms, 48 << 10, 2.0 * 2.0 * 64.0 * 256.0 * 64.0)
    } else {
        // Eight warps of eight m16n8k16.
        (1, 2 * sms, 0, 8.0 * 8.0 * 2.0 * 16.0 * 8.0 * 16.0)
    };
    let shape = LaunchShape { grid: [grid, 1, 1], threads: 256, shared, ..LaunchShape::default() };
    let seconds = timed(cuda, &source(part, dtype), shape, room, 0, rounds)?;
    Some(depth * each * f64::from(grid) * f64::from(rounds) / seconds)
}

fn lane_rate(cuda: &Cuda, room: &Buffer) -> Option<f64> {
    let (grid, rounds) = (4 * cuda.chip().multiprocessors, 2000);
    let shape = LaunchShape { grid: [grid, 1, 1], threads: 256, ..LaunchShape::default() };
    let seconds = timed(cuda, &source(2, DType::F16), shape, room, 0, rounds)?;
    Some(2.0 * 16.0 * 256.0 * f64::from(grid) * f64::from(rounds) / seconds)
}

fn read(cuda: &Cuda, room: &Buffer, bytes: u64, rounds: i32) -> Option<f64> {
    let shape = LaunchShape { grid: [2 * cuda.chip().multiprocessors, 1, 1], threads: 512, ..LaunchShape::default() };
    // Whole turns of the kernel's loop: what is left over is not read.
    let turn = u64::from(shape.grid[0]) * 512 * 4 * 16;
    let bytes = bytes / turn * turn;
    let seconds = timed(cuda, &source(3, DType::F16), shape, room, bytes, rounds)?;
    Some(bytes as f64 * f64::from(rounds) / seconds)
}

/// Seconds of one empty launch among many in a graph.
fn launch(cuda: &Cuda) -> Option<f64> {
    const NODES: u32 = 200;
    let function = cuda.build(&source(2, DType::F16)).ok()?;
    let shape = LaunchShape { grid: [1, 1, 1], threads: 32, ..LaunchShape::default() };
    let (address, units, rounds) = (0u64, 0u64, 0i32);
    let arguments: [*const c_void; 4] = [
        (&raw const address).cast(),
        (&raw const address).cast(),
        (&raw const units).cast(),
        (&raw const rounds).cast(),
    ];
    let graph = Graph::capture(cuda.stream(), || {
        // SAFETY: as in `timed`; with no rounds nothing is read, and what would be written never is.
        (0..NODES).try_for_each(|_| unsafe { function.launch(&shape, &arguments, cuda.stream()) })
    });
    let graph = graph.ok()?;
    best(cuda, || graph.launch(cuda.stream())).ok().map(|seconds| seconds / f64::from(NODES))
}

/// What the chip's counts and its highest clock allow, wherever memory lies: reads of the nearest cache bound them all.
pub(crate) fn data_sheet(chip: &Chip) -> Ceilings {
    let clocks = f64::from(chip.multiprocessors) * f64::from(chip.clock_khz) * 1e3;
    let bandwidth = vec![Bandwidth { capacity: u64::MAX, rate: NEAREST_BYTES_PER_CLOCK * clocks }];
    Ceilings { bandwidth, ..stated(chip, 0.0) }
}

/// The bounds of a chip whose memory copies at a rate.
fn stated(chip: &Chip, copy: f64) -> Ceilings {
    let (half, single) = chip.peak_flops();
    let clocks = f64::from(chip.multiprocessors) * f64::from(chip.clock_khz) * 1e3;
    Ceilings {
        flops: BTreeMap::from([(DType::F16, half), (DType::Bf16, half), (DType::F32, single)]),
        // Tensor cores take tf32 at half the rate of the half types.
        tf32: Some(half / 2.0),
        bandwidth: vec![
            // A working set somewhat larger than L2 is still read from it in part.
            Bandwidth { capacity: 2 * chip.l2, rate: (L2_BYTES_PER_CLOCK * clocks).max(copy) },
            Bandwidth { capacity: u64::MAX, rate: copy },
        ],
        launch: 0.0,
        load: 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warplap_core::roofline::Work;

    #[test]
    fn no_time_ever_measured_on_an_h200_is_called_impossible() {
        let ceilings = stated(&Chip::h200(), 4.3e12);
        let work = |m: f64, n: f64, k: f64| Work { flops: 2.0 * m * n * k, bytes: 2.0 * (m * k + k * n + m * n) };
        for (work, us) in [
            (work(4096.0, 4096.0, 4096.0), 179.0),
            (work(1.0, 4096.0, 4096.0), 5.4),
            (work(1.0, 11008.0, 4096.0), 22.2),
        ] {
            assert!(ceilings.floor(work, DType::Bf16, false).unwrap() * 1e6 < us);
            let sheet = data_sheet(&Chip::h200());
            for cold in [false, true] {
                assert!(sheet.floor(work, DType::Bf16, cold) <= ceilings.floor(work, DType::Bf16, cold));
            }
        }
    }
}
