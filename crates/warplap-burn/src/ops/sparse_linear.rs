//! `SparseLinear`: a layer whose weight is block-sparse, as a module of Burn's. Its blocks are a parameter that trains;
//! where they lie is saved in its record beside them.

use std::sync::{Arc, Mutex, PoisonError};

use burn::backend::{BackendTensor, DispatchTensorKind};
use burn::config::Config;
use burn::module::{Initializer, Module, Param, ParamId};
use burn::nn::Linear;
use burn::tensor::{Bool, DType, Device, Int, Tensor, TensorData};
use warplap::Error;

use crate::ops::bsr::{BsrTensor, listed};
use crate::ops::structure::Structure;
use crate::tensor::tensor_layout::wrong;
use crate::tensor::tensors::expect;

/// How a [`SparseLinear`] is made.
#[derive(Config, Debug)]
pub struct SparseLinearConfig {
    /// Size of the input features.
    pub d_input: usize,
    /// Size of the output features.
    pub d_output: usize,
    /// Rows and columns of a block: a multiple of 8 up to 128 that divides both sizes.
    #[config(default = 32)]
    pub block: usize,
    /// The share of blocks that are stored, the same in every block row.
    #[config(default = 0.125)]
    pub density: f64,
    /// Whether a bias is added.
    #[config(default = true)]
    pub bias: bool,
    /// How blocks and bias are drawn; as for a dense layer, with the inputs that an output really has.
    #[config(default = "Initializer::KaimingUniform{gain:0.577_350_269_189_625_8, fan_out_only:false}")]
    pub initializer: Initializer,
    /// What decides which blocks are stored.
    #[config(default = 0)]
    pub seed: u64,
}

/// `y = x · Wᵀ + bias` with a block-sparse W `[d_output, d_input]`.
#[derive(Module, Debug)]
pub struct SparseLinear {
    /// The stored blocks, `[blocks, block, block]`.
    pub values: Param<Tensor<3>>,
    /// The bias, `[d_output]`.
    pub bias: Option<Param<Tensor<1>>>,
    /// Where each block row begins: saved with the blocks, never trained.
    pub row_ptr: Param<Tensor<1, Int>>,
    /// The block column of each block.
    pub col_idx: Param<Tensor<1, Int>>,
    #[module(skip)]
    shape: [usize; 2],
    #[module(skip)]
    known: Known,
}

/// The structure of the indices that were last seen.
#[derive(Clone, Debug, Default)]
struct Known(Arc<Mutex<Option<Seen>>>);

#[derive(Debug)]
struct Seen {
    /// Held, so that nobody else's indices can come to lie where these do.
    indices: [Tensor<1, Int>; 2],
    structure: Arc<Structure>,
}

impl SparseLinearConfig {
    /// Makes a layer.
    ///
    /// # Panics
    /// Where [`SparseLinearConfig::try_init`] says what is wrong.
    pub fn init(&self, device: &Device) -> SparseLinear {
        expect("SparseLinear", self.try_init(device))
    }

    /// As [`SparseLinearConfig::init`]; an error names the field that does not fit.
    pub fn try_init(&self, device: &Device) -> Result<SparseLinear, Error> {
        let (rows, columns) = self.blocks()?;
        if !(self.density > 0.0 && self.density <= 1.0) {
            return Err(wrong("density", format!("is {}, expected a share above 0 and up to 1", self.density)));
        }
        let each = ((self.density * columns as f64).round() as usize).clamp(1, columns);
        let mut named = vec![false; rows * columns];
        let mut state = self.seed;
        for row in named.chunks_mut(columns) {
            row[..each].fill(true);
            for i in (1..columns).rev() {
                row.swap(i, (next(&mut state) % (i as u64 + 1)) as usize);
            }
        }
        self.over(&named, device)
    }

    /// Makes a layer that stores the blocks that a mask `[d_output / block, d_input / block]` names.
    pub fn try_init_with_mask(&self, mask: Tensor<2, Bool>, device: &Device) -> Result<SparseLinear, Error> {
        let ((rows, columns), got) = (self.blocks()?, mask.dims());
        if got != [rows, columns] {
            return Err(wrong("mask", format!("is {got:?}, expected [{rows}, {columns}]: one a block")));
        }
        let data = mask.into_data();
        self.over(&data.iter::<bool>().collect::<Vec<bool>>(), device)
    }

    fn blocks(&self) -> Result<(usize, usize), Error> {
        for (name, size) in [("d_output", self.d_output), ("d_input", self.d_input)] {
            if size == 0 || self.block == 0 || size % self.block != 0 {
                let block = self.block;
                let reason =
                    format!("is {size}, expected a multiple of block={block}: pad it, or choose another block");
                return Err(wrong(name, reason));
            }
        }
        Ok((self.d_output / self.block, self.d_input / self.block))
    }

