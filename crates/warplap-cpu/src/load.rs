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

/// Ticks of `/proc/stat` in a second: the `USER_HZ` of x86 and Arm.
const TICKS: f64 = 100.0;

/// Seconds that other machines of the same host have taken from all processors of this one, as far as the host tells.
pub fn stolen() -> Option<f64> {
    taken(&fs::read_to_string("/proc/stat").ok()?)
}

fn taken(stat: &str) -> Option<f64> {
    let ticks: f64 = stat.lines().next()?.strip_prefix("cpu ")?.split_ascii_whitespace().nth(7)?.parse().ok()?;
    Some(ticks / TICKS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_host_took_is_the_eighth_number() {
        assert_eq!(taken("cpu  9338037 2313197 727352 3769730 63501 0 12321 724938 0 0\ncpu0 1 2"), Some(7249.38));
        for other in ["", "cpu  1 2 3", "cpu0 1 2 3 4 5 6 7 8", "cpu  1 2 3 4 5 6 7 many"] {
            assert_eq!(taken(other), None, "{other}");
        }
    }
}
