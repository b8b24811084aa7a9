//! What people read of warplap's work: the page of a graph's decision, and files of spaces that other tuners recorded,
//! read and replayed.
#![forbid(unsafe_code)]

pub mod graph_page;
pub mod recorded;
