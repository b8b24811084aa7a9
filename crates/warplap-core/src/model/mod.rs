//! The words of a request: an operation, its problem and arguments, the key that a problem is found by, and how far an
//! answer may be off.

pub mod arg;
pub mod array;
pub mod bucket;
pub mod declare;
pub mod dtype;
pub mod erased;
pub(crate) mod fields;
pub mod objective;
pub mod op;
pub mod problem;
pub mod roofline;
pub mod scalar;
pub mod slot;
pub mod tolerance;
