//! How rows are cut for kernels that keep them in registers: a row's length and type come in; the axes of such kernels
//! and the constants of a setting go out. Twin of `rows.cuh`.

use warplap_core::dtype::DType;
use warplap_core::rejection::Rejection;
use warplap_core::space::{Axis, Config, Rule, Space};

use super::plan::axis;

/// Bytes that every buffer of rows lies on: one vector of a GPU.
pub(crate) const ALIGN: u64 = 16;

/// Warps a row may have.
const WARPS: [u64; 6] = [1, 2, 4, 8, 16, 32];

/// Rows of a block, where a row has one warp.
const TOGETHER: u64 = 4;

/// Rows of one length and type.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rows {
    /// Elements of a row.
    pub(crate) n: u64,
    /// Their type.
    pub(crate) dtype: DType,
    /// Rows that a kernel holds at once: what it reads again for a second step.
    pub(crate) held: u64,
}

/// A setting as a plan takes it.
pub(crate) struct Cut {
    /// The constants N, WARPS, VEC, STREAM, TOGETHER and KEEP.
    pub(crate) defines: [(&'static str, i64); 6],
    /// Threads of a block.
    pub(crate) threads: u32,
    /// Rows of a block.
    pub(crate) together: u64,
}

/// Elements of a thread that registers hold: a block's 65536 registers are dealt out to its threads.
fn most(warps: u64) -> u64 {
    if warps == 32 { 32 } else { 64 }
}

impl Rows {
    /// Elements of a thread, where a load brings `vec` of them.
    fn of_thread(self, warps: u64, vec: u64) -> u64 {
        self.n.div_ceil(32 * warps * vec) * vec
    }

    /// Whether a row stays in registers.
    fn is_kept(self, warps: u64, vec: u64) -> bool {
        self.of_thread(warps, vec) * self.held <= most(warps)
    }

    /// The elements of the widest load that rows of this length and alignment allow.
    pub(crate) fn widest(self) -> u64 {
        (ALIGN / self.dtype.bytes() as u64).min(1 << self.n.trailing_zeros())
    }

    /// Whether a row is cut well: kept in registers where any number of warps can, and no threads that have nothing at
    /// all.
    fn suits(self, warps: u64, vec: u64) -> bool {
        let busy = warps == 1 || self.n.div_ceil(vec) > 32 * warps / 2;
        let kept = self.is_kept(warps, vec) || (warps >= 8 && !WARPS.iter().any(|w| self.is_kept(*w, vec)));
        busy && kept
    }

    /// The axes WARPS, VEC and STREAM.
    pub(crate) fn space(self) -> Space {
        let wide = self.widest();
        // Two loads a thread are enough under way and few enough to wait for.
        let mut warps: Vec<u64> = WARPS.into_iter().filter(|w| self.suits(*w, wide)).collect();
        warps.sort_by_key(|w| (self.of_thread(*w, wide).abs_diff(2 * wide), *w));
        let vecs = [wide, wide / 2].into_iter().filter(|v| *v == wide || *v >= 2).map(|v| v as i64);
        let number = |c: &Config, name: &str| c.int(name).map_or(0, |v| v as u64);
        Space::single()
            .axis(Axis::ints("WARPS", warps.into_iter().map(|w| w as i64)))
            .axis(Axis::ints("VEC", vecs))
            .axis(Axis::ints("STREAM", [0, 1]))
            .rule(Rule::on("registers hold a row and every warp has a part of it", &["WARPS", "VEC"], move |c| {
                self.suits(number(c, "WARPS"), number(c, "VEC"))
            }))
    }

    /// What a setting of [`Rows::space`] is compiled and launched with.
    pub(crate) fn cut(self, c: &Config) -> Result<Cut, Rejection> {
        let (warps, vec, stream) = (axis(c, "WARPS")?, axis(c, "VEC")?, axis(c, "STREAM")?);
        if !WARPS.contains(&warps) || vec == 0 || !self.widest().is_multiple_of(vec) {
            let reason = format!("{warps} warps, {vec} elements a load: not for rows of {}", self.n);
            return Err(Rejection::DoesNotBuild { reason });
        }
        let together = if warps == 1 { TOGETHER } else { 1 };
        let defines = [
            ("N", self.n as i64),
            ("WARPS", warps as i64),
            ("VEC", vec as i64),
            ("STREAM", stream as i64),
            ("TOGETHER", together as i64),
            ("KEEP", i64::from(self.is_kept(warps, vec))),
        ];
        Ok(Cut { defines, threads: (32 * warps * together) as u32, together })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_every_length_have_a_setting_and_short_ones_stay_in_registers() {
        for dtype in [DType::F32, DType::F16, DType::Bf16] {
            for n in [1, 2, 3, 31, 33, 64, 77, 768, 1000, 1024, 4095, 4096, 8192, 32768, 32769, 40001, 1 << 20] {
                let rows = Rows { n, dtype, held: 1 };
                let configs = rows.space().configs();
                assert!(!configs.is_empty(), "{rows:?}");
                for config in &configs {
                    let cut = rows.cut(config).unwrap();
                    let kept = cut.defines.contains(&("KEEP", 1));
                    assert!(kept == (n <= 32768) && cut.threads <= 1024, "{rows:?} {config}");
                }
            }
        }
    }

    #[test]
    fn loads_are_as_wide_as_rows_allow_and_a_model_s_row_begins_with_two_a_thread() {
        let vec = |n, dtype| Rows { n, dtype, held: 1 }.widest();
        assert_eq!((vec(4096, DType::Bf16), vec(4096, DType::F32)), (8, 4));
        assert_eq!((vec(20, DType::F16), vec(77, DType::F16)), (4, 1));
        let rows = Rows { n: 4096, dtype: DType::Bf16, held: 1 };
        let first = rows.space().default_config().unwrap();
        assert_eq!((first.int("WARPS"), first.int("VEC")), (Some(8), Some(8)));
        assert!(rows.cut(&Config::parse("WARPS=8,VEC=16,STREAM=0").unwrap()).is_err());
    }
}
