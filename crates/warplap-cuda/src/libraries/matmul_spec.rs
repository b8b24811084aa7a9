//! What cuBLASLt is asked for: the matrices of a product as the library sees them, and what it does to the product
//! before it is stored.

use warplap_core::dtype::DType;

/// One matrix of a product, as the library sees it: columns are contiguous, `turned` says that it is used transposed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatrixSpec {
    /// Contiguous elements of a column.
    pub rows: u64,
    /// Columns.
    pub columns: u64,
    /// Elements from one column to the next.
    pub pitch: u64,
    /// Elements from one matrix of the batch to the next.
    pub stride: u64,
    /// Whether the product takes its transpose.
    pub turned: bool,
}

/// What a product of 8-bit numbers has beside others: another type of D, and factors of A and B.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BytesSpec {
    /// Type of D: bf16, f16 or f32 for f8e4m3, i32 for i8.
    pub out: DType,
    /// Whether the narrow sums of the tensor cores may run through all of k.
    pub fast: bool,
    /// What the factors of A and B belong to, where there are any.
    pub scales: Option<[MatmulScale; 2]>,
}

/// What factors belong to, by the numbers of `cublasLtMatmulMatrixScale_t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MatmulScale {
    /// The whole matrix.
    Tensor = 0,
    /// Each row of op(A), or each column of op(B).
    Outer = 3,
    /// Each 128 elements along k of a row or column.
    Vector128 = 4,
    /// Each 128×128 elements.
    Block128 = 5,
}

/// A product D = op(A)·op(B), column-major, f32 sums; i32 sums of signed bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatmulSpec {
    /// Type of the elements: f32, f16 or bf16; with `bytes` f8e4m3 or i8.
    pub dtype: DType,
    /// Whether f32 factors may be rounded to tf32.
    pub tf32: bool,
    /// A.
    pub a: MatrixSpec,
    /// B.
    pub b: MatrixSpec,
    /// D; never turned.
    pub d: MatrixSpec,
    /// Products in the batch.
    pub batch: u64,
    /// Bytes that divide every address.
    pub align: u64,
    /// Bytes of workspace the algorithm may take.
    pub workspace: u64,
    /// What is done to D before it is stored.
    pub epilogue: MatmulEpilogue,
    /// What a product of 8-bit numbers has beside.
    pub bytes: Option<BytesSpec>,
}

/// What is done to a product before it is stored: a bias, one element for each row of D and the same for all of a
/// batch, then an activation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MatmulEpilogue {
    /// Whether a bias is added.
    pub bias: bool,
    /// What is done then.
    pub activation: Option<MatmulActivation>,
}

/// The activations the library has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MatmulActivation {
    /// max(x, 0).
    Relu,
    /// GELU in its tanh form.
    GeluTanh,
}

impl MatmulEpilogue {
    /// The number of `cublasLtEpilogue_t`.
    pub(crate) fn code(self) -> i32 {
        let activation = match self.activation {
            None => 0,
            Some(MatmulActivation::Relu) => 2,
            Some(MatmulActivation::GeluTanh) => 32,
        };
        match activation | if self.bias { 4 } else { 0 } {
            0 => 1,
            code => code,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn epilogues_have_the_numbers_of_the_header() {
        // DEFAULT, RELU, GELU, BIAS, RELU_BIAS, GELU_BIAS of cublasLt.h.
        let codes = [false, true].map(|bias| {
            [None, Some(MatmulActivation::Relu), Some(MatmulActivation::GeluTanh)]
                .map(|activation| MatmulEpilogue { bias, activation }.code())
        });
        assert_eq!(codes, [[1, 2, 32], [4, 6, 36]]);
    }
}
