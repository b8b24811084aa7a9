//! Block-sparse matrices: `BsrTensor`, its products with dense tensors, and their gradients. A dense factor may be given
//! as a matrix or, as layers have it, as rows: then kernels read the same memory the other way.

use std::sync::Arc;

use burn::backend::tensor::FloatTensor;
use burn::tensor::{Bool, Device, Int, Tensor, TensorData};
use warplap::ops::bsr::Factor;
use warplap::{Bsr, BsrProblem, Error, Layout, Sampled, SampledProblem};

use crate::backends::place::{Place, copied, packed};
use crate::call::{Call, Gradients, Kept, Slope};
use crate::extension::Warplap;
use crate::ops::gemm::{column_sums, one, row_major};
use crate::ops::structure::Structure;
use crate::tensor::adapter::{Manner, Slotted, launch};
use crate::tensor::tensor_layout::wrong;
use crate::tensor::tensors::{call, expect};

/// A block-sparse matrix in square blocks (BSR): for each block row the columns of its stored blocks, and the blocks
/// themselves, `[blocks, block, block]`, each row-major. The blocks are an ordinary tensor of Burn's: gradients flow
/// into them.
#[derive(Clone, Debug)]
pub struct BsrTensor {
    values: Tensor<3>,
    structure: Arc<Structure>,
    turned: bool,
}

impl BsrTensor {
    /// The blocks of a dense matrix that a mask names: `mask` has one element a block. What lies outside is left out.
    ///
    /// # Panics
    /// Where [`BsrTensor::try_from_dense`] says what is wrong.
    pub fn from_dense(dense: Tensor<2>, mask: Tensor<2, Bool>, block: usize) -> Self {
        expect("BsrTensor::from_dense", Self::try_from_dense(dense, mask, block))
    }

    /// As [`BsrTensor::from_dense`]; an error names what does not fit.
    pub fn try_from_dense(dense: Tensor<2>, mask: Tensor<2, Bool>, block: usize) -> Result<Self, Error> {
        let ([m, k], [rows, columns]) = (dense.dims(), mask.dims());
        if block == 0 || m % block != 0 || k % block != 0 {
            let reason = format!("is {block}, expected one that divides both sizes of dense, {m} and {k}");
            return Err(wrong("block", reason));
        }
        if [rows, columns] != [m / block, k / block] {
            let reason = format!("is [{rows}, {columns}], expected [{}, {}]: one a block", m / block, k / block);
            return Err(wrong("mask", reason));
        }
        let data = mask.into_data();
        let named: Vec<bool> = data.iter::<bool>().collect();
        if !named.contains(&true) {
            return Err(wrong("mask", "names no block, expected one or more"));
        }
        let (row_ptr, col_idx) = listed(&named, columns);
        let structure = Structure::new((m, k), block, row_ptr, col_idx)?;
        // [rows, bs, columns, bs] with one row for each block.
        let blocks = dense.reshape([rows, block, columns, block]).swap_dims(1, 2);
        let blocks = blocks.reshape([rows * columns, block, block]);
        let at: Vec<i64> = (0..named.len()).filter(|i| named[*i]).map(|i| i as i64).collect();
        let count = at.len();
        let at = Tensor::<1, Int>::from_data(TensorData::new(at, [count]), &blocks.device());
        Ok(BsrTensor { values: blocks.select(0, at), structure: Arc::new(structure), turned: false })
    }

    /// A matrix from its parts: where each block row begins in the columns (`rows / block + 1` numbers), the block column
    /// of each block, rising in each row, and the blocks `[blocks, block, block]`.
    pub fn from_parts(
        shape: [usize; 2],
        row_ptr: Vec<i32>,
        col_idx: Vec<i32>,
        values: Tensor<3>,
    ) -> Result<Self, Error> {
        let [blocks, high, wide] = values.dims();
        if high != wide {
            return Err(wrong("values", format!("has blocks of {high}x{wide}, expected square ones")));
        }
        let structure = Structure::new((shape[0], shape[1]), high, row_ptr, col_idx)?;
        if structure.blocks() != blocks {
            let reason = format!("has {blocks} blocks, expected {}, as row_ptr says", structure.blocks());
            return Err(wrong("values", reason));
        }
        Ok(BsrTensor { values, structure: Arc::new(structure), turned: false })
    }

