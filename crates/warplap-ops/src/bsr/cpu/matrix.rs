//! From arguments to a matrix that kernels may trust: row pointers and column indices are checked once per launch. It
//! is O(blocks), under one percent of the smallest product.

use std::ops::Range;

use warplap_core::arg::Arg;
use warplap_core::rejection::Rejection;
use warplap_cpu::{Cpu, Typed};

use super::finish::Finish;
use crate::bsr::turn::turned;
use crate::bsr::validate::check_rows;
use crate::bsr::{BsrProblem, slot};
use crate::typed;

/// A block-sparse matrix whose indices are in range, and its dense partners; C is of another type where those are bytes.
pub(super) struct Matrix<'a, T, C = T> {
    pub(super) problem: &'a BsrProblem,
    row_ptr: &'a [i32],
    col_idx: &'a [i32],
    values: &'a [T],
    // The blocks in order where they are stored otherwise.
    turned: Option<Vec<T>>,
    pub(super) b: &'a [T],
    /// What happens to sums before they are stored.
    pub(super) finish: Finish<C>,
}

impl<'a, T: Typed + Copy, C: Typed + Copy> Matrix<'a, T, C> {
    /// The typed slots. Every column index is below `k / bc`, every row's blocks lie inside `values`, B and C hold
    /// k·n and m·n elements: kernels rely on it. Blocks that are stored turned are written out first. C may be the
    /// addend too, so nobody makes a slice of what he has yet to finish.
    pub(super) fn checked<'b: 'a>(
        p: &'a BsrProblem,
        args: &mut [Arg<'b, Cpu>],
    ) -> Result<(Self, Shared<C>), Rejection> {
        let failed = |reason: String| Rejection::LaunchFailed { reason };
        p.check().map_err(|e| failed(e.to_string()))?;
        let (nnz, sums) = (p.nnz as usize, (p.m * p.n) as usize);
        // The catalog hands out kernels that refuse shorter arguments than the signature's; longer ones are cut.
        let row_ptr = &typed::read::<i32>(args[slot::ROW_PTR].read()?)?[..p.rows() + 1];
        let col_idx = &typed::read::<i32>(args[slot::COL_IDX].read()?)?[..nnz];
        let values = &typed::read::<T>(args[slot::VALUES].read()?)?[..p.values_len()];
        let b = &typed::read::<T>(args[slot::B].read()?)?[..(p.k * p.n) as usize];
        let c = Shared::new(&mut typed::write::<C>(args[slot::C].write()?)?[..sums]);
        let add = match p.adds() && !p.in_place {
            true => Some(&typed::read::<C>(args[slot::ADD].read()?)?[..if p.bias { p.m as usize } else { sums }]),
            false => None,
        };
        let (stored, _) = check_rows(row_ptr, p.rows(), p.columns()).map_err(|e| failed(e.to_string()))?;
        if stored != nnz {
            return Err(failed(format!("row_ptr ends at {stored}: expected {nnz}, the number of blocks")));
        }
        // Negative indices become large ones. A maximum over all is what the compiler can vectorise.
        let largest = col_idx.iter().map(|c| *c as u32).max().unwrap_or(0);
        if largest as usize >= p.columns() {
            let last = p.columns() - 1;
            return Err(failed(format!("a column index is {}: expected 0 to {last}", largest as i32)));
        }
        let mut in_order = None;
        if p.turned {
            let place = &typed::read::<i32>(args[slot::PLACE].read()?)?[..nnz];
            if place.iter().any(|at| *at as u32 as usize >= nnz) {
                return Err(failed(format!("a place is not one of the {nnz} stored blocks")));
            }
            in_order = Some(turned(values, place, (p.bs as usize, p.bc as usize)));
        }
        let finish = Finish::of(p, add, c);
        Ok((Matrix { problem: p, row_ptr, col_idx, values, turned: in_order, b, finish }, c))
    }

    /// Where the blocks of a row lie in `columns` and `values`.
    pub(super) fn row(&self, row: usize) -> Range<usize> {
        self.row_ptr[row] as usize..self.row_ptr[row + 1] as usize
    }

    /// Stored blocks.
    pub(super) fn nnz(&self) -> usize {
        self.col_idx.len()
    }

    /// The block row that holds a stored block.
    pub(super) fn row_of(&self, block: usize) -> usize {
        self.row_ptr.partition_point(|start| *start as usize <= block) - 1
    }

    /// The block columns of a run of blocks.
    pub(super) fn columns(&self, blocks: Range<usize>) -> &'a [i32] {
        &self.col_idx[blocks]
    }

