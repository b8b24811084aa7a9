//! What the neutral kernel does to the memory of the launch behind it (see `neutral.cu` of warplap-cuda).

const MOST: usize = 12;

/// One place, in the kernel's own form.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct Place {
    at: usize,
    elements: usize,
    bytes: u32,
    kind: u32,
    bits: u64,
}

/// The third argument of the kernel.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stir {
    state: usize,
    count: u32,
    check: u32,
    places: [Place; MOST],
}

impl Stir {
    pub(crate) fn run(&self, turn: u32) {
        for (number, place) in self.places.iter().enumerate().take(self.count as usize) {
            let drawn = |i: usize| {
                let seed = (turn as usize * MOST + number) * 2 + i + 1;
                let seed = (seed as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                place.at + (seed ^ (seed >> 29)) as usize % place.elements * place.bytes as usize
            };
            let (first, second) = (drawn(0), drawn(1));
            if place.kind == 1 {
                let (a, b) = (place.load(first), place.load(second));
                place.store(first, b);
                place.store(second, a);
                continue;
            }
            let word = |i: usize| (self.state + 8 * i) as *mut u64;
            unsafe {
                let last = word(2 + number);
                if self.check != 0 {
                    *word(0) += 1;
                    *word(1) += u64::from(place.load(*last as usize) == place.bits);
                }
                *last = first as u64;
            }
            place.store(first, place.bits);
        }
    }
}

impl Place {
    fn load(&self, at: usize) -> u64 {
        let mut bits = [0; 8];
        unsafe { std::ptr::copy_nonoverlapping(at as *const u8, bits.as_mut_ptr(), self.bytes as usize) };
        u64::from_le_bytes(bits)
    }

    fn store(&self, at: usize, bits: u64) {
        unsafe { std::ptr::copy_nonoverlapping(bits.to_le_bytes().as_ptr(), at as *mut u8, self.bytes as usize) };
    }
}
