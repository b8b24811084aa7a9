//! NVIDIA's libraries, found and opened at run time: products, block-sparse products, graphs of cuDNN.

pub(crate) mod cublaslt;
pub(crate) mod cudnn;
pub(crate) mod cusparse;
pub(crate) mod finder;
pub(crate) mod matmul_spec;
