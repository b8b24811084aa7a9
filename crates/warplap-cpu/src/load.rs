//! Other work on this machine: how much of it runs beside us.

use std::fs;

/// Share of the machine above which a measurement is called contended.
pub const CONTENDED: f64 = 0.5;

/// Runnable threads of other processes over the threads this machine has, as far as the operating system tells.
/// Our own threads count as runnable too, so up to `own` of them are taken off.
pub fn others(own: usize) -> Option<f64> {
    let text = fs::read_to_string("/proc/loadavg").ok()?;
    let running: f64 = text.split(' ').nth(3)?.split('/').next()?.parse().ok()?;
    Some((running - own as f64).max(0.0) / own.max(1) as f64)
}
