//! What the CUDA variants of every operation share: the plan of a kernel, and how it is built and launched.

#[cfg(test)]
pub(crate) mod compiling;
#[cfg(test)]
mod early;
#[cfg(test)]
mod installed;
pub(crate) mod launch;
pub(crate) mod own;
pub(crate) mod plan;
pub(crate) mod right;
pub(crate) mod rows;
pub(crate) mod scratch;
