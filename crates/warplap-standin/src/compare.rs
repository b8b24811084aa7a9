//! The one kernel of the project's own that proofs need: an output held against the right answer, and seals. It does
//! what `compare.cu` says, in one block.

/// The arguments of one launch. `right` is 0 where memory is sealed and nothing compared.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Compare {
    pub(crate) dtype: Kind,
    pub(crate) got: usize,
    pub(crate) right: usize,
    pub(crate) len: usize,
    pub(crate) guard: usize,
    /// What bands hold, and the bounds: relative and floor.
    pub(crate) bounds: [f64; 3],
    pub(crate) out: usize,
    pub(crate) blocks: usize,
}

/// The constant `DTYPE`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Kind {
    F16,
    Bf16,
    F32,
    F64,
    I32,
    I64,
    I8,
    U8,
    Bool,
    F8E4m3,
    F8E5m2,
}

impl Kind {
    /// By the constants a text was compiled with.
    pub(crate) fn of(options: &str) -> Option<Kind> {
        let code = options.split_whitespace().find_map(|word| word.strip_prefix("-DDTYPE="))?;
        let floats = [Kind::F16, Kind::Bf16, Kind::F32, Kind::F64];
        let others = [Kind::I32, Kind::I64, Kind::I8, Kind::U8, Kind::Bool, Kind::F8E4m3, Kind::F8E5m2];
        floats.into_iter().chain(others).nth(code.parse().ok()?)
    }

    /// One element's bits.
    fn bits(self, at: usize, place: usize) -> u64 {
        unsafe {
            match self {
                Kind::F16 | Kind::Bf16 => u64::from((at as *const u16).add(place).read()),
                Kind::F32 | Kind::I32 => u64::from((at as *const u32).add(place).read()),
                Kind::F64 | Kind::I64 => (at as *const u64).add(place).read(),
                Kind::I8 | Kind::U8 | Kind::Bool | Kind::F8E4m3 | Kind::F8E5m2 => {
                    u64::from((at as *const u8).add(place).read())
                }
            }
        }
    }

    fn value(self, bits: u64) -> f64 {
        match self {
            Kind::F16 => half(bits as u16),
            Kind::Bf16 => f64::from(f32::from_bits((bits as u32) << 16)),
            Kind::F32 => f64::from(f32::from_bits(bits as u32)),
            Kind::F64 => f64::from_bits(bits),
            Kind::I32 => f64::from(bits as u32 as i32),
            Kind::I64 => bits as i64 as f64,
            Kind::I8 => f64::from(bits as u8 as i8),
            Kind::U8 => f64::from(bits as u8),
            Kind::Bool => [0.0, 1.0].get(bits as usize).copied().unwrap_or(f64::NAN),
            Kind::F8E4m3 if bits & 0x7f == 0x7f => f64::NAN,
            Kind::F8E4m3 => 256.0 * half(((bits & 0x80) << 8 | (bits & 0x7f) << 7) as u16),
            Kind::F8E5m2 => half((bits << 8) as u16),
        }
    }
}

fn half(bits: u16) -> f64 {
    let (exponent, mantissa) = (i32::from(bits >> 10 & 31), f64::from(bits & 1023));
    let value = match exponent {
        0 => mantissa * 2f64.powi(-24),
        31 if mantissa == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        e => (1.0 + mantissa / 1024.0) * 2f64.powi(e - 15),
    };
    if bits >> 15 == 1 { -value } else { value }
}

fn mixed(bits: u64, place: usize) -> u64 {
    let x = bits ^ (place as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

impl Compare {
    pub(crate) fn run(self) {
        let (mut worst, mut seal) = (0f64, 0u64);
        let value = |place: usize| self.dtype.value(self.dtype.bits(self.got, place));
        let [band, relative, floor] = self.bounds;
        for i in 0..self.len {
            if self.right == 0 {
                seal = seal.wrapping_add(mixed(self.dtype.bits(self.got, i), i));
                continue;
            }
            let bits = Kind::F64.bits(self.right, i);
            let (right, got) = (f64::from_bits(bits), value(self.guard + i));
            let error = (got - right).abs();
            let share = error / (floor + relative * right.abs());
            worst = worst.max(match (right.is_nan(), got.is_nan()) {
                (true, true) => 0.0,
                _ if error == 0.0 => 0.0,
                _ if share.is_nan() || right.is_nan() => f64::INFINITY,
                _ => share,
            });
            seal = seal.wrapping_add(mixed(bits, i));
        }
        for i in 0..2 * self.guard {
            let at = if i < self.guard { i } else { self.len + i };
            if value(at) != band {
                worst = f64::INFINITY;
            }
        }
        let out = self.out as *mut f64;
        unsafe {
            std::ptr::write_bytes(out, 0, 2 * self.blocks);
            out.write(worst);
            out.add(1).write(f64::from_bits(seal));
        }
    }
}