    pub(crate) fn over(values: Tensor<3>, structure: Arc<Structure>) -> Self {
        BsrTensor { values, structure, turned: false }
    }

    /// Rows and columns.
    pub fn dims(&self) -> [usize; 2] {
        let [m, k] = self.structure.shape();
        if self.turned { [k, m] } else { [m, k] }
    }

    /// Rows and columns of a block.
    pub fn block(&self) -> usize {
        self.structure.block()
    }

    /// The share of blocks that are stored.
    pub fn density(&self) -> f64 {
        self.structure.density()
    }

    /// The stored blocks, `[blocks, block, block]`; those of a transposed view are the original's.
    pub fn values(&self) -> &Tensor<3> {
        &self.values
    }

    /// Where each block row begins, of the matrix that is stored.
    pub fn row_ptr(&self) -> &[i32] {
        self.structure.row_ptr.host()
    }

    /// The block column of each stored block.
    pub fn col_idx(&self) -> &[i32] {
        self.structure.col_idx.host()
    }

    /// The device the blocks are on.
    pub fn device(&self) -> Device {
        self.values.device()
    }

    /// The transposed matrix: a view, over the same blocks.
    pub fn transpose(&self) -> Self {
        BsrTensor { turned: !self.turned, ..self.clone() }
    }

    /// The matrix with zeros where no block is stored. Gradients flow back into the blocks.
    pub fn to_dense(&self) -> Tensor<2> {
        let ([m, k], bs) = (self.structure.shape(), self.block());
        let (rows, columns) = (m / bs, k / bs);
        let mut at = Vec::with_capacity(self.structure.blocks());
        for (row, ends) in self.row_ptr().windows(2).enumerate() {
            let blocks = &self.col_idx()[ends[0] as usize..ends[1] as usize];
            at.extend(blocks.iter().map(|column| (row * columns) as i64 + i64::from(*column)));
        }
        let count = at.len();
        let device = self.values.device();
        let at = Tensor::<1, Int>::from_data(TensorData::new(at, [count]), &device);
        let zeros = Tensor::<3>::zeros([rows * columns, bs, bs], (&device, self.values.dtype()));
        let all = zeros.select_assign(0, at, self.values.clone(), burn::tensor::IndexingUpdateOp::Add);
        let dense = all.reshape([rows, columns, bs, bs]).swap_dims(1, 2).reshape([m, k]);
        if self.turned { dense.transpose() } else { dense }
    }

    /// The product with a dense matrix `[columns, n]`.
    ///
    /// # Panics
    /// Where [`BsrTensor::try_matmul`] says what is wrong.
    pub fn matmul(&self, dense: Tensor<2>) -> Tensor<2> {
        expect("BsrTensor::matmul", self.try_matmul(dense))
    }

    /// As [`BsrTensor::matmul`]; an error names what does not fit.
    pub fn try_matmul(&self, dense: Tensor<2>) -> Result<Tensor<2>, Error> {
        let ([rows, n], [_, k]) = (dense.dims(), self.dims());
        if rows != k {
            return Err(wrong("dense", format!("has {rows} rows, expected {k}, the columns of the matrix")));
        }
        if n == 0 {
            return Err(wrong("dense", "has no columns, expected one or more"));
        }
        let product = BsrCall { structure: self.structure.clone(), turned: self.turned, rows: false, bias: false };
        let tensor_list = vec![self.values.clone().into_dispatch(), dense.into_dispatch()];
        call(Call::Bsr(product), tensor_list).map(Tensor::from_dispatch)
    }

    /// `x · matrixᵀ + bias`, with x `[.., columns]` and bias `[rows]`: what a layer computes.
    ///
    /// # Panics
    /// Where [`BsrTensor::try_linear`] says what is wrong.
    pub fn linear<const D: usize>(&self, x: Tensor<D>, bias: Option<Tensor<1>>) -> Tensor<D> {
        expect("BsrTensor::linear", self.try_linear(x, bias))
    }

