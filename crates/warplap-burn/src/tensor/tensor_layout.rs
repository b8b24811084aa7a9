//! How a tensor lies in memory: sizes and strides come in; whether kernels can read it as it is goes out.

use warplap::{DType, Error, Layout};

/// Sizes, strides and type of a tensor, and the power of two its address is a multiple of, up to 64.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TensorLayout {
    pub(crate) shape: Vec<usize>,
    pub(crate) strides: Vec<isize>,
    pub(crate) dtype: DType,
    pub(crate) align: u64,
}

/// A batch of matrices that kernels of products read as they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Matrix {
    pub(crate) batch: u64,
    pub(crate) rows: u64,
    pub(crate) columns: u64,
    pub(crate) order: Layout,
    pub(crate) ld: u64,
}

impl TensorLayout {
    pub(crate) fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Whether elements follow each other in the order of the indices, without gaps.
    pub(crate) fn is_packed(&self) -> bool {
        self.is_packed_from(0, 1)
    }

    /// The same for the first dimensions, down to `from` of the last ones, which span `inner` elements.
    fn is_packed_from(&self, last: usize, inner: usize) -> bool {
        let mut expected = inner;
        let outer = self.shape.len() - last;
        for (size, stride) in self.shape[..outer].iter().zip(&self.strides).rev() {
            if *size != 1 && *stride != expected as isize {
                return self.len() == 0;
            }
            expected *= size;
        }
        true
    }

    /// The last two dimensions as matrices, the others as a batch of them; `None` where elements lie otherwise.
    pub(crate) fn matrix(&self) -> Option<Matrix> {
        let dims = self.shape.len();
        let (rows, columns) = (self.shape[dims - 2], self.shape[dims - 1]);
        let (down, across) = (self.strides[dims - 2], self.strides[dims - 1]);
        let line = |step: isize, beside: isize, lines: usize, line: usize| {
            let whole = line <= 1 || step == 1;
            let ld = if lines <= 1 { line as isize } else { beside };
            (whole && ld >= line as isize).then_some(ld as usize)
        };
        let (order, ld, lines) = match line(across, down, rows, columns) {
            Some(ld) => (Layout::Row, ld, rows),
            None => (Layout::Col, line(down, across, columns, rows)?, columns),
        };
        let batch = self.shape[..dims - 2].iter().product::<usize>();
        if batch > 1 && !self.is_packed_from(2, lines * ld) {
            return None;
        }
        let [batch, rows, columns, ld] = [batch, rows, columns, ld].map(|n| n as u64);
        Some(Matrix { batch, rows, columns, order, ld })
    }

    /// The order of a single matrix without padding.
    pub(crate) fn order(&self) -> Option<Layout> {
        let m = self.matrix().filter(|m| m.batch == 1)?;
        let packed = if m.order == Layout::Row { m.columns } else { m.rows };
        (m.ld == packed).then_some(m.order)
    }

    /// All but the last dimension as one; `None` where steps between them differ.
    pub(crate) fn flat(&self) -> Option<TensorLayout> {
        let last = self.shape.len() - 1;
        let mut sides = self.shape[..last].iter().zip(&self.strides).filter(|(size, _)| **size != 1);
        let folded = sides.try_fold(None, |outer: Option<isize>, (size, stride)| match outer {
            Some(outer) if outer != *size as isize * *stride => None,
            _ => Some(Some(*stride)),
        })?;
        let rows = self.shape[..last].iter().product();
        let (columns, across) = (self.shape[last], self.strides[last]);
        // One row has no step.
        let down = folded.unwrap_or(columns as isize);
        Some(TensorLayout { shape: vec![rows, columns], strides: vec![down, across], ..self.clone() })
    }

    /// Whether dimensions that were swapped lie packed.
    pub(crate) fn is_packed_as(&self, order: &[usize]) -> bool {
        let swapped = TensorLayout {
            shape: order.iter().map(|i| self.shape[*i]).collect(),
            strides: order.iter().map(|i| self.strides[*i]).collect(),
            ..self.clone()
        };
        swapped.is_packed()
    }
}

/// An argument that does not fit, and what was expected of it.
pub(crate) fn wrong(argument: &str, reason: impl Into<String>) -> Error {
    Error::Argument { argument: argument.into(), reason: reason.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout_of(shape: &[usize], strides: &[isize]) -> TensorLayout {
        TensorLayout { shape: shape.into(), strides: strides.into(), dtype: DType::F32, align: 64 }
    }

    #[test]
    fn rows_columns_and_padded_lines_are_matrices_and_other_strides_are_none() {
        let matrix =
            |shape: &[usize], strides: &[isize]| layout_of(shape, strides).matrix().map(|m| (m.batch, m.order, m.ld));
        assert_eq!(matrix(&[3, 5], &[5, 1]), Some((1, Layout::Row, 5)));
        assert_eq!(matrix(&[3, 5], &[8, 1]), Some((1, Layout::Row, 8)));
        assert_eq!(matrix(&[3, 5], &[1, 3]), Some((1, Layout::Col, 3)));
        assert_eq!(matrix(&[1, 5], &[77, 1]), Some((1, Layout::Row, 5)));
        assert_eq!(matrix(&[5, 1], &[1, 77]), Some((1, Layout::Row, 1)));
        assert_eq!(matrix(&[2, 3, 5], &[15, 5, 1]), Some((2, Layout::Row, 5)));
        assert_eq!(matrix(&[2, 3, 5], &[15, 1, 3]), Some((2, Layout::Col, 3)));
        assert_eq!(matrix(&[2, 3, 5], &[24, 8, 1]), Some((2, Layout::Row, 8)));
        for (shape, strides) in [
            (&[3, 5][..], &[10, 2][..]),
            (&[3, 5], &[0, 1]),
            (&[3, 5], &[5, -1]),
            (&[2, 3, 5], &[0, 5, 1]),
            (&[2, 3, 5], &[16, 5, 1]),
        ] {
            assert_eq!(matrix(shape, strides), None, "{shape:?} {strides:?}");
        }
        let flat = |shape: &[usize], strides: &[isize]| layout_of(shape, strides).flat().map(|l| (l.shape, l.strides));
        assert_eq!(flat(&[2, 3, 5], &[15, 5, 1]), Some((vec![6, 5], vec![5, 1])));
        assert_eq!(flat(&[2, 3, 5], &[3, 1, 6]), Some((vec![6, 5], vec![1, 6])));
        assert_eq!(flat(&[2, 3, 5], &[1, 2, 6]), None);
        assert_eq!(flat(&[1, 1, 5], &[7, 9, 1]), Some((vec![1, 5], vec![5, 1])));
        assert_eq!(layout_of(&[3, 5], &[8, 1]).order(), None);
        assert_eq!(layout_of(&[3, 5], &[1, 3]).order(), Some(Layout::Col));
        assert!(layout_of(&[2, 4, 3, 5], &[60, 5, 20, 1]).is_packed_as(&[0, 2, 1, 3]));
    }
}
