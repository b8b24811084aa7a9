//! Is this a block-sparse matrix? Row pointers and column indices from outside come in; a typed complaint that names
//! the place goes out. O(blocks), callable apart from any product.

use warplap_core::arg::Arg;
use warplap_core::error::Error;
use warplap_core::op::Op;
use warplap_core::problem::ProblemError;
use warplap_cpu::{Cpu, Slice};

use super::{Bsr, BsrProblem, slot};

/// What is wrong with a matrix.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BsrError {
    /// The shape itself is not legal.
    #[error(transparent)]
    Shape(#[from] ProblemError),
    /// An array has another length than the problem says.
    #[error("{array} holds {actual} elements: expected {expected}")]
    Count {
        /// `row_ptr`, `col_idx` or `values`.
        array: &'static str,
        /// Elements it holds.
        actual: usize,
        /// Elements it should hold.
        expected: usize,
    },
    /// Row pointers do not start at zero, fall, or end elsewhere than at the number of blocks.
    #[error("row_ptr[{at}] is {actual}: expected {expected}")]
    RowPointer {
        /// Which pointer.
        at: usize,
        /// Its value.
        actual: i32,
        /// What should stand there.
        expected: String,
    },
    /// A column index lies outside of the matrix.
    #[error("col_idx[{at}] in block row {row} is {actual}: expected 0 to {last}")]
    Column {
        /// Which index.
        at: usize,
        /// Its block row.
        row: usize,
        /// Its value.
        actual: i32,
        /// The last block column.
        last: usize,
    },
    /// The columns of a row are not in rising order.
    #[error("col_idx[{at}] in block row {row} is {actual} after {before}: expected rising columns, each once")]
    Order {
        /// Which index.
        at: usize,
        /// Its block row.
        row: usize,
        /// Its value.
        actual: i32,
        /// The value before it.
        before: i32,
    },
    /// A block of a turned matrix is said to lie where there is none, or where another one lies.
    #[error("place[{at}] is {actual}: expected 0 to {last}, each once")]
    Place {
        /// Which index.
        at: usize,
        /// Its value.
        actual: i32,
        /// The last stored block.
        last: i64,
    },
}

impl BsrError {
    /// The argument that is wrong.
    pub fn argument(&self) -> &'static str {
        match self {
            BsrError::Shape(_) | BsrError::RowPointer { .. } => "row_ptr",
            BsrError::Count { array, .. } => array,
            BsrError::Column { .. } | BsrError::Order { .. } => "col_idx",
            BsrError::Place { .. } => "place",
        }
    }
}

impl From<BsrError> for Error {
    fn from(e: BsrError) -> Self {
        Error::Argument { argument: e.argument().into(), reason: e.to_string() }
    }
}

