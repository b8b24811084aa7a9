//! AMX: the tile registers of recent Intel server cores, for products of brain floats summed in f32 and of signed bytes
//! summed in i32.
//!
//! The compiler's own functions for it are not stable, so this room writes the instructions itself. [`Amx::get`] gives
//! out a proof that the processor has tiles, the system saves them, and this process asked for permission; everything
//! else hangs on that proof.

use std::arch::asm;
use std::arch::x86_64::{__cpuid, __cpuid_count};
use std::marker::PhantomData;
use std::sync::OnceLock;

/// Rows and columns of one product of [`Tiles::multiply`].
pub const SIDE: usize = 32;

/// Steps of k that one step of [`Tiles::multiply`] covers.
pub const DEPTH: usize = 32;

/// Brain floats of A (and of B) that one step of [`Tiles::multiply`] reads: two tiles of 16 rows of 64 bytes.
pub const STEP: usize = 1024;

/// Proof that this process may use AMX with brain floats.
#[derive(Clone, Copy, Debug)]
pub struct Amx(());

impl Amx {
    /// The proof, where the machine has AMX and the system lets this process use it. Asks once.
    pub fn get() -> Option<Amx> {
        static HAS_AMX: OnceLock<bool> = OnceLock::new();
        HAS_AMX.get_or_init(|| present() && permitted()).then_some(Amx(()))
    }

    /// Whether tiles multiply signed bytes too.
    pub fn has_bytes(self) -> bool {
        const AMX_INT8: u32 = 1 << 25;
        __cpuid_count(7, 0).edx & AMX_INT8 != 0
    }

    /// Sets up this thread's tiles, calls `f`, and lets the tiles go: a thread that holds them costs more to switch.
    pub fn with<R>(self, f: impl FnOnce(&Tiles) -> R) -> R {
        struct Release;
        impl Drop for Release {
            fn drop(&mut self) {
                // SAFETY: Amx proves that the instruction is there; no tile is alive past this.
                unsafe { asm!("tilerelease", options(nostack, preserves_flags)) }
            }
        }
        /// What `ldtilecfg` reads: palette 1, all eight tiles of 16 rows of 64 bytes.
        #[repr(C, align(64))]
        struct Shape {
            palette: u8,
            start_row: u8,
            reserved: [u8; 14],
            bytes: [u16; 16],
            rows: [u8; 16],
        }
        let mut shape = Shape { palette: 1, start_row: 0, reserved: [0; 14], bytes: [0; 16], rows: [0; 16] };
        shape.bytes[..8].fill(64);
        shape.rows[..8].fill(16);
        // SAFETY: Amx proves instruction and permission; the shape is legal in palette 1, which `present` checked.
        unsafe { asm!("ldtilecfg [{}]", in(reg) &shape, options(nostack, preserves_flags, readonly)) };
        let _release = Release;
        f(&Tiles(PhantomData))
    }

    /// FLOP/s of one thread with nothing but tile products, over so many steps of four.
    pub fn flops(self, steps: usize) -> f64 {
        self.with(|_| {
            let mut left = steps.max(1);
            let start = std::time::Instant::now();
            // SAFETY: tiles are set up; only tile registers change.
            unsafe {
                asm!(
                    "tilezero tmm0", "tilezero tmm1", "tilezero tmm2", "tilezero tmm3",
                    "tilezero tmm4", "tilezero tmm5", "tilezero tmm6", "tilezero tmm7",
                    "2:",
                    "tdpbf16ps tmm0, tmm4, tmm6",
                    "tdpbf16ps tmm1, tmm4, tmm7",
                    "tdpbf16ps tmm2, tmm5, tmm6",
                    "tdpbf16ps tmm3, tmm5, tmm7",
                    "dec {left}",
                    "jnz 2b",
                    left = inout(reg) left,
                    out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                    out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                    options(nostack, nomem),
                );
            }
            let _ = left;
            (steps.max(1) * 2 * SIDE * SIDE * DEPTH) as f64 / start.elapsed().as_secs_f64().max(1e-9)
        })
    }
}