    fn over(&self, named: &[bool], device: &Device) -> Result<SparseLinear, Error> {
        let (row_ptr, col_idx) = listed(named, self.d_input / self.block);
        let (blocks, shape) = (col_idx.len(), [self.d_output, self.d_input]);
        if blocks == 0 {
            return Err(wrong("mask", "names no block, expected one or more"));
        }
        // What an output sums over, on the mean.
        let fan_in = (blocks * self.block * self.block / self.d_output).max(1);
        let drawn = [blocks, self.block, self.block];
        let fans = (Some(fan_in), Some((blocks * self.block * self.block / self.d_input).max(1)));
        let values = self.initializer.init_with(drawn, fans.0, fans.1, device);
        let bias = self.bias.then(|| self.initializer.init_with([self.d_output], fans.0, fans.1, device));
        SparseLinear::of(values, bias, (shape, self.block), row_ptr, col_idx, device)
    }
}

/// A number of a well-mixed sequence (splitmix64).
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl SparseLinear {
    fn of(
        values: Param<Tensor<3>>,
        bias: Option<Param<Tensor<1>>>,
        (shape, block): ([usize; 2], usize),
        row_ptr: Vec<i32>,
        col_idx: Vec<i32>,
        device: &Device,
    ) -> Result<Self, Error> {
        // Checked before anybody trains with it.
        Structure::new((shape[0], shape[1]), block, row_ptr.clone(), col_idx.clone())?;
        let [row_ptr, col_idx] = [row_ptr, col_idx].map(|indices| {
            let data = TensorData::new(indices.clone(), [indices.len()]);
            Param::initialized(ParamId::new(), Tensor::<1, Int>::from_data(data, (device, DType::I32)))
        });
        Ok(SparseLinear { values, bias, row_ptr, col_idx, shape, known: Known::default() })
    }

    /// A layer with the blocks of a dense one that a mask `[d_output / block, d_input / block]` names.
    pub fn from_linear(linear: &Linear, mask: Tensor<2, Bool>, block: usize) -> Result<Self, Error> {
        let weight = linear.weight.val().detach();
        let device = weight.device();
        // Burn's layer keeps its weight as [d_input, d_output].
        let bsr = BsrTensor::try_from_dense(weight.transpose(), mask, block)?;
        let bias = linear.bias.as_ref().map(|bias| Param::from_tensor(bias.val().detach()));
        let indices = (bsr.row_ptr().to_vec(), bsr.col_idx().to_vec());
        let values = Param::from_tensor(bsr.values().clone());
        SparseLinear::of(values, bias, (bsr.dims(), block), indices.0, indices.1, &device)
    }

    /// The layer's output for x `[.., d_input]`: `[.., d_output]`.
    ///
    /// # Panics
    /// Where [`SparseLinear::try_forward`] says what is wrong.
    pub fn forward<const D: usize>(&self, x: Tensor<D>) -> Tensor<D> {
        expect("SparseLinear::forward", self.try_forward(x))
    }

    /// As [`SparseLinear::forward`]; an error names what does not fit.
    pub fn try_forward<const D: usize>(&self, x: Tensor<D>) -> Result<Tensor<D>, Error> {
        self.weight()?.try_linear(x, self.bias.as_ref().map(Param::val))
    }

    /// Its weight `[d_output, d_input]`.
    pub fn weight(&self) -> Result<BsrTensor, Error> {
        let indices = [self.row_ptr.val(), self.col_idx.val()];
        let values = self.values.val();
        let mut known = self.known.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(seen) = known
            .as_ref()
            .filter(|seen| seen.indices.iter().zip(&indices).all(|(before, now)| is_same_memory(before, now)))
        {
            return Ok(BsrTensor::over(values, seen.structure.clone()));
        }
        let read = |tensor: &Tensor<1, Int>| tensor.to_data().iter::<i32>().collect::<Vec<i32>>();
        let [blocks, block, _] = values.dims();
        let (rows, columns) = (self.shape[0], self.shape[1]);
        let structure = Structure::new((rows, columns), block, read(&indices[0]), read(&indices[1]))?;
        if structure.blocks() != blocks {
            let reason = format!("has {blocks} blocks, expected {}, as row_ptr says", structure.blocks());
            return Err(wrong("values", reason));
        }
        let structure = Arc::new(structure);
        *known = Some(Seen { indices, structure: structure.clone() });
        Ok(BsrTensor::over(values, structure))
    }

    /// The share of blocks that are stored.
    pub fn density(&self) -> f64 {
        let [blocks, block, _] = self.values.shape().dims();
        (blocks * block * block) as f64 / (self.shape[0] * self.shape[1]) as f64
    }
}

/// Whether two tensors are the same memory. One that is held cannot be written over, so then they are equal.
fn is_same_memory(one: &Tensor<1, Int>, other: &Tensor<1, Int>) -> bool {
    match (one.clone().into_dispatch().kind, other.clone().into_dispatch().kind) {
        (DispatchTensorKind::Flex(BackendTensor::Int(one)), DispatchTensorKind::Flex(BackendTensor::Int(other))) => {
            one.bytes().as_ptr() == other.bytes().as_ptr() && one.layout() == other.layout()
        }
        #[cfg(feature = "cuda")]
        (one, other) => crate::backends::cube::is_same_memory(&one, &other),
        #[cfg(not(feature = "cuda"))]
        _ => false,
    }
}
