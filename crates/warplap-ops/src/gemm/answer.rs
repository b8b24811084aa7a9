//! The right answer of a product, in double precision on the host. Matrices are read where they lie, and all loops run
//! on all cores: of a large product a whole race waits for this.

use std::borrow::Cow;

use rayon::prelude::*;
use warplap_core::array::Array;
use warplap_core::each_array;
use warplap_core::op::Answer;
use warplap_core::scalar::Scalar;

use super::{Activation, GemmProblem, Join, Layout, Scale, slot, tolerance};
use crate::host::in_parallel;
use crate::right::{Matrix, product_of};

pub(super) fn answer(p: &GemmProblem, inputs: &[Array]) -> Vec<Answer> {
    let (m, n, k) = (p.m as usize, p.n as usize, p.k as usize);
    let [a_stride, b_stride, c_stride] = p.strides().map(|s| s as usize);
    let (ldc, bias) = (p.ldc as usize, p.bias.then(|| inputs[slot::BIAS].to_f64()));
    let joined = (p.join != Join::None).then(|| inputs[slot::JOINED].wide());
    let factors = inputs[slot::SCALE].to_f64();
    // Padding between the rows of C must stay as it was: NaN in the answer says so.
    let is_tight = p.batch <= 1 && ldc == n;
    let mut values = if is_tight { Vec::new() } else { vec![f64::NAN; p.c_len()] };
    let (mut magnitude, mut halves) = (0f64, [0f64; 2]);
    for one in 0..p.batch as usize {
        let second = |slot: usize| Lines::of(&inputs[slot], one * b_stride, (k, n), p.b, p.ldb);
        let mut lines = Lines::of(&inputs[slot::A], one * a_stride, (m, k), p.a, p.lda);
        if p.is_scaled() {
            lines = scaled(&lines, p, |row| factors[if p.scale == Scale::One { 0 } else { one * m + row }]);
        }
        let (a, b) = (lines.matrix(m, k), second(slot::B));
        let b = b.matrix(k, n);
        let mut product = product_of(a, b);
        magnitude = magnitude.max(a.largest_row_norm() * b.largest_column_norm());
        let start = one * c_stride;
        let joined = joined.as_ref().filter(|_| !p.pair).map(|other| (p.join, &other[start..]));
        let last = |(i, row): (usize, &mut [f64])| {
            finish(row, bias.as_deref(), p.act);
            if let Some((join, other)) = joined {
                row.iter_mut().zip(&other[i * ldc..]).for_each(|(c, other)| *c = join.of(*c, *other));
            }
        };
        if p.has_epilogue() {
            in_parallel(|| product.par_chunks_mut(n).enumerate().for_each(last));
        }
        if p.pair {
            let b2 = second(slot::B2);
            let b2 = b2.matrix(k, n);
            let other = product_of(a, b2);
            magnitude = magnitude.max(a.largest_row_norm() * b2.largest_column_norm());
            let most = [&product, &other].map(|half| largest(Some(half)));
            halves = [0, 1].map(|i| halves[i].max(most[i]));
            in_parallel(|| product.par_iter_mut().zip(&other).for_each(|(x, y)| *x *= y));
        }
        if is_tight {
            values = product;
        } else {
            let rows = product.chunks(n).enumerate();
            rows.for_each(|(i, row)| values[start + i * ldc..][..n].copy_from_slice(row));
        }
    }
    let most = if p.pair { halves } else { [largest(bias.as_deref()), largest(joined.as_deref())] };
    vec![Answer { values, tolerance: tolerance(p, magnitude, most) }]
}

/// A matrix of one product, in double precision, with the steps between its columns and rows.
struct Lines<'a> {
    numbers: Cow<'a, [f64]>,
    column: usize,
    row: usize,
}

impl<'a> Lines<'a> {
    /// That which begins at an element: where it lies if that is in double precision, else a copy without padding.
    fn of(array: &'a Array, start: usize, (rows, columns): (usize, usize), layout: Layout, ld: u64) -> Self {
        let (lines, length) = if layout == Layout::Row { (rows, columns) } else { (columns, rows) };
        let (numbers, ld) = match array {
            Array::F64(numbers) => (Cow::Borrowed(&numbers[start..]), ld as usize),
            other => {
                let wide = each_array!(other, v => widened(&v[start..], (lines, length), ld as usize));
                (Cow::Owned(wide), length)
            }
        };
        let (column, row) = if layout == Layout::Row { (1, ld) } else { (ld, 1) };
        Lines { numbers, column, row }
    }

    fn matrix(&self, rows: usize, columns: usize) -> Matrix<'_> {
        Matrix { numbers: &self.numbers, rows, columns, column: self.column, row: self.row }
    }
}

fn widened<T: Scalar + Sync>(from: &[T], (lines, length): (usize, usize), ld: usize) -> Vec<f64> {
    let mut wide = vec![0f64; lines * length];
    let line = |(i, to): (usize, &mut [f64])| {
        to.iter_mut().zip(&from[i * ld..]).for_each(|(to, x)| *to = x.to_f64());
    };
    in_parallel(|| wide.par_chunks_mut(length.max(1)).enumerate().for_each(line));
    wide
}

/// A with every row multiplied with its factor: the product's, in double precision.
fn scaled(a: &Lines<'_>, p: &GemmProblem, factor_of: impl Fn(usize) -> f64 + Sync) -> Lines<'static> {
    let k = p.k as usize;
    let mut rows = vec![0f64; p.m as usize * k];
    let each = |(i, row): (usize, &mut [f64])| {
        row.iter_mut().enumerate().for_each(|(j, x)| *x = a.numbers[i * a.row + j * a.column]);
        let factor = p.rms.map_or_else(|| factor_of(i), |rms| rms.factor(row));
        row.iter_mut().for_each(|x| *x *= factor);
    };
    in_parallel(|| rows.par_chunks_mut(k.max(1)).enumerate().for_each(each));
    Lines { numbers: Cow::Owned(rows), column: 1, row: k }
}

/// Adds the bias to a row and activates it.
fn finish(row: &mut [f64], bias: Option<&[f64]>, act: Activation) {
    if let Some(bias) = bias {
        row.iter_mut().zip(bias).for_each(|(c, b)| *c += b);
    }
    if act != Activation::None {
        row.iter_mut().for_each(|c| *c = act.of(*c));
    }
}

/// The largest number of a bias or of what is joined.
pub(super) fn largest(numbers: Option<&[f64]>) -> f64 {
    let numbers = numbers.unwrap_or_default();
    in_parallel(|| numbers.par_iter().map(|x| x.abs()).reduce(|| 0.0, f64::max))
}