/// The loop of [`Tiles`]: 32 rows by 32 columns of sums of four bytes over steps of 64 bytes along k.
macro_rules! squares {
    ($product:literal, ($steps:ident, $a:ident, $b:ident, $from:ident, $from_row:ident, $to:ident, $to_row:ident)) => {
        // SAFETY: `self` proves that the tiles are set up; the caller promised the memory.
        unsafe {
            asm!(
                "test {from}, {from}",
                "jz 3f",
                "tileloadd tmm0, [{from} + {from_row}]",
                "tileloadd tmm1, [{from} + {from_row} + 64]",
                "tileloadd tmm2, [{from_low} + {from_row}]",
                "tileloadd tmm3, [{from_low} + {from_row} + 64]",
                "jmp 4f",
                "3:",
                "tilezero tmm0", "tilezero tmm1", "tilezero tmm2", "tilezero tmm3",
                "4:",
                "test {steps}, {steps}",
                "jz 5f",
                "2:",
                "tileloadd tmm6, [{b} + {line}]",
                "tileloadd tmm4, [{a} + {line}]",
                "tileloadd tmm7, [{b} + {line} + 1024]",
                concat!($product, " tmm0, tmm4, tmm6"),
                "tileloadd tmm5, [{a} + {line} + 1024]",
                concat!($product, " tmm1, tmm4, tmm7"),
                concat!($product, " tmm2, tmm5, tmm6"),
                concat!($product, " tmm3, tmm5, tmm7"),
                "add {a}, 2048",
                "add {b}, 2048",
                "dec {steps}",
                "jnz 2b",
                "5:",
                "tilestored [{to} + {to_row}], tmm0",
                "tilestored [{to} + {to_row} + 64], tmm1",
                "tilestored [{to_low} + {to_row}], tmm2",
                "tilestored [{to_low} + {to_row} + 64], tmm3",
                steps = inout(reg) $steps => _,
                a = inout(reg) $a => _,
                b = inout(reg) $b => _,
                line = in(reg) 64usize,
                from = in(reg) $from,
                from_low = in(reg) $from.wrapping_add(16 * $from_row),
                from_row = in(reg) 4 * $from_row,
                to = in(reg) $to,
                to_low = in(reg) $to.add(16 * $to_row),
                to_row = in(reg) 4 * $to_row,
                out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                options(nostack),
            );
        }
    };
}

/// This thread's tiles, set up.
#[derive(Debug)]
pub struct Tiles(PhantomData<*const ()>);

impl Tiles {
    /// 32 rows by 32 columns of f32 sums over `steps` steps of 32 brain floats each.
    ///
    /// A step of A is [`STEP`] brain floats: rows 0 to 15, then rows 16 to 31, each row 32 of them. A step of B is as
    /// many: columns 0 to 15, then 16 to 31, as 16 rows of 16 columns of pairs (2p, 2p + 1). Sums start from `from`
    /// (null: from zero) and go to `to`, rows `from_row` and `to_row` numbers apart.
    ///
    /// # Safety
    /// A and B hold `steps * STEP` brain floats; `from` (unless null) and `to` hold 32 rows of 32 numbers.
    pub unsafe fn multiply(
        &self,
        steps: usize,
        a: *const u16,
        b: *const u16,
        (from, from_row): (*const f32, usize),
        (to, to_row): (*mut f32, usize),
    ) {
        squares!("tdpbf16ps", (steps, a, b, from, from_row, to, to_row));
    }

    /// The same of signed bytes with i32 sums: a step is 64 of them along k, and lies as their pairs would.
    ///
    /// # Safety
    /// As for `multiply`; the processor [has bytes](Amx::has_bytes).
    pub unsafe fn multiply_bytes(
        &self,
        steps: usize,
        a: *const u16,
        b: *const u16,
        (from, from_row): (*const f32, usize),
        (to, to_row): (*mut f32, usize),
    ) {
        squares!("tdpbssd", (steps, a, b, from, from_row, to, to_row));
    }
}

/// Whether the processor has tiles of the usual size with brain floats, and the system saves them.
fn present() -> bool {
    if !cfg!(target_os = "linux") || __cpuid(0).eax < 0x1d {
        return false;
    }
    const SAVED_BY_SYSTEM: u32 = 1 << 27;
    const AMX_BF16: u32 = 1 << 22;
    const AMX_TILE: u32 = 1 << 24;
    if __cpuid(1).ecx & SAVED_BY_SYSTEM == 0 || __cpuid_count(7, 0).edx & (AMX_BF16 | AMX_TILE) != AMX_BF16 | AMX_TILE {
        return false;
    }
    let (low, _high): (u32, u32);
    // SAFETY: the bit above says that the instruction is there.
    unsafe { asm!("xgetbv", in("ecx") 0, out("eax") low, out("edx") _high, options(nomem, nostack, preserves_flags)) };
    const TILE_STATE: u32 = 0b11 << 17;
    if low & TILE_STATE != TILE_STATE {
        return false;
    }
    // Palette 1: bytes of a row and number of tiles, then rows of a tile.
    let palette = __cpuid_count(0x1d, 1);
    palette.ebx & 0xffff >= 64 && palette.ebx >> 16 >= 8 && palette.ecx & 0xffff >= 16
}

