//! Burn's tensors: types, strides, copies, and the slots of an operation that they fill.

pub(crate) mod adapter;
pub(crate) mod copies;
pub(crate) mod dtype;
pub(crate) mod tensor_layout;
pub(crate) mod tensor_list;
pub(crate) mod tensors;
