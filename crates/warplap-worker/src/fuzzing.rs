//! What the package `warplap-fuzz` hands bytes to and nobody else can reach: the protocol's two directions. No part of
//! what this crate promises.

use std::io;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::protocol::{Order, Report, read, write};

/// A message to a worker that was read, written again; or why it was refused.
pub fn order(bytes: &[u8]) -> io::Result<Vec<u8>> {
    again::<Order>(bytes)
}

/// A message from a worker that was read, written again; or why it was refused.
pub fn report(bytes: &[u8]) -> io::Result<Vec<u8>> {
    again::<Report>(bytes)
}

fn again<T: Serialize + DeserializeOwned>(mut bytes: &[u8]) -> io::Result<Vec<u8>> {
    let (message, image): (T, _) = read(&mut bytes)?;
    let mut written = Vec::new();
    write(&mut written, &message, &image)?;
    Ok(written)
}
