//! What the package asks the tuner: tuning, stores, searches, graphs, logs.

pub(crate) mod graph;
pub(crate) mod legal;
pub(crate) mod logs;
pub(crate) mod program;
pub(crate) mod search;
pub(crate) mod spec;
pub(crate) mod store;
pub(crate) mod tuning;
pub(crate) mod watch;
