//! Where the blocks of a block-sparse matrix lie: index lists come in; once checked, they are what every product with
//! the matrix reads, on whichever device, and the transposed matrix has them too.

use std::sync::{Arc, OnceLock};

use warplap::ops::bsr::{turned_index, validate};
use warplap::{BsrProblem, DType, Error, Layout};

/// A list of indices, on the host and, once asked for, on a device.
pub struct Indices {
    host: Vec<i32>,
    #[cfg(feature = "cuda")]
    pub(crate) on_gpu: [OnceLock<warplap::cuda::Buffer>; crate::backends::cube::DEVICES],
}

impl Indices {
    pub(crate) fn new(host: Vec<i32>) -> Self {
        Indices {
            host,
            #[cfg(feature = "cuda")]
            on_gpu: [const { OnceLock::new() }; crate::backends::cube::DEVICES],
        }
    }

    pub(crate) fn host(&self) -> &[i32] {
        &self.host
    }
}

impl std::fmt::Debug for Indices {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} indices", self.host.len())
    }
}

/// Where blocks lie, checked.
#[derive(Debug)]
pub(crate) struct Structure {
    pub(crate) row_ptr: Arc<Indices>,
    pub(crate) col_idx: Arc<Indices>,
    /// Where each block is stored, where that is not one after the other.
    pub(crate) place: Option<Arc<Indices>>,
    /// The product with one column, in f32.
    problem: BsrProblem,
    turned: OnceLock<Arc<Structure>>,
}

impl Structure {
    /// Checks index lists of an m×k matrix in square blocks.
    pub(crate) fn new(
        (rows, columns): (usize, usize),
        block: usize,
        row_ptr: Vec<i32>,
        col_idx: Vec<i32>,
    ) -> Result<Self, Error> {
        let shape = (rows as u64, columns as u64, 1);
        let problem = BsrProblem::of(shape, block as u64, DType::F32, Layout::Row, &row_ptr)?;
        validate(&row_ptr, &col_idx, problem.values_len(), &problem)?;
        let (row_ptr, col_idx) = (Arc::new(Indices::new(row_ptr)), Arc::new(Indices::new(col_idx)));
        Ok(Structure { row_ptr, col_idx, place: None, problem, turned: OnceLock::new() })
    }

    /// Rows and columns.
    pub(crate) fn shape(&self) -> [usize; 2] {
        [self.problem.m as usize, self.problem.k as usize]
    }

    /// Rows and columns of a block.
    pub(crate) fn block(&self) -> usize {
        self.problem.bs as usize
    }

    /// Blocks that are stored.
    pub(crate) fn blocks(&self) -> usize {
        self.problem.nnz as usize
    }

    pub(crate) fn density(&self) -> f64 {
        self.problem.density()
    }

    /// The product with so many columns in a type.
    pub(crate) fn product(&self, n: u64, dtype: DType) -> BsrProblem {
        BsrProblem { n, dtype, ..self.problem }
    }

    /// The transposed matrix over the same blocks: made once.
    pub(crate) fn turned(&self) -> Result<&Arc<Structure>, Error> {
        if let Some(made) = self.turned.get() {
            return Ok(made);
        }
        let index = turned_index(self.row_ptr.host(), self.col_idx.host(), self.problem.columns());
        let BsrProblem { m, k, bs, .. } = self.problem;
        let problem = BsrProblem::of((k, m, 1), bs, DType::F32, Layout::Row, &index.row_ptr)?;
        let made = Structure {
            row_ptr: Arc::new(Indices::new(index.row_ptr)),
            col_idx: Arc::new(Indices::new(index.col_idx)),
            place: Some(Arc::new(Indices::new(index.place))),
            problem: BsrProblem { turned: true, ..problem },
            turned: OnceLock::new(),
        };
        Ok(self.turned.get_or_init(|| Arc::new(made)))
    }
}
