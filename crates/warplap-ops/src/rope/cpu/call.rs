//! The typed slots of a launch, as addresses.

use half::{bf16, f16};
use warplap_core::arg::Arg;
use warplap_core::dtype::DType;
use warplap_core::rejection::Rejection;
use warplap_cpu::{Cpu, Typed};

use crate::rope::{Positions, RopeProblem, slot};
use crate::typed;

/// Cosines and sines.
#[derive(Clone, Copy)]
pub(super) enum Table<'a> {
    Wide([&'a [f32]; 2]),
    Half([&'a [f16]; 2]),
    Brain([&'a [bf16]; 2]),
}

/// The slots. Several threads write, each its own rows: heads are addresses, of x and of k, where they are read and
/// where they are written; the two are the same in place.
pub(super) struct Call<'a, T> {
    pub(super) problem: RopeProblem,
    from: [*const T; 2],
    to: [*mut T; 2],
    pub(super) table: Table<'a>,
    short: &'a [i32],
    long: &'a [i64],
    /// Null where there is none.
    bias: *const T,
}

// SAFETY: what is only read nobody writes; each thread reads and writes its own rows behind the other addresses.
unsafe impl<T: Send + Sync> Sync for Call<'_, T> {}

impl<'a, T: Typed> Call<'a, T> {
    /// The slots of arguments. The catalog hands out kernels that refuse other arguments than the signature's: there
    /// are as many elements as the problem says.
    pub(super) fn of(p: &RopeProblem, args: &mut [Arg<'a, Cpu>]) -> Result<Self, Rejection> {
        let (mut from, mut to) = ([std::ptr::null(); 2], [std::ptr::null_mut(); 2]);
        for (i, place) in
            [[slot::X, slot::Y], [slot::K, slot::YK]].into_iter().enumerate().take(1 + usize::from(p.hk > 0))
        {
            to[i] = typed::write::<T>(args[place[usize::from(!p.in_place)]].write()?)?.as_mut_ptr();
            from[i] = match p.in_place {
                true => to[i].cast_const(),
                false => typed::read::<T>(args[place[0]].read()?)?.as_ptr(),
            };
        }
        let (cos, sin) = (args[slot::COS].read()?, args[slot::SIN].read()?);
        let table = match p.table {
            DType::F16 => Table::Half([typed::read(cos)?, typed::read(sin)?]),
            DType::Bf16 => Table::Brain([typed::read(cos)?, typed::read(sin)?]),
            _ => Table::Wide([typed::read(cos)?, typed::read(sin)?]),
        };
        let (mut short, mut long): (&[i32], &[i64]) = (&[], &[]);
        match p.positions {
            Positions::Rows => {}
            Positions::I32 => short = typed::read(args[slot::POSITIONS].read()?)?,
            Positions::I64 => long = typed::read(args[slot::POSITIONS].read()?)?,
        }
        let bias = match args[slot::BIAS].view() {
            Some(view) => typed::read::<T>(view)?.as_ptr(),
            None => std::ptr::null(),
        };
        Ok(Call { problem: *p, from, to, table, short, long, bias })
    }
}

impl<T> Call<'_, T> {
    /// Where the row of the table begins that a row is turned by; `None` where the table has none.
    pub(super) fn line(&self, row: usize) -> Option<usize> {
        let p = &self.problem;
        let position = match p.positions {
            Positions::Rows => Some(row as u64 % p.n),
            Positions::I32 => u64::try_from(self.short[row]).ok(),
            Positions::I64 => u64::try_from(self.long[row]).ok(),
        };
        position.filter(|position| *position < p.n).map(|position| (position * p.ldt) as usize)
    }

    /// Where a head of a row is read, where it is written, and its bias or null.
    #[inline(always)]
    pub(super) fn head(&self, row: usize, head: usize) -> (*const T, *mut T, *const T) {
        let (p, d, h) = (&self.problem, self.problem.d as usize, self.problem.h as usize);
        let (i, at, heads, ld) = if head < h { (0, head, h, p.ld) } else { (1, head - h, p.hk as usize, p.ldk) };
        let line = if p.in_place { ld as usize } else { heads * d };
        let bias = if self.bias.is_null() { self.bias } else { self.bias.wrapping_add(head * d) };
        let from = self.from[i].wrapping_add(row * ld as usize + at * d);
        (from, self.to[i].wrapping_add(row * line + at * d), bias)
    }
}
