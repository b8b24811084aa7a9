//! Right answers of graphs, on the host and on the device.

pub(crate) mod answer;
pub(crate) mod host;
pub(crate) mod on_device;
pub(crate) mod sample;
