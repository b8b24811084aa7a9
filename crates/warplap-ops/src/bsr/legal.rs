//! What a block-sparse product may be: sizes, orders, and as many blocks as there is room for.

use warplap_core::dtype::DType;
use warplap_core::problem::{MAX_SIZE, ProblemError};

use super::BsrProblem;
use crate::extent::MAX_ELEMENTS;
use crate::gemm::Layout;

const BS: &str = "a multiple of 8 from 8 to 128";

impl BsrProblem {
    pub(super) fn all(&self) -> f64 {
        self.rows() as f64 * self.columns() as f64
    }

    pub(super) fn mean(&self) -> f64 {
        self.nnz as f64 / self.rows() as f64
    }

    pub(super) fn blocks_at(&self, density: f64) -> u64 {
        // A matrix that is asked to hold something holds something.
        ((density * self.all()).round() as u64).max(u64::from(density > 0.0))
    }

    pub(super) fn even_max(&self) -> u64 {
        self.pattern.even_max(self.rows(), self.columns(), self.nnz as usize) as u64
    }

    pub(super) fn row_max_at(&self, imbalance: f64) -> u64 {
        ((imbalance * self.mean()).round() as u64).max(self.nnz.div_ceil(self.rows() as u64))
    }

    /// This problem with as many blocks as a density and an imbalance say.
    pub(super) fn filled(mut self, density: f64, imbalance: Option<f64>) -> Result<Self, ProblemError> {
        let (rows, columns) = (self.rows(), self.columns());
        self.nnz = self.blocks_at(density);
        let room = self.pattern.room(rows, columns, columns) as u64;
        if self.nnz > room {
            let most = room as f64 / self.all();
            let expected = format!("at most {most:.4} for pattern={}", self.pattern);
            return Err(ProblemError::value("density", density, expected));
        }
        self.row_max = imbalance.map_or_else(|| self.even_max(), |i| self.row_max_at(i));
        let most = self.nnz.min(columns as u64);
        if self.row_max > most {
            let expected = format!("at most {:.4}, a full row over the mean one", most as f64 / self.mean());
            return Err(ProblemError::value("imbalance", imbalance.unwrap_or(1.0), expected));
        }
        if (self.pattern.room(rows, columns, self.row_max as usize) as u64) < self.nnz {
            let least = self.even_max() as f64 / self.mean();
            let expected = format!("about {least:.4} or more for pattern={} at this density", self.pattern);
            return Err(ProblemError::value("imbalance", imbalance.unwrap_or(1.0), expected));
        }
        self.bounded()?;
        Ok(self)
    }

    pub(super) fn bounded(&self) -> Result<(), ProblemError> {
        let sizes =
            [("density", self.values_len() as u64, "blocks"), ("k", self.k * self.n, "B"), ("m", self.m * self.n, "C")];
        for (field, len, what) in sizes {
            if len > MAX_ELEMENTS {
                return Err(ProblemError::value(field, len, format!("at most {MAX_ELEMENTS} elements in {what}")));
            }
        }
        Ok(())
    }
}

/// Tensor cores take bytes along k alone.
pub(super) fn along_k(dtype: DType, b: Layout) -> Result<(), ProblemError> {
    match (dtype, b) {
        (DType::F8E4m3, Layout::Row) => {
            Err(ProblemError::value("b", b, "col with dtype=f8e4m3: tensor cores take bytes along k"))
        }
        _ => Ok(()),
    }
}

pub(super) fn shape((m, k, n): (u64, u64, u64), (bs, bc): (u64, u64)) -> Result<(), ProblemError> {
    for (field, size) in [("bs", bs), ("bc", bc)] {
        if !(8..=128).contains(&size) || !size.is_multiple_of(8) {
            return Err(ProblemError::value(field, size, BS));
        }
    }
    let across = if bc == bs { "bs" } else { "bc" };
    for (field, size, name, block) in [("m", m, "bs", bs), ("k", k, across, bc), ("n", n, "", 1)] {
        if !(1..=MAX_SIZE).contains(&size) {
            return Err(ProblemError::value(field, size, format!("a whole number from 1 to {MAX_SIZE}")));
        }
        if !size.is_multiple_of(block) {
            let near = size.next_multiple_of(block);
            let expected = format!("a multiple of {name}={block}: pad to {near}, or choose a {name} that divides it");
            return Err(ProblemError::value(field, size, expected));
        }
    }
    Ok(())
}
