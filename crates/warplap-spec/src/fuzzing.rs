//! What the package `warplap-fuzz` hands bytes to and nobody else can reach. No part of what this crate promises.

use std::time::Duration;

use crate::c::reply::{BYTES, Reply};
use crate::npy;

/// A NumPy file that was read, written again; or why it was refused.
pub fn npy(bytes: &[u8]) -> Result<Vec<u8>, String> {
    npy::parse(bytes).map(|(shape, array)| npy::to_bytes(&shape, &array))
}

/// Whether a cell's reply is believed, to an order of so many calls that took this long: nanoseconds and stale calls.
pub fn reply(bytes: &[u8], calls: u64, passed: Duration) -> Result<(u64, u64), String> {
    let bytes: &[u8; BYTES] = bytes.try_into().map_err(|_| "it has another length".to_string())?;
    let read = Reply::read(bytes, 1, calls, passed).map_err(|e| e.to_string());
    read.map(|reply| (reply.nanoseconds, reply.stale))
}
