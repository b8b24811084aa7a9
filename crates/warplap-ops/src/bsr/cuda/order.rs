//! Which block rows are put together. Rows that store blocks in the same columns share slabs of B when one group of a
//! kernel walks them together. Indices come in; a permutation of the block rows goes out. Any permutation is right: a
//! worse one only costs time, so one that was made for other indices does no harm.

/// Rows that are compared with a group before the next one joins it.
const WINDOW: usize = 512;

/// The block rows so ordered that each run of `together` rows shares many columns, those with many blocks first.
pub(super) fn order(row_ptr: &[i32], col_idx: &[i32], columns: usize, together: usize) -> Vec<i32> {
    let words = columns.div_ceil(64).max(1);
    let rows = row_ptr.len().saturating_sub(1);
    let mut bits = vec![0u64; rows * words];
    let mut left: Vec<(u32, usize)> = Vec::with_capacity(rows);
    for (row, ends) in row_ptr.windows(2).enumerate() {
        let blocks = usize::try_from(ends[0]).unwrap_or(0)..usize::try_from(ends[1]).unwrap_or(0);
        // Indices that nobody validated: what lies outside is not counted.
        let own = col_idx.get(blocks).unwrap_or(&[]);
        let set = &mut bits[row * words..][..words];
        for column in own.iter().filter_map(|c| usize::try_from(*c).ok()).filter(|c| *c < columns) {
            set[column / 64] |= 1 << (column % 64);
        }
        left.push((set.iter().map(|w| w.count_ones()).sum(), row));
    }
    left.sort_by_key(|(count, row)| (std::cmp::Reverse(*count), *row));
    if together <= 1 {
        return left.into_iter().map(|(_, row)| row as i32).collect();
    }
    let mut left: std::collections::VecDeque<usize> = left.into_iter().map(|(_, row)| row).collect();
    let mut order = Vec::with_capacity(rows);
    let mut union = vec![0u64; words];
    while let Some(first) = left.pop_front() {
        union.copy_from_slice(&bits[first * words..][..words]);
        order.push(first as i32);
        for _ in 1..together {
            // Few new columns, many shared ones.
            let cost = |row: &usize| -> i64 {
                let own = &bits[row * words..][..words];
                own.iter()
                    .zip(&union)
                    .map(|(o, u)| i64::from((o & !u).count_ones()) - i64::from((o & u).count_ones()))
                    .sum()
            };
            let best = left.iter().take(WINDOW).enumerate().min_by_key(|(at, row)| (cost(row), *at)).map(|(at, _)| at);
            let Some(row) = best.and_then(|at| left.remove(at)) else { break };
            union.iter_mut().zip(&bits[row * words..][..words]).for_each(|(u, o)| *u |= o);
            order.push(row as i32);
        }
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_with_the_same_columns_meet_and_every_row_stands_once() {
        // Rows 0 and 2 store columns 0 and 1, rows 1 and 3 columns 70 and 71, row 4 nothing.
        let (row_ptr, col_idx) = ([0, 2, 4, 6, 8, 8], [0, 1, 70, 71, 0, 1, 70, 71]);
        assert_eq!(order(&row_ptr, &col_idx, 128, 2), [0, 2, 1, 3, 4]);
        assert_eq!(order(&row_ptr, &col_idx, 128, 1), [0, 1, 2, 3, 4]);
        let mut all = order(&row_ptr, &col_idx, 128, 4);
        all.sort_unstable();
        assert_eq!(all, [0, 1, 2, 3, 4]);
    }

    #[test]
    fn long_rows_come_first() {
        assert_eq!(order(&[0, 1, 1, 4], &[5, 0, 1, 2], 8, 1), [2, 0, 1]);
    }

    #[test]
    fn indices_out_of_range_still_give_a_permutation() {
        let mut all = order(&[0, -3, 2, 99], &[7, -1], 4, 2);
        all.sort_unstable();
        assert_eq!(all, [0, 1, 2]);
        assert!(order(&[], &[], 0, 2).is_empty());
    }
}
