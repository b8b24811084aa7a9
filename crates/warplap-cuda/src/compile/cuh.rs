//! What kernels include: the headers by the names they are included by, and the constant that says an element's type.

use warplap_core::dtype::DType;

/// Hopper's own instructions as one-line functions: what the kernels include.
pub const HOPPER: (&str, &str) = ("hopper.cuh", include_str!("../../cuh/hopper.cuh"));

/// What every chip from sm_80 on has: asynchronous copies, ldmatrix, mma.sync.
pub const AMPERE: (&str, &str) = ("ampere.cuh", include_str!("../../cuh/ampere.cuh"));

/// What all threads of a block join, and magnitudes that blocks raise together. Includes `element.cuh`.
pub const BLOCK: (&str, &str) = ("block.cuh", include_str!("../../cuh/block.cuh"));

/// Bits that hang on a number and its place, for what is drawn and for seals. Behind `element.cuh`.
pub(crate) const MIXED: (&str, &str) = ("mixed.cuh", include_str!("../../cuh/mixed.cuh"));

/// Elements of any type as float32.
pub const ELEMENT: (&str, &str) = ("element.cuh", include_str!("../../cuh/element.cuh"));

/// Bias and activation before a product is stored.
pub const EPILOGUE: (&str, &str) = ("epilogue.cuh", include_str!("../../cuh/products/epilogue.cuh"));

/// Two products of one A on Hopper's tensor cores, behind `hopper.cuh` and `epilogue.cuh`.
pub const PAIR: (&str, &str) = ("pair.cuh", include_str!("../../cuh/products/pair.cuh"));

/// Factors of a norm in front of a product, found on the way, behind `hopper.cuh` and `epilogue.cuh`.
pub const RMS: (&str, &str) = ("rms.cuh", include_str!("../../cuh/products/rms.cuh"));

/// Alpha and beta before a block-sparse product is stored.
pub const SCALED: (&str, &str) = ("scaled.cuh", include_str!("../../cuh/products/scaled.cuh"));

/// Factors of a block-sparse product, codes of f8e4m3 among them. Includes `element.cuh` and, for those, `quant.cuh`.
pub const FACTOR: (&str, &str) = ("factor.cuh", include_str!("../../cuh/products/factor.cuh"));

/// How small blocks lie in shared memory, and lists of the block columns that a group of rows uses.
pub const SMALL_BLOCKS: (&str, &str) = ("small_blocks.cuh", include_str!("../../cuh/products/small_blocks.cuh"));

/// Activations in double precision, for right answers. Behind `element.cuh`.
pub const ACTIVATED: (&str, &str) = ("activated.cuh", include_str!("../../cuh/activated.cuh"));

/// Rows in vectors, and sums over the threads of a row. Includes `element.cuh`.
pub const ROWS: (&str, &str) = ("rows.cuh", include_str!("../../cuh/rows/rows.cuh"));

/// Largest and sum of exponentials of a row. Includes `rows.cuh`.
pub const SOFT: (&str, &str) = ("soft.cuh", include_str!("../../cuh/rows/soft.cuh"));

/// Labels, losses and gradients of cross entropy. Includes `soft.cuh`.
pub const ENTROPY: (&str, &str) = ("entropy.cuh", include_str!("../../cuh/rows/entropy.cuh"));

/// Heads that are turned by their positions. Includes `element.cuh`.
pub const ROPE: (&str, &str) = ("rope.cuh", include_str!("../../cuh/rows/rope.cuh"));

/// Dropout by an element's place and a seed. Includes `element.cuh`.
pub const PHILOX: (&str, &str) = ("philox.cuh", include_str!("../../cuh/philox.cuh"));

/// The rows of sequences that lie one behind the other. Behind `element.cuh`.
pub const PACKED: (&str, &str) = ("packed.cuh", include_str!("../../cuh/attention/packed.cuh"));

/// Masks by squares as lists of blocks. Behind `element.cuh`.
pub const SQUARES: (&str, &str) = ("squares.cuh", include_str!("../../cuh/attention/squares.cuh"));

/// What every attention kernel shares: who sees whom, the running softmax, how rows leave. Includes `element.cuh`.
pub const ATTENTION: (&str, &str) = ("attention.cuh", include_str!("../../cuh/attention/attention.cuh"));

/// Rows of any alignment into shared memory, behind `ampere.cuh`.
pub const ATTENTION_AMPERE: (&str, &str) =
    ("attention_ampere.cuh", include_str!("../../cuh/attention/attention_ampere.cuh"));

/// Copies of four dimensions and products with softmax under them, behind `hopper.cuh`.
pub const ATTENTION_HOPPER: (&str, &str) =
    ("attention_hopper.cuh", include_str!("../../cuh/attention/attention_hopper.cuh"));

/// What the kernels of attention's gradients share, behind `attention.cuh`: weights from log-sum-exps, the order of tiles.
pub const ATTENTION_GRAD: (&str, &str) = ("attention_grad.cuh", include_str!("../../cuh/attention/attention_grad.cuh"));

/// What codes of 8 bits stand for, and what their factors belong to. Includes `element.cuh`.
pub const QUANT: (&str, &str) = ("quant.cuh", include_str!("../../cuh/products/quant.cuh"));

/// Numbers as codes of 8 bits with one factor a row. Includes `element.cuh`.
pub const CODES: (&str, &str) = ("codes.cuh", include_str!("../../cuh/rows/codes.cuh"));

/// Hopper's tensor cores on bytes. Includes `hopper.cuh` and `quant.cuh`.
pub const QUANT_HOPPER: (&str, &str) = ("quant_hopper.cuh", include_str!("../../cuh/products/quant_hopper.cuh"));

/// The constant `DTYPE` that kernels are compiled with.
pub fn dtype_code(dtype: DType) -> i64 {
    match dtype {
        DType::F16 => 0,
        DType::Bf16 => 1,
        DType::F32 => 2,
        DType::F64 => 3,
        DType::I32 => 4,
        DType::I64 => 5,
        DType::I8 => 6,
        DType::U8 => 7,
        DType::Bool => 8,
        DType::F8E4m3 => 9,
        DType::F8E5m2 => 10,
    }
}
