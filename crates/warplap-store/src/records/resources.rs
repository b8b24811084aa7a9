//! What a kernel takes of a GPU's multiprocessor, as its driver tells: registers, memory, and how many of its threads run
//! at once. Kept with what was measured, so that a report can say why one setting is slower than another.

use serde::{Deserialize, Serialize};

/// What one kernel takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Resources {
    /// Registers of a thread.
    pub registers: u32,
    /// Bytes of local memory of a thread: what did not fit into registers (spills), and arrays that it indexes.
    pub local: u32,
    /// Bytes of shared memory of a block.
    pub shared: u32,
    /// Threads of a block.
    pub threads: u32,
    /// Blocks that a multiprocessor runs at once.
    pub blocks: u32,
    /// The share of a multiprocessor's threads that these are.
    pub occupancy: f64,
}

impl Resources {
    /// With the occupancy of so many blocks on a multiprocessor that has room for `most` threads.
    pub fn on(self, blocks: u32, most: u32) -> Resources {
        let occupancy = f64::from(blocks) * f64::from(self.threads) / f64::from(most.max(1));
        Resources { blocks, occupancy: occupancy.min(1.0), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn occupancy_is_the_share_of_the_threads_that_fit() {
        let taken = Resources { registers: 168, threads: 384, ..Resources::default() }.on(1, 2048);
        assert_eq!((taken.blocks, taken.occupancy), (1, 0.1875));
        assert_eq!(taken.on(9, 2048).occupancy, 1.0);
    }
}
