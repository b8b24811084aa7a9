//! From arguments to typed slices as long as the problem says, and the factor of an element.

use std::sync::OnceLock;

use warplap_core::arg::Arg;
use warplap_core::rejection::Rejection;
use warplap_core::scalar::{F8E4m3, Scalar};
use warplap_cpu::{Cpu, Typed};

use crate::qgemm::{BLOCK, QgemmProblem, Scale, slot};
use crate::typed;

/// The slots of a product of signed bytes.
pub(super) struct Ints<'a> {
    pub(super) a: &'a [i8],
    pub(super) b: &'a [i8],
    pub(super) c: &'a mut [i32],
}

impl<'a> Ints<'a> {
    pub(super) fn of(p: &QgemmProblem, args: &mut [Arg<'a, Cpu>]) -> Result<Self, Rejection> {
        // The catalog hands out kernels that refuse shorter arguments than the signature's; longer ones are cut.
        Ok(Ints {
            a: &typed::read::<i8>(args[slot::A].read()?)?[..(p.m * p.k) as usize],
            b: &typed::read::<i8>(args[slot::B].read()?)?[..(p.k * p.n) as usize],
            c: &mut typed::write::<i32>(args[slot::C].write()?)?[..(p.m * p.n) as usize],
        })
    }
}

/// The slots of a product of f8e4m3.
pub(super) struct Floats<'a, T> {
    pub(super) a: &'a [F8E4m3],
    pub(super) b: &'a [F8E4m3],
    pub(super) c: &'a mut [T],
    pub(super) factors: Factors<'a>,
}

impl<'a, T: Typed> Floats<'a, T> {
    pub(super) fn of(p: &QgemmProblem, args: &mut [Arg<'a, Cpu>]) -> Result<Self, Rejection> {
        let scales = |arg: &Arg<'a, Cpu>| arg.view().map_or(Ok(&[][..]), typed::read::<f32>);
        let (m, pitch) = (p.m as usize, p.b_scale_pitch() as usize);
        let factors =
            Factors { scale: p.scale, m, pitch, a: scales(&args[slot::SCALE_A])?, b: scales(&args[slot::SCALE_B])? };
        Ok(Floats {
            a: &typed::read::<F8E4m3>(args[slot::A].read()?)?[..(p.m * p.k) as usize],
            b: &typed::read::<F8E4m3>(args[slot::B].read()?)?[..(p.k * p.n) as usize],
            c: &mut typed::write::<T>(args[slot::C].write()?)?[..(p.m * p.n) as usize],
            factors,
        })
    }
}

/// The factors of both matrices.
#[derive(Clone, Copy)]
pub(super) struct Factors<'a> {
    scale: Scale,
    m: usize,
    pitch: usize,
    a: &'a [f32],
    b: &'a [f32],
}

impl Factors<'_> {
    /// The factor of the sum of one block of k of an element of C.
    pub(super) fn of(&self, row: usize, column: usize, block: usize) -> f32 {
        self.of_a(row, block) * self.of_b(column, block)
    }

    /// That of a block of a row of A.
    pub(super) fn of_a(&self, row: usize, block: usize) -> f32 {
        match self.scale {
            Scale::None => 1.0,
            Scale::Tensor => self.a[0],
            Scale::Row => self.a[row],
            Scale::Block => self.a[block * self.m + row],
        }
    }

    /// That of a block of a column of B.
    pub(super) fn of_b(&self, column: usize, block: usize) -> f32 {
        match self.scale {
            Scale::None => 1.0,
            Scale::Tensor => self.b[0],
            Scale::Row => self.b[column],
            Scale::Block => self.b[column / BLOCK as usize * self.pitch + block],
        }
    }
}

/// The numbers of all codes of f8e4m3.
pub(super) fn values() -> &'static [f32; 256] {
    static VALUES: OnceLock<[f32; 256]> = OnceLock::new();
    VALUES.get_or_init(|| std::array::from_fn(|code| F8E4m3(code as u8).to_f64() as f32))
}
