//! The chip: what the driver says of a device, and the names and bounds that follow from it.

/// One word for devices of this kind.
pub(crate) const KIND: &str = "cuda";

/// What the driver says of one device. Plain facts, so that host arithmetic can be tested without a GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chip {
    /// The model's name.
    pub name: String,
    /// Which card it is, among all there are.
    pub uuid: [u8; 16],
    /// Where it sits: domain, bus and device of PCI.
    pub bus: String,
    /// Compute capability, major and minor.
    pub capability: (u32, u32),
    /// Multiprocessors.
    pub multiprocessors: u32,
    /// The highest clock in kHz.
    pub clock_khz: u32,
    /// Bytes of the second-level cache.
    pub l2: u64,
    /// Bytes of device memory.
    pub memory: u64,
    /// Bytes of shared memory one block may ask for.
    pub shared_memory: u64,
    /// The CUDA version the driver supports, major and minor.
    pub driver: (i32, i32),
}

impl Chip {
    /// Threads that a multiprocessor has room for.
    pub fn resident_threads(&self) -> u32 {
        match self.capability {
            (7, 5) => 1024,
            (8, 0) => 2048,
            (8 | 12, _) => 1536,
            _ => 2048,
        }
    }

    /// The card's name among all there are, as `nvidia-smi -L` writes it.
    pub fn card(&self) -> String {
        let digits: String = self.uuid.iter().map(|byte| format!("{byte:02x}")).collect();
        let parts = [0..8, 8..12, 12..16, 16..20, 20..32].map(|part| &digits[part]);
        format!("GPU-{}", parts.join("-"))
    }

    /// Device memory in GiB, rounded: a few megabytes more or less are the driver's, not the chip's.
    pub fn gibibytes(&self) -> u64 {
        (self.memory + (1 << 29)) >> 30
    }

    /// An H200, for arithmetic and compiling where there is no GPU.
    pub fn h200() -> Self {
        Chip {
            name: "NVIDIA H200".into(),
            uuid: [0; 16],
            bus: "0000:00:00.0".into(),
            capability: (9, 0),
            multiprocessors: 132,
            clock_khz: 1_980_000,
            l2: 50 << 20,
            memory: 139 << 30,
            shared_memory: 232_448,
            driver: (13, 0),
        }
    }

    /// Whether it has Hopper's own instructions (wgmma, the bulk tensor copy engine).
    pub fn is_hopper(&self) -> bool {
        self.capability == (9, 0)
    }

    /// The architecture its kernels are compiled for; where the chip has instructions of its own, with them.
    pub fn arch(&self) -> String {
        let (major, minor) = self.capability;
        let own = if major >= 9 { "a" } else { "" };
        format!("sm_{major}{minor}{own}")
    }

    /// A bound no product can exceed: operations per clock of one multiprocessor at the highest clock. Half-precision
    /// inputs with f32 sums on tensor cores, and f32 on plain lanes.
    pub fn peak_flops(&self) -> (f64, f64) {
        let (half, single) = match self.capability {
            (8, 0) => (2048.0, 128.0),
            (8, _) => (1024.0, 256.0),
            (9, _) => (4096.0, 256.0),
            (7, _) => (1024.0, 128.0),
            (12, _) => (2048.0, 256.0),
            // Newer than this table: high enough that nothing right is called impossible.
            _ => (16384.0, 512.0),
        };
        let clocks = f64::from(self.multiprocessors) * f64::from(self.clock_khz) * 1e3;
        (half * clocks, single * clocks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hopper_chip_is_compiled_for_with_its_own_instructions_and_an_ampere_one_without() {
        assert_eq!(Chip::h200().arch(), "sm_90a");
        assert_eq!(Chip { capability: (8, 6), ..Chip::h200() }.arch(), "sm_86");
        assert_eq!(Chip { capability: (12, 0), ..Chip::h200() }.arch(), "sm_120a");
    }

    #[test]
    fn a_card_is_named_as_its_vendor_names_it_and_memory_is_rounded() {
        let uuid = std::array::from_fn(|n| 16 * n as u8 + 1);
        let chip = Chip { uuid, memory: (139 << 30) + (870 << 20), ..Chip::h200() };
        assert_eq!(chip.card(), "GPU-01112131-4151-6171-8191-a1b1c1d1e1f1");
        assert_eq!((chip.gibibytes(), Chip::h200().gibibytes()), (140, 139));
    }

    #[test]
    fn the_bound_is_above_the_data_sheet() {
        let (half, single) = Chip::h200().peak_flops();
        assert!((989e12..1200e12).contains(&half) && (66e12..80e12).contains(&single), "{half:e} {single:e}");
    }
}