    /// As [`BsrTensor::linear`]; an error names what does not fit.
    pub fn try_linear<const D: usize>(&self, x: Tensor<D>, bias: Option<Tensor<1>>) -> Result<Tensor<D>, Error> {
        let (dims, [m, k]) = (x.dims(), self.dims());
        if dims[D - 1] != k {
            return Err(wrong("x", format!("has {} columns, expected {k}, the columns of the matrix", dims[D - 1])));
        }
        if let Some(got) = bias.as_ref().map(|b| b.dims()[0]).filter(|got| *got != m) {
            return Err(wrong("bias", format!("has {got} elements, expected {m}, the rows of the matrix")));
        }
        if dims.contains(&0) {
            return Err(wrong("x", format!("is {dims:?}, expected no size of 0")));
        }
        let (structure, bias_there) = (self.structure.clone(), bias.is_some());
        let product = BsrCall { structure, turned: self.turned, rows: true, bias: bias_there };
        let mut tensor_list = vec![self.values.clone().into_dispatch(), x.into_dispatch()];
        tensor_list.extend(bias.map(Tensor::into_dispatch));
        call(Call::Bsr(product), tensor_list).map(Tensor::from_dispatch)
    }
}

/// Row pointers and columns of the blocks that are named.
pub(crate) fn listed(named: &[bool], columns: usize) -> (Vec<i32>, Vec<i32>) {
    let (mut row_ptr, mut col_idx) = (vec![0], Vec::new());
    for row in named.chunks(columns.max(1)) {
        col_idx.extend(row.iter().enumerate().filter(|(_, named)| **named).map(|(column, _)| column as i32));
        row_ptr.push(col_idx.len() as i32);
    }
    (row_ptr, col_idx)
}

/// A product of a block-sparse matrix, or of its transpose, with a dense one.
#[derive(Clone, Debug)]
pub(crate) struct BsrCall {
    structure: Arc<Structure>,
    turned: bool,
    /// Whether what is multiplied comes as rows, and goes as rows: `x · Aᵀ` instead of `A · B`.
    rows: bool,
    bias: bool,
}

/// The gradient of the stored blocks: those blocks of G·Bᵀ that the structure names.
#[derive(Clone, Debug)]
pub(crate) struct BlocksCall {
    structure: Arc<Structure>,
    rows: bool,
}

/// A dense matrix as a product sees it, with the order that kernels read it in: given as rows, in as many dimensions as
/// there are, its transpose.
fn seen<P: Place>(tensor: P::Tensor, rows: bool, argument: &str) -> Result<(P::Tensor, Layout), Error> {
    let swap = |order: Layout| match (rows, order) {
        (true, Layout::Row) | (false, Layout::Col) => Layout::Col,
        _ => Layout::Row,
    };
    if let Some(order) = P::layout_of(&tensor, argument)?.flat().and_then(|flat| flat.order()) {
        return Ok((tensor, swap(order)));
    }
    Ok((copied::<P>(tensor), swap(Layout::Row)))
}

/// Columns of the dense factor.
fn width(shape: &[usize], rows: bool) -> usize {
    let last = shape.len() - 1;
    if rows { shape[..last].iter().product() } else { shape[last] }
}

