//! One launch: the typed slots and the rows of each expert come out of its arguments; products of parts go to the loops
//! of dense ones.

use std::ops::Range;

use warplap_core::arg::Arg;
use warplap_core::rejection::Rejection;
use warplap_cpu::{Cpu, Typed};

use crate::gemm::Layout;
use crate::gemm::cpu::kernel::blocked::Product;
use crate::gemm::cpu::kernel::epilogue::Epilogue;
use crate::gemm::cpu::kernel::{Operand, Shared};
use crate::grouped::slot::{OFFSETS, W, X, Y};
use crate::grouped::{GroupedProblem, ranges};
use crate::typed::{read, write};

/// The slots of a launch, and the rows of each expert.
pub(super) struct Call<'a, T> {
    pub(super) problem: GroupedProblem,
    pub(super) x: &'a [T],
    pub(super) w: &'a [T],
    pub(super) y: Shared<T>,
    pub(super) groups: Vec<Range<usize>>,
}

impl<'a, T: Typed + Copy> Call<'a, T> {
    /// Those of arguments; ends that are none are refused.
    pub(super) fn of(p: &GroupedProblem, args: &mut [Arg<'a, Cpu>]) -> Result<Self, Rejection> {
        let offsets = &read::<i32>(args[OFFSETS].read()?)?[..p.experts as usize];
        let groups = ranges(offsets, p.rows as usize);
        let groups = groups.map_err(|wrong| Rejection::LaunchFailed { reason: wrong.to_string() })?;
        let (x, w) = (read(args[X].read()?)?, read(args[W].read()?)?);
        let y = Shared(write::<T>(args[Y].write()?)?.as_mut_ptr());
        Ok(Call { problem: *p, x, w, y, groups })
    }

    /// The product of some rows of an expert by some columns of its matrix.
    ///
    /// # Safety
    /// The rows are of x, and the columns of the matrix, which is one of w.
    pub(super) unsafe fn product(&self, expert: usize, rows: Range<usize>, columns: Range<usize>) -> Product<'a, T> {
        let [n, k] = [self.problem.n, self.problem.k].map(|size| size as usize);
        let ld = if self.problem.w == Layout::Row { n } else { k };
        // SAFETY: the catalog hands out kernels that refuse shorter arguments than the signature's; the rest is the
        // caller's word.
        unsafe {
            let matrix = Operand { at: self.w.as_ptr().add(expert * n * k), ld, layout: self.problem.w };
            Product {
                m: rows.len(),
                n: columns.len(),
                k,
                a: Operand { at: self.x.as_ptr().add(rows.start * k), ld: k, layout: Layout::Row },
                b: Operand { at: matrix.element(0, columns.start), ..matrix },
                c: Shared(self.y.add(rows.start * n + columns.start)),
                ldc: n,
                epilogue: Epilogue::NONE,
            }
        }
    }
}
