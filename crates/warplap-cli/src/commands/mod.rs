//! The commands, one file each.

pub(crate) mod bench;
mod c_header;
pub(crate) mod completions;
pub(crate) mod devices;
pub(crate) mod doctor;
pub(crate) mod explain;
pub(crate) mod export;
#[cfg(feature = "fleet")]
pub(crate) mod fleet;
pub(crate) mod record;
pub(crate) mod regret;
pub(crate) mod replay;
pub(crate) mod report;
pub(crate) mod space;
pub(crate) mod store;
pub(crate) mod tune;
mod until_clean;
pub(crate) mod variants;
pub(crate) mod vllm;
