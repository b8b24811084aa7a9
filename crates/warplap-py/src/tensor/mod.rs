//! Tensors of any library: seen without a copy, made, and handed to kernels.

pub(crate) mod argument;
pub(crate) mod block_structure;
pub(crate) mod call_cache;
pub(crate) mod capsule;
pub(crate) mod dlpack;
pub(crate) mod kernel_argument;
pub(crate) mod new_tensor;
pub(crate) mod view;