impl BsrCall {
    pub(crate) fn run<P: Place>(&self, floats: Vec<P::Tensor>) -> Result<Vec<P::Tensor>, Error> {
        let mut floats = floats.into_iter();
        let (Some(values), Some(dense)) = (floats.next(), floats.next()) else {
            return Err(wrong("the arguments", "a product takes blocks and a dense matrix"));
        };
        let values = packed::<P>(values, "values")?;
        let bias = floats.next().map(|bias| packed::<P>(bias, "bias")).transpose()?;
        let (of, on) = (P::layout_of(&values, "values")?.dtype, P::layout_of(&dense, "x")?);
        if of != on.dtype {
            return Err(wrong("x", format!("holds {}, expected {of} as the blocks have: cast one of them", on.dtype)));
        }
        let n = width(&on.shape, self.rows);
        let (dense, b) = seen::<P>(dense, self.rows, "x")?;
        let structure = if self.turned { self.structure.turned()? } else { &self.structure };
        let c = if self.rows && P::WRITES_COLUMNS { Layout::Col } else { Layout::Row };
        let beta = if self.bias { Factor::ONE } else { Factor::ZERO };
        let p = BsrProblem { b, c, beta, bias: self.bias, ..structure.product(n as u64, of) };
        let tensor_list = vec![
            Slotted::Indices(structure.row_ptr.clone()),
            Slotted::Indices(structure.col_idx.clone()),
            Slotted::Tensor(values),
            Slotted::Tensor(dense),
            Slotted::Absent,
            bias.into(),
            structure.place.clone().map_or(Slotted::Absent, Slotted::Indices),
        ];
        let out = launch::<P, Bsr>(&p, tensor_list, &Manner::PROMISED)?;
        let (mut shape, m) = (on.shape, p.m as usize);
        let last = shape.len() - 1;
        let at = if self.rows { last } else { 0 };
        shape[at] = m;
        let mut strides = row_major(&shape);
        if self.rows && c == Layout::Row {
            // What was written is the transpose: the same memory, seen the other way.
            strides = [row_major(&shape[..last]), vec![n as isize]].concat();
        }
        Ok(out.into_iter().map(|c| P::seen_as(c, &shape, &strides)).collect())
    }

    pub(crate) fn backward<B: Warplap>(
        &self,
        kept: Kept<FloatTensor<B>>,
        slope: Slope<'_, FloatTensor<B>>,
    ) -> Gradients<B> {
        let (mut inputs, grad) = (kept.inputs.into_iter(), slope.grad);
        let (Some(values), Some(dense)) = (inputs.next(), inputs.next()) else { return Ok(Vec::new()) };
        let mut got = vec![None, None, None];
        if slope.wanted[0] {
            let blocks = BlocksCall { structure: self.structure.clone(), rows: self.rows };
            // Of the transposed matrix, the two change places.
            let pair = if self.turned { vec![dense, grad.clone()] } else { vec![grad.clone(), dense] };
            got[0] = Some(one::<B>(Call::Blocks(blocks), pair)?);
        }
        if slope.wanted[1] {
            let back = BsrCall { turned: !self.turned, bias: false, ..self.clone() };
            got[1] = Some(one::<B>(Call::Bsr(back), vec![values, grad.clone()])?);
        }
        if self.bias && slope.wanted[2] {
            got[2] = Some(column_sums::<B>(grad));
        }
        Ok(got)
    }
}

impl BlocksCall {
    pub(crate) fn run<P: Place>(&self, floats: Vec<P::Tensor>) -> Result<Vec<P::Tensor>, Error> {
        let mut floats = floats.into_iter();
        let (Some(g), Some(b)) = (floats.next(), floats.next()) else {
            return Err(wrong("the arguments", "the gradient of blocks takes two dense matrices"));
        };
        let on = P::layout_of(&g, "grad")?;
        let n = width(&on.shape, self.rows);
        let ((g, g_order), (b, b_order)) = (seen::<P>(g, self.rows, "grad")?, seen::<P>(b, self.rows, "x")?);
        let product = BsrProblem { b: b_order, ..self.structure.product(n as u64, on.dtype) };
        let p = SampledProblem::of(&product, g_order);
        let tensor_list = vec![
            Slotted::Indices(self.structure.row_ptr.clone()),
            Slotted::Indices(self.structure.col_idx.clone()),
            Slotted::Tensor(g),
            Slotted::Tensor(b),
        ];
        let out = launch::<P, Sampled>(&p, tensor_list, &Manner::PROMISED)?;
        let shape = [self.structure.blocks(), self.structure.block(), self.structure.block()];
        Ok(out.into_iter().map(|values| P::seen_as(values, &shape, &row_major(&shape))).collect())
    }
}
