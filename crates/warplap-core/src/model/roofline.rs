//! Physics: useful work and measured ceilings come in; the floor under any honest time goes out.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::model::dtype::DType;
pub use crate::records::work::{IMPOSSIBLE_BELOW, Work};

/// What a device can do at best, as measured on it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Ceilings {
    /// FLOP/s by the element type the inputs are stored in.
    pub flops: BTreeMap<DType, f64>,
    /// FLOP/s of single precision whose products may be rounded to tf32; `None` where that is no faster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tf32: Option<f64>,
    /// Bandwidth by working set, smallest first.
    pub bandwidth: Vec<Bandwidth>,
    /// Seconds from asking for a launch to its start.
    pub launch: f64,
    /// Threads of other programs that ran while they were measured, over the device's own.
    #[serde(default)]
    pub load: f64,
}

/// Bytes per second while the working set is no larger than `capacity`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bandwidth {
    /// Bytes of the working set; infinite is written as the largest number.
    pub capacity: u64,
    /// Bytes per second.
    pub rate: f64,
}

/// Ceilings measured again count as better when the floor falls below this share of the former one.
pub const FLOOR_FELL: f64 = 0.98;

impl Ceilings {
    /// The larger of both, entry by entry: a ceiling is what a machine can do, and it never does more.
    pub fn raised(mut self, other: &Ceilings) -> Self {
        for (dtype, rate) in &other.flops {
            let mine = self.flops.entry(*dtype).or_insert(*rate);
            *mine = mine.max(*rate);
        }
        self.tf32 = self.tf32.into_iter().chain(other.tf32).reduce(f64::max);
        for level in &other.bandwidth {
            match self.bandwidth.iter_mut().find(|b| b.capacity == level.capacity) {
                Some(mine) => mine.rate = mine.rate.max(level.rate),
                None => self.bandwidth.push(*level),
            }
        }
        self.bandwidth.sort_by_key(|b| b.capacity);
        self.launch = self.launch.min(other.launch);
        self.load = self.load.min(other.load);
        self
    }

    /// The least time in seconds the work can take: arithmetic or memory, whichever is longer. `None` where no ceiling
    /// for the type is known.
    pub fn floor(&self, work: Work, dtype: DType, cold: bool) -> Option<f64> {
        Some(self.floor_at(work, *self.flops.get(&dtype)?, cold))
    }

    /// The same of 8-bit numbers. They are multiplied twice as fast as half types by whatever multiplies those in tiles,
    /// and four times as fast as f32 by vectors.
    pub fn floor_of_bytes(&self, work: Work, cold: bool) -> Option<f64> {
        let rate = |dtype, times: f64| self.flops.get(&dtype).map_or(0.0, |rate| times * rate);
        let rate = rate(DType::Bf16, 2.0).max(rate(DType::F32, 4.0));
        (rate > 0.0).then(|| self.floor_at(work, rate, cold))
    }

    /// The same where the arithmetic runs at so many FLOP/s at best.
    pub fn floor_at(&self, work: Work, flops: f64, cold: bool) -> f64 {
        let compute = if flops > 0.0 { work.flops / flops } else { 0.0 };
        let level = if cold {
            self.bandwidth.last()
        } else {
            self.bandwidth.iter().find(|b| work.bytes <= b.capacity as f64).or(self.bandwidth.last())
        };
        let memory = level.map_or(0.0, |b| if b.rate > 0.0 { work.bytes / b.rate } else { 0.0 });
        compute.max(memory)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ceilings() -> Ceilings {
        Ceilings {
            flops: BTreeMap::from([(DType::F32, 100e9)]),
            tf32: None,
            bandwidth: vec![Bandwidth { capacity: 1 << 20, rate: 100e9 }, Bandwidth { capacity: u64::MAX, rate: 10e9 }],
            launch: 0.0,
            load: 0.0,
        }
    }

    #[test]
    fn raising_keeps_the_larger_of_each_and_never_lifts_a_floor() {
        let mut better = ceilings();
        better.flops.insert(DType::F32, 120e9);
        better.bandwidth[0].rate = 90e9;
        better.bandwidth[1].rate = 11e9;
        let raised = ceilings().raised(&better);
        assert_eq!(
            (raised.flops[&DType::F32], raised.bandwidth[0].rate, raised.bandwidth[1].rate),
            (120e9, 100e9, 11e9)
        );
        let work = Work { flops: 1e9, bytes: 1e9 };
        assert!(raised.floor(work, DType::F32, true) <= ceilings().floor(work, DType::F32, true));
    }

    #[test]
    fn the_floor_is_the_longer_of_arithmetic_and_memory() {
        let c = ceilings();
        assert_eq!(c.floor(Work { flops: 1e9, bytes: 1e3 }, DType::F32, false), Some(0.01));
        assert_eq!(c.floor(Work { flops: 1.0, bytes: 1e9 }, DType::F32, false), Some(0.1));
        assert_eq!(c.floor(Work { flops: 1.0, bytes: 1e6 }, DType::F32, false), Some(1e-5));
        assert_eq!(c.floor(Work { flops: 1.0, bytes: 1e6 }, DType::F32, true), Some(1e-4));
        assert_eq!(c.floor(Work::default(), DType::Bf16, false), None);
    }
}
