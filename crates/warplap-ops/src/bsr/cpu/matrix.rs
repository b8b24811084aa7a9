//! From views to a matrix that kernels may trust: buffer lengths, row pointers and column indices are checked once per
//! launch. It is O(blocks), under one percent of the smallest product.

use std::ops::Range;

use warplap_core::rejection::Rejection;
use warplap_cpu::{Cpu, Typed};

use super::finish::Finish;
use crate::bsr::turn::turned;
use crate::bsr::validate::check_rows;
use crate::bsr::{BsrArgs, BsrProblem};
use crate::typed;

/// A block-sparse matrix whose indices are in range, and its dense partners.
pub(super) struct Matrix<'a, T> {
    pub(super) problem: &'a BsrProblem,
    row_ptr: &'a [i32],
    col_idx: &'a [i32],
    values: &'a [T],
    // The blocks in order where they are stored otherwise.
    turned: Option<Vec<T>>,
    pub(super) b: &'a [T],
    /// What happens to sums before they are stored.
    pub(super) finish: Finish<T>,
}

impl<'a, T: Typed + Copy> Matrix<'a, T> {
    /// The typed buffers. Every column index is below `k / bc`, every row's blocks lie inside `values`, B and C hold
    /// k·n and m·n elements: kernels rely on it. Blocks that are stored turned are written out first.
    pub(super) fn checked(args: BsrArgs<'a, Cpu>) -> Result<(Self, &'a mut [T]), Rejection> {
        let p = args.problem;
        let failed = |reason: String| Rejection::LaunchFailed { reason };
        p.check().map_err(|e| failed(e.to_string()))?;
        let (row_ptr, col_idx) = (typed::read::<i32>(args.row_ptr)?, typed::read::<i32>(args.col_idx)?);
        let (values, b, c) = (typed::read::<T>(args.values)?, typed::read::<T>(args.b)?, typed::write::<T>(args.c)?);
        typed::spans("row_ptr", row_ptr.len(), p.rows() + 1)?;
        let row_ptr = &row_ptr[..p.rows() + 1];
        let (nnz, _) = check_rows(row_ptr, p.rows(), p.columns()).map_err(|e| failed(e.to_string()))?;
        typed::spans("col_idx", col_idx.len(), nnz)?;
        typed::spans("values", values.len(), nnz * (p.bs * p.bc) as usize)?;
        typed::spans("b", b.len(), (p.k * p.n) as usize)?;
        typed::spans("c", c.len(), (p.m * p.n) as usize)?;
        let col_idx = &col_idx[..nnz];
        // Negative indices become large ones. A maximum over all is what the compiler can vectorise.
        let largest = col_idx.iter().map(|c| *c as u32).max().unwrap_or(0);
        if largest as usize >= p.columns() {
            let last = p.columns() - 1;
            return Err(failed(format!("a column index is {}: expected 0 to {last}", largest as i32)));
        }
        let mut in_order = None;
        if p.turned {
            let place = args.place.ok_or_else(|| failed("a turned A needs 'place'".into()))?;
            let place = typed::read::<i32>(place)?;
            typed::spans("place", place.len(), nnz)?;
            let place = &place[..nnz];
            if place.iter().any(|at| *at as u32 as usize >= nnz) {
                return Err(failed(format!("a place is not one of the {nnz} stored blocks")));
            }
            in_order = Some(turned(values, place, (p.bs as usize, p.bc as usize)));
        }
        let c = &mut c[..(p.m * p.n) as usize];
        let add = args.add.filter(|_| p.adds()).map(typed::read::<T>).transpose()?;
        typed::spans("add", add.map_or(c.len(), <[T]>::len), c.len())?;
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
    use crate::bsr::Bsr;
    use warplap_core::op::Op;
    use warplap_cpu::{Slice, SliceMut};

    #[test]
    fn bad_indices_short_buffers_and_odd_blocks_never_reach_a_kernel() {
        let p = Bsr::parse("m=16,k=24,n=2,bs=8,density=0.5").unwrap();
        let (values, b, mut c) = (vec![0f32; 3 * 64], vec![0f32; 48], vec![0f32; 32]);
        let mut check_of = |p: &BsrProblem, rows: &[i32], columns: &[i32], values: &[f32]| {
            let args = BsrArgs::<Cpu> {
                problem: p,
                row_ptr: Slice::I32(rows),
                col_idx: Slice::I32(columns),
                values: Slice::F32(values),
                b: Slice::F32(&b),
                c: SliceMut::F32(&mut c),
                add: None,
                place: None,
            };
            Matrix::<f32>::checked(args).map(|_| ()).map_err(|e| e.to_string())
        };
        let odd = BsrProblem { bs: 4, ..p };
        assert!(check_of(&odd, &[0, 1, 3], &[2, 0, 1], &values).unwrap_err().contains("'bs'"));
        let mut check = |rows: &[i32], columns: &[i32], values: &[f32]| check_of(&p, rows, columns, values);
        assert_eq!(check(&[0, 1, 3], &[2, 0, 1], &values), Ok(()));
        assert!(check(&[0, 1, 3], &[2, 0, 3], &values).unwrap_err().contains("0 to 2"));
        assert!(check(&[0, 1, 3], &[2, 0, -1], &values).unwrap_err().contains("0 to 2"));
        assert!(check(&[0, 2, 1], &[2, 0, 1], &values).unwrap_err().contains("row_ptr[2]"));
        assert!(check(&[0, 1, 3], &[2, 0], &values).unwrap_err().contains("col_idx"));
        assert!(check(&[0, 1, 3], &[2, 0, 1], &values[1..]).unwrap_err().contains("values"));
        assert!(check(&[0, 3], &[2, 0, 1], &values).unwrap_err().contains("row_ptr"));
    }
}
