//! The fleet against a real PostgreSQL.

mod outages;
mod rights;
mod server;
mod sharing;
#[path = "../../../warplap-core/tests/store_support/mod.rs"]
mod store_support;
mod turns;
mod writers;
