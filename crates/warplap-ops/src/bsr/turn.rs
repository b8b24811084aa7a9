//! The other way round: the index of a transposed pattern, and blocks written out turned.
//!
//! Aᵀ·B is the product over the transposed pattern's index, made once per pattern, with the blocks where they are.

/// The index of the transposed matrix: its row pointers and column indices, and where its blocks are stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TurnedIndex {
    /// Row pointers: one for each block column of the matrix, and one more.
    pub row_ptr: Vec<i32>,
    /// The block row of each block, rising within a column.
    pub col_idx: Vec<i32>,
    /// The place of each block in the matrix's own values.
    pub place: Vec<i32>,
}

/// The index of the transpose of a valid matrix with so many block columns.
pub fn turned_index(row_ptr: &[i32], col_idx: &[i32], columns: usize) -> TurnedIndex {
    let mut ends = vec![0; columns + 1];
    let column_of = |c: &i32| usize::try_from(*c).ok().filter(|c| *c < columns);
    for column in col_idx.iter().filter_map(column_of) {
        ends[column + 1] += 1;
    }
    for column in 0..columns {
        ends[column + 1] += ends[column];
    }
    let mut next = ends.clone();
    let (mut rows, mut place) = (vec![0; col_idx.len()], vec![0; col_idx.len()]);
    for (row, pair) in row_ptr.windows(2).enumerate() {
        let blocks = usize::try_from(pair[0]).unwrap_or(0)..usize::try_from(pair[1]).unwrap_or(0).min(col_idx.len());
        for at in blocks {
            let Some(column) = column_of(&col_idx[at]) else { continue };
            let to = next[column] as usize;
            (rows[to], place[to]) = (row as i32, at as i32);
            next[column] += 1;
        }
    }
    TurnedIndex { row_ptr: ends, col_idx: rows, place }
}

/// Block `i` of the result, so many rows by so many columns, is the transpose of block `place[i]`; the caller has
/// checked the places.
pub(super) fn turned<T: Copy>(values: &[T], place: &[i32], (rows, columns): (usize, usize)) -> Vec<T> {
    let block = rows * columns;
    let mut to = Vec::with_capacity(place.len() * block);
    for from in place.iter().map(|at| &values[*at as usize * block..][..block]) {
        for c in 0..rows {
            to.extend(from[c..].iter().step_by(rows));
        }
    }
    to
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turning_twice_is_the_matrix_itself() {
        let (row_ptr, col_idx) = ([0, 2, 2, 5], [1, 3, 0, 1, 2]);
        let once = turned_index(&row_ptr, &col_idx, 4);
        assert_eq!((&once.row_ptr[..], &once.col_idx[..]), (&[0, 1, 3, 4, 5][..], &[2, 0, 2, 2, 0][..]));
        assert_eq!(once.place, [2, 0, 3, 4, 1]);
        let twice = turned_index(&once.row_ptr, &once.col_idx, 3);
        assert_eq!((&twice.row_ptr[..], &twice.col_idx[..]), (&row_ptr[..], &col_idx[..]));
    }

    #[test]
    fn a_turned_block_has_its_columns_for_rows() {
        assert_eq!(turned(&[1, 2, 3, 4, 5, 6, 7, 8], &[1, 0], (2, 2)), [5, 7, 6, 8, 1, 3, 2, 4]);
        assert_eq!(turned(&[1, 2, 3, 4, 5, 6], &[0], (2, 3)), [1, 3, 5, 2, 4, 6]);
    }
}