/// Asks the system to let this process use tiles: without that the first tile instruction is a fault.
#[cfg(target_os = "linux")]
fn permitted() -> bool {
    const ARCH_PRCTL: usize = 158;
    const ASK_FOR_STATE: usize = 0x1023;
    const TILE_DATA: usize = 18;
    let answer: isize;
    // SAFETY: arch_prctl(ARCH_REQ_XCOMP_PERM) reads no memory of ours; the kernel clobbers rcx and r11.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") ARCH_PRCTL => answer,
            in("rdi") ASK_FOR_STATE,
            in("rsi") TILE_DATA,
            out("rcx") _,
            out("r11") _,
            options(nostack),
        );
    }
    answer == 0
}

#[cfg(not(target_os = "linux"))]
fn permitted() -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::bf16;

    #[test]
    fn tiles_multiply_like_plain_loops_where_there_are_any() {
        let Some(amx) = Amx::get() else { return };
        let steps = 3;
        let number = |i: usize, j: usize| bf16::from_f32(((i * 7 + j * 3) % 11) as f32 - 5.0);
        let (mut a, mut b) = (vec![0u16; steps * STEP], vec![0u16; steps * STEP]);
        for i in 0..SIDE {
            for p in 0..steps * DEPTH {
                let (step, q) = (p / DEPTH, p % DEPTH);
                a[step * STEP + i * DEPTH + q] = number(i, p).to_bits();
                b[step * STEP + i / 16 * 512 + q / 2 * 32 + i % 16 * 2 + q % 2] = number(p, i + 1).to_bits();
            }
        }
        let from: Vec<f32> = (0..SIDE * 40).map(|i| i as f32).collect();
        let mut to = vec![0.5f32; SIDE * 36];
        for start in [std::ptr::null(), from.as_ptr()] {
            // SAFETY: all vectors are long enough.
            amx.with(|t| unsafe { t.multiply(steps, a.as_ptr(), b.as_ptr(), (start, 40), (to.as_mut_ptr(), 36)) });
            for i in 0..SIDE {
                for j in 0..SIDE {
                    let first = if start.is_null() { 0.0 } else { from[i * 40 + j] };
                    let sum: f32 = (0..steps * DEPTH).map(|p| (number(i, p) * number(p, j + 1)).to_f32()).sum();
                    assert_eq!(to[i * 36 + j], first + sum, "({i}, {j})");
                }
                assert!(to[i * 36 + SIDE..(i + 1) * 36].iter().all(|x| *x == 0.5));
            }
        }
        assert!(amx.flops(100) > 0.0);
    }

    #[test]
    fn tiles_multiply_signed_bytes_like_plain_loops_where_there_are_any() {
        let Some(amx) = Amx::get().filter(|amx| amx.has_bytes()) else { return };
        let (steps, deep) = (3, 2 * DEPTH);
        let number = |i: usize, j: usize| ((i * 37 + j * 91) % 256) as u8 as i8;
        let (mut a, mut b) = (vec![0i8; 2 * steps * STEP], vec![0i8; 2 * steps * STEP]);
        for i in 0..SIDE {
            for p in 0..steps * deep {
                let (step, q) = (p / deep, p % deep);
                a[2 * step * STEP + i * deep + q] = number(i, p);
                b[2 * step * STEP + i / 16 * 1024 + q / 4 * 64 + i % 16 * 4 + q % 4] = number(p, i + 1);
            }
        }
        let (mut to, from) = (vec![7i32; SIDE * SIDE], vec![-5i32; SIDE * SIDE]);
        for start in [std::ptr::null(), from.as_ptr().cast::<f32>()] {
            let (at, out) = ((a.as_ptr().cast::<u16>(), b.as_ptr().cast::<u16>()), to.as_mut_ptr().cast::<f32>());
            // SAFETY: all vectors are long enough, and the processor has the instruction.
            amx.with(|t| unsafe { t.multiply_bytes(steps, at.0, at.1, (start, SIDE), (out, SIDE)) });
            for (at, result) in to.iter().enumerate() {
                let (i, j) = (at / SIDE, at % SIDE);
                let sum: i32 = (0..steps * deep).map(|p| i32::from(number(i, p)) * i32::from(number(p, j + 1))).sum();
                assert_eq!(*result, sum - if start.is_null() { 0 } else { 5 }, "({i}, {j})");
            }
        }
    }
}
