//! Races explicit kernel variants on the machine at hand, proves them right, remembers the winner, and from then on
//! dispatches to it at no noticeable cost.
//!
//! Everything is in `warplap-session`, and here by its short name. `cargo install warplap` gives the program; a library
//! that wants none of what the program needs says `default-features = false` and names what it wants: `cpu` and `cuda`
//! are the variants by device kind; `gemm`, `attention`, `bsr`, `sampled`, `norm`, `qgemm`, `softmax`,
//! `cross_entropy`, `rope` and `gated` are the operations; `graph` is graphs of operations.

pub use warplap_session::*;
