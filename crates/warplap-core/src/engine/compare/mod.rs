//! Comparisons outside of a contest: one candidate alone, a bucket beside the exact shape, finalists as programs call
//! them.

pub mod bench;
pub(crate) mod end_to_end;
pub mod regret;
