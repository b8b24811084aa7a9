//! Calls: a problem and tensors come in; the kernel of choice runs on them.

pub(crate) mod by_slot;
pub(crate) mod direct;
pub(crate) mod dispatcher;
pub(crate) mod end_to_end_race;
pub(crate) mod failure;
pub(crate) mod prepared;
pub(crate) mod state;
pub(crate) mod torch;
pub(crate) mod torch_dispatch_state;
pub(crate) mod torch_library;
mod turns;
