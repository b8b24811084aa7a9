//! How groups become tasks: rows of experts come in; pieces of columns of them go out, so many that threads that take
//! the next one when they come free end together.

use std::ops::Range;

use warplap_core::problem::Problem;
use warplap_core::space::{Axis, Config};
use warplap_cpu::Cpu;
use warplap_cpu::simd::Isa;

use crate::grouped::GroupedProblem;

/// Columns of one expert's product: all its rows by some columns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) expert: usize,
    pub(super) rows: Range<usize>,
    pub(super) columns: Range<usize>,
}

/// Pieces of all groups for each thread, at the least.
const EACH: usize = 8;

/// Pieces begin at columns that are multiples of this: whole register tiles of every instruction set.
const STEP: usize = 96;

/// Cuts groups into pieces of about the same work, the largest first; `cost` says what a column of so many rows takes.
pub(super) fn pieces(groups: &[Range<usize>], n: usize, threads: usize, cost: impl Fn(usize) -> usize) -> Vec<Piece> {
    let all: usize = groups.iter().filter(|rows| !rows.is_empty()).map(|rows| cost(rows.len())).sum();
    // What a piece may take: everything where nobody shares it.
    let most = if threads <= 1 { all * n } else { (all * n).div_ceil(EACH * threads) };
    let mut pieces = Vec::new();
    for (expert, rows) in groups.iter().enumerate().filter(|(_, rows)| !rows.is_empty()) {
        let width = (most / cost(rows.len()).max(1)).next_multiple_of(STEP).clamp(STEP, n.next_multiple_of(STEP));
        for first in (0..n).step_by(width) {
            pieces.push(Piece { expert, rows: rows.clone(), columns: first..n.min(first + width) });
        }
    }
    pieces.sort_by_key(|piece| std::cmp::Reverse(cost(piece.rows.len()) * piece.columns.len()));
    pieces
}

/// Work below which waking a thread takes longer than it saves, in seconds of a slow core: operations and bytes.
const WORTH_WAKING: (f64, f64) = (2e6, 512e3);

/// One thread and all; the default is all where the work is worth waking them.
pub(super) fn threads(p: &GroupedProblem, cpu: &Cpu) -> Axis {
    let (work, all) = (p.work(), cpu.threads() as i64);
    let small = work.flops < WORTH_WAKING.0 && work.bytes < WORTH_WAKING.1;
    Axis::ints("threads", if small { [1, all] } else { [all, 1] })
}

/// Instruction sets of this machine, the best first.
pub(super) fn isas() -> Axis {
    let names: Vec<&str> = Isa::available().into_iter().rev().map(Isa::name).collect();
    Axis::choices("isa", &names)
}

/// The instruction set a config names.
pub(super) fn isa(config: &Config) -> Option<Isa> {
    Isa::named(&config.get("isa")?.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_cover_every_column_of_every_row_once_and_are_about_even() {
        let groups = [0..3, 3..3, 3..500, 500..501, 501..600];
        for (n, threads) in [(1, 2), (97, 1), (1000, 2), (4096, 7)] {
            let pieces = pieces(&groups, n, threads, |rows| rows);
            let mut seen = vec![0u8; 600 * n];
            for Piece { expert, rows, columns } in &pieces {
                assert_eq!(*rows, groups[*expert]);
                for (row, column) in rows.clone().flat_map(|row| columns.clone().map(move |column| (row, column))) {
                    seen[row * n + column] += 1;
                }
            }
            assert!(seen.iter().all(|times| *times == 1), "{n} {threads}");
            assert!(pieces.is_sorted_by_key(|p| std::cmp::Reverse(p.rows.len() * p.columns.len())));
            if threads == 1 {
                assert_eq!(pieces.len(), 4, "one a group: nobody shares them");
            }
            let largest = pieces[0].rows.len() * pieces[0].columns.len();
            assert!(threads == 1 || n < 1000 || largest <= 600 * n / threads, "{n} {threads}: {largest}");
        }
        assert_eq!(pieces(&[0..0, 0..0], 5, 2, |rows| rows), []);
    }
}
