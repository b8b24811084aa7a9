//! The fleet against a real PostgreSQL.

mod kernels;
mod load;
mod outages;
mod rights;
mod server;
mod sharing;
#[path = "../../../warplap-store/tests/support/mod.rs"]
mod store_support;
mod turns;
mod writers;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Lets one test at a time have the machine: those with many processes or writers.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}