    /// The elements of a run of blocks.
    pub(super) fn values(&self, blocks: Range<usize>) -> &[T] {
        let block = (self.problem.bs * self.problem.bc) as usize;
        let values = self.turned.as_deref().unwrap_or(self.values);
        &values[blocks.start * block..blocks.end * block]
    }
}

/// Memory that several threads write, each its own part.
#[derive(Clone, Copy)]
pub(super) struct Shared<T>(*mut T);
// SAFETY: whoever shares it gives each thread other elements, and borrows the memory until all have ended.
unsafe impl<T: Send> Send for Shared<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Shared<T> {}

impl<T> Shared<T> {
    pub(super) fn new(all: &mut [T]) -> Self {
        Shared(all.as_mut_ptr())
    }

    /// The address of an element.
    pub(super) fn at(self, element: usize) -> *mut T {
        self.0.wrapping_add(element)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bsr::{Bsr, check_indices, cpu};
    use warplap_core::op::Op;
    use warplap_core::space::Config;
    use warplap_cpu::{Slice, SliceMut};

    #[test]
    fn bad_indices_short_buffers_and_odd_blocks_never_reach_a_kernel() {
        let p = Bsr::parse("m=16,k=24,n=2,bs=8,density=0.5").unwrap();
        let (device, catalog) = (Cpu::new(), cpu::catalog());
        let (values, b, mut c) = (vec![0f32; 3 * 64], vec![0f32; 48], vec![0f32; 32]);
        let mut check_of = |p: &BsrProblem, rows: &[i32], columns: &[i32], values: &[f32]| {
            let mut args: [Arg<'_, Cpu>; 7] = Default::default();
            args[slot::ROW_PTR] = Arg::Read(Slice::I32(rows));
            args[slot::COL_IDX] = Arg::Read(Slice::I32(columns));
            args[slot::VALUES] = Arg::Read(Slice::F32(values));
            args[slot::B] = Arg::Read(Slice::F32(&b));
            args[slot::C] = Arg::Write(SliceMut::F32(&mut c));
            let named = check_indices(p, &args).map_or_else(|e| e.to_string(), |()| String::new());
            let kernel = catalog.reference().build(p, &Config::default(), &device).unwrap();
            // A launch that is refused for its lengths does not say which; the check does.
            kernel.launch(&mut args, &()).map_err(|e| format!("{e}; {named}"))
        };
        let odd = BsrProblem { bs: 4, m: 8, ..p };
        assert!(check_of(&odd, &[0, 1, 3], &[2, 0, 1], &values).unwrap_err().contains("'bs'"));
        let mut check = |rows: &[i32], columns: &[i32], values: &[f32]| check_of(&p, rows, columns, values);
        assert_eq!(check(&[0, 1, 3], &[2, 0, 1], &values), Ok(()));
        assert!(check(&[0, 1, 3], &[2, 0, 3], &values).unwrap_err().contains("0 to 2"));
        assert!(check(&[0, 1, 3], &[2, 0, -1], &values).unwrap_err().contains("0 to 2"));
        assert!(check(&[0, 2, 1], &[2, 0, 1], &values).unwrap_err().contains("row_ptr[2]"));
        assert!(check(&[0, 1, 2], &[2, 0, 1], &values).unwrap_err().contains("row_ptr ends at 2"));
        assert!(check(&[0, 1, 3], &[2, 0], &values).unwrap_err().contains("col_idx"));
        assert!(check(&[0, 1, 3], &[2, 0, 1], &values[1..]).unwrap_err().contains("values"));
        assert!(check(&[0, 3], &[2, 0, 1], &values).unwrap_err().contains("row_ptr"));
    }
}