/// Checks that arguments are those of the problem and that the indices among them are a block-sparse matrix.
pub fn check_indices(p: &BsrProblem, args: &[Arg<'_, Cpu>]) -> Result<(), Error> {
    Bsr::signature(p).check(args)?;
    let indices = |slot: usize| match args[slot].view() {
        Some(Slice::I32(indices)) => indices,
        _ => &[],
    };
    let values = args[slot::VALUES].view().map_or(0, |values| values.len());
    validate(indices(slot::ROW_PTR), indices(slot::COL_IDX), values, p)?;
    if p.turned {
        validate_places(indices(slot::PLACE), p)?;
    }
    Ok(())
}

/// Checks that the blocks of a turned matrix lie in places of their own.
pub fn validate_places(place: &[i32], p: &BsrProblem) -> Result<(), BsrError> {
    let nnz = p.nnz as usize;
    if place.len() < nnz {
        return Err(BsrError::Count { array: "place", actual: place.len(), expected: nnz });
    }
    let mut taken = vec![false; nnz];
    for (at, &actual) in place[..nnz].iter().enumerate() {
        let free = usize::try_from(actual).ok().and_then(|i| taken.get_mut(i)).filter(|t| !**t);
        *free.ok_or(BsrError::Place { at, actual, last: nnz as i64 - 1 })? = true;
    }
    Ok(())
}

/// Checks row pointers alone; gives the number of blocks and those of the fullest row.
pub(super) fn check_rows(row_ptr: &[i32], rows: usize, columns: usize) -> Result<(usize, usize), BsrError> {
    if row_ptr.len() != rows + 1 {
        return Err(BsrError::Count { array: "row_ptr", actual: row_ptr.len(), expected: rows + 1 });
    }
    let wrong = |at: usize, expected: String| BsrError::RowPointer { at, actual: row_ptr[at], expected };
    if row_ptr[0] != 0 {
        return Err(wrong(0, "0".into()));
    }
    let mut fullest = 0;
    for (row, pair) in row_ptr.windows(2).enumerate() {
        match i64::from(pair[1]) - i64::from(pair[0]) {
            blocks if blocks < 0 => return Err(wrong(row + 1, format!("at least {}, the one before it", pair[0]))),
            blocks if blocks > columns as i64 => {
                let expected = format!("at most {columns} blocks in block row {row}, as many as there are columns");
                return Err(wrong(row + 1, expected));
            }
            blocks => fullest = fullest.max(blocks as usize),
        }
    }
    Ok((row_ptr[rows] as usize, fullest))
}

/// Checks that a matrix is what the problem says: counts, rising row pointers, columns in range, sorted and without
/// duplicates.
pub fn validate(row_ptr: &[i32], col_idx: &[i32], values_len: usize, p: &BsrProblem) -> Result<(), BsrError> {
    let (nnz, _) = check_rows(row_ptr, p.rows(), p.columns())?;
    if nnz as u64 != p.nnz {
        let expected = format!("{}, the number of blocks", p.nnz);
        return Err(BsrError::RowPointer { at: p.rows(), actual: nnz as i32, expected });
    }
    for (array, actual, expected) in [("col_idx", col_idx.len(), nnz), ("values", values_len, p.values_len())] {
        if actual != expected {
            return Err(BsrError::Count { array, actual, expected });
        }
    }
    let last = p.columns() - 1;
    for (row, ends) in row_ptr.windows(2).enumerate() {
        let mut before = -1;
        let start = ends[0] as usize;
        for (at, &actual) in (start..).zip(&col_idx[start..ends[1] as usize]) {
            if actual < 0 || actual as usize > last {
                return Err(BsrError::Column { at, row, actual, last });
            }
            if actual <= before {
                return Err(BsrError::Order { at, row, actual, before });
            }
            before = actual;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gemm::Layout;
    use warplap_core::dtype::DType;

    #[test]
    fn each_kind_of_damage_has_its_own_error() {
        let p = BsrProblem::of((32, 48, 5), 16, DType::F32, Layout::Row, &[0, 1, 4]).unwrap();
        let check = |rows: &[i32], columns: &[i32], len| validate(rows, columns, len, &p);
        assert_eq!(check(&[0, 1, 4], &[2, 0, 1, 2], 1024), Ok(()));
        assert!(matches!(check(&[0, 1], &[2, 0, 1, 2], 1024), Err(BsrError::Count { array: "row_ptr", .. })));
        assert!(matches!(check(&[0, 1, 4], &[2, 0, 1], 1024), Err(BsrError::Count { array: "col_idx", .. })));
        assert!(matches!(check(&[0, 1, 4], &[2, 0, 1, 2], 1023), Err(BsrError::Count { array: "values", .. })));
        assert!(matches!(check(&[1, 1, 4], &[2, 0, 1, 2], 1024), Err(BsrError::RowPointer { at: 0, .. })));
        assert!(matches!(check(&[0, -1, 4], &[2, 0, 1, 2], 1024), Err(BsrError::RowPointer { at: 1, .. })));
        assert!(matches!(check(&[0, 0, 4], &[2, 0, 1, 2], 1024), Err(BsrError::RowPointer { at: 2, .. })));
        assert!(matches!(check(&[0, 1, 3], &[2, 0, 1], 768), Err(BsrError::RowPointer { at: 2, .. })));
        assert!(matches!(check(&[0, 1, 4], &[3, 0, 1, 2], 1024), Err(BsrError::Column { at: 0, row: 0, .. })));
        assert!(matches!(check(&[0, 1, 4], &[2, 0, -1, 2], 1024), Err(BsrError::Column { at: 2, row: 1, .. })));
        assert!(matches!(check(&[0, 1, 4], &[2, 1, 0, 2], 1024), Err(BsrError::Order { at: 2, row: 1, .. })));
        assert!(matches!(check(&[0, 1, 4], &[2, 0, 0, 2], 1024), Err(BsrError::Order { at: 2, .. })));
        assert_eq!(validate_places(&[3, 1, 0, 2], &p), Ok(()));
        assert!(matches!(validate_places(&[3, 1, 0], &p), Err(BsrError::Count { array: "place", .. })));
        for wrong in [[3, 1, 0, 4], [3, 1, 0, -1], [3, 1, 0, 1]] {
            assert!(matches!(validate_places(&wrong, &p), Err(BsrError::Place { at: 3, .. })));
        }
    }
}
