//! Ceilings: what the device can do at best. Memory is measured by a large copy; arithmetic and L2 are stated bounds from
//! the number of multiprocessors and the highest clock, so that nothing right is ever called impossible.

use std::collections::BTreeMap;

use warplap_core::dtype::DType;
use warplap_core::roofline::{Bandwidth, Ceilings};

use crate::chip::Chip;
use crate::device::Cuda;
use crate::driver::Event;
use crate::error::CudaError;
use crate::memory::Buffer;

/// Bytes of the copy: many times any L2.
const COPY: usize = 1 << 30;

/// Bytes one multiprocessor takes from L2 in a clock at the most.
const L2_BYTES_PER_CLOCK: f64 = 64.0;

pub(crate) fn measure(cuda: &Cuda) -> Result<Ceilings, CudaError> {
    let bytes = COPY.min(usize::try_from(cuda.chip().memory / 8).unwrap_or(COPY));
    let from = Buffer::new(cuda.context(), DType::F32, bytes / 4)?;
    let to = Buffer::new(cuda.context(), DType::F32, bytes / 4)?;
    let (start, end) = (Event::new(cuda.context())?, Event::new(cuda.context())?);
    let mut best = f64::INFINITY;
    for _ in 0..5 {
        start.record(cuda.stream())?;
        // SAFETY: two buffers of so many bytes.
        unsafe { cuda.stream().copy_across(to.address, from.address, bytes / 4 * 4) }?;
        end.record(cuda.stream())?;
        best = best.min(start.seconds_to(&end)?);
    }
    Ok(stated(cuda.chip(), 2.0 * bytes as f64 / best))
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
        }
    }
}
