//! How graphs are made: a builder, its nodes and their sizes.

pub(crate) mod attention_nodes;
pub(crate) mod builder;
pub(crate) mod node;
pub(crate) mod nodes;
