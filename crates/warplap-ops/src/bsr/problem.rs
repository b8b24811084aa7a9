//! The facts of one block-sparse product: shapes, block size, how many blocks there are and how unevenly they lie.

use warplap_core::dtype::DType;
use warplap_core::problem::ProblemError;

use super::factor::Factor;
use super::legal::{along_k, shape};
use super::op::usual_order;
use super::pattern::Pattern;
use super::validate::{BsrError, check_rows};
use crate::gemm::Layout;

/// The facts of C (m×n) = alpha · A (m×k, in blocks) · B (k×n) + beta · C. Statistics are kept as counts, so that two
/// problems are the same exactly when their text is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BsrProblem {
    /// Rows of A and C.
    pub m: u64,
    /// Columns of A, rows of B.
    pub k: u64,
    /// Columns of B and C.
    pub n: u64,
    /// Rows of one block.
    pub bs: u64,
    /// Columns of one block; as many as rows unless said.
    pub bc: u64,
    /// Blocks that are stored.
    pub nnz: u64,
    /// Blocks of the fullest block row.
    pub row_max: u64,
    /// Type of the values and B in memory; sums are kept in f32. C has it too, but for products of f8e4m3.
    pub dtype: DType,
    /// Order of B.
    pub b: Layout,
    /// Order of C and of the addend.
    pub c: Layout,
    /// What the product is multiplied with.
    pub alpha: Factor,
    /// What the addend is multiplied with; there is none where this is 0.
    pub beta: Factor,
    /// Whether the addend is C's own former elements, where beta is not 0; otherwise it is an argument of its own.
    pub in_place: bool,
    /// Whether the addend is a bias: one element for each row of C, the same for all columns.
    pub bias: bool,
    /// Whether blocks are stored turned and elsewhere: the indices are those of A, and block `i` of A is the transpose
    /// of stored block `place[i]`. So Aᵀ·B is this product over the index of the transposed pattern.
    pub turned: bool,
    /// Whether the factors of an f32 product may be rounded to tf32 (eleven bits); sums are kept in f32 all the same.
    pub tf32: bool,
    /// How raced inputs are drawn. No part of the key: a user's own matrix has no such name.
    pub pattern: Pattern,
}

impl BsrProblem {
    /// A product whose blocks lie evenly and at random; `density` is the share of blocks that are stored.
    pub fn new(m: u64, k: u64, n: u64, bs: u64, density: f64, dtype: DType) -> Result<Self, ProblemError> {
        shape((m, k, n), (bs, bs))?;
        Self::plain((m, k, n), (bs, bs), dtype).filled(density, None)
    }

    /// The problem of a real matrix, from its row pointers (`m / bs + 1` of them).
    pub fn of(shape: (u64, u64, u64), bs: u64, dtype: DType, b: Layout, row_ptr: &[i32]) -> Result<Self, BsrError> {
        Self::of_blocks(shape, (bs, bs), dtype, b, row_ptr)
    }

    /// The same for blocks of so many rows by so many columns.
    pub fn of_blocks(
        (m, k, n): (u64, u64, u64),
        (bs, bc): (u64, u64),
        dtype: DType,
        b: Layout,
        row_ptr: &[i32],
    ) -> Result<Self, BsrError> {
        shape((m, k, n), (bs, bc))?;
        along_k(dtype, b)?;
        let (nnz, row_max) = check_rows(row_ptr, (m / bs) as usize, (k / bc) as usize)?;
        let (nnz, row_max) = (nnz as u64, row_max as u64);
        let p = BsrProblem { nnz, row_max, b, ..Self::plain((m, k, n), (bs, bc), dtype) };
        p.bounded()?;
        Ok(p)
    }

    pub(super) fn plain((m, k, n): (u64, u64, u64), (bs, bc): (u64, u64), dtype: DType) -> Self {
        BsrProblem {
            m,
            k,
            n,
            bs,
            bc,
            nnz: 0,
            row_max: 0,
            dtype,
            b: usual_order(dtype),
            c: Layout::Row,
            alpha: Factor::ONE,
            beta: Factor::ZERO,
            in_place: false,
            bias: false,
            turned: false,
            tf32: false,
            pattern: Pattern::Uniform,
        }
    }

    /// Type of C and of the addend: bf16 for products of f8e4m3, whose alpha stands for the factors that make codes of A
    /// and B the numbers they stand for.
    pub fn out(&self) -> DType {
        if self.is_bytes() { DType::Bf16 } else { self.dtype }
    }

    /// Whether it is a product of f8e4m3.
    pub fn is_bytes(&self) -> bool {
        self.dtype == DType::F8E4m3
    }

    /// Whether there is an addend.
    pub fn adds(&self) -> bool {
        self.beta != Factor::ZERO
    }

    /// Whether anything happens to the sums before they are stored.
    pub fn is_scaled(&self) -> bool {
        self.adds() || self.alpha != Factor::ONE
    }

    /// Whether the sizes are what every kernel relies on; the fields are open, so kernels ask again.
    pub(super) fn check(&self) -> Result<(), ProblemError> {
        shape((self.m, self.k, self.n), (self.bs, self.bc))?;
        along_k(self.dtype, self.b)
    }

    /// Block rows.
    pub fn rows(&self) -> usize {
        (self.m / self.bs) as usize
    }

    /// Block columns.
    pub fn columns(&self) -> usize {
        (self.k / self.bc) as usize
    }

    /// Whether blocks are as wide as they are tall.
    pub fn is_square(&self) -> bool {
        self.bs == self.bc
    }

    /// The share of blocks that are stored.
    pub fn density(&self) -> f64 {
        self.nnz as f64 / self.all()
    }

    /// Blocks of the fullest block row over those of the mean one; 1 for an empty matrix.
    pub fn imbalance(&self) -> f64 {
        if self.nnz == 0 { 1.0 } else { self.row_max as f64 / self.mean() }
    }

    /// Elements of the stored blocks.
    pub fn values_len(&self) -> usize {
        (self.nnz * self.bs * self.bc) as usize
    }
}
