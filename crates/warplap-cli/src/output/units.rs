//! Numbers for people: times, rates, sizes, ages. Three digits that matter, and the unit.

use std::time::Duration;

/// Three digits that matter.
pub(crate) fn three(value: f64) -> String {
    let digits = match value.abs() {
        v if v >= 99.95 => 0,
        v if v >= 9.995 => 1,
        _ => 2,
    };
    format!("{value:.digits$}")
}

/// A time given in microseconds.
pub(crate) fn time(us: f64) -> String {
    match us {
        v if !v.is_finite() => "—".into(),
        v if v < 0.9995 => format!("{} ns", three(v * 1e3)),
        v if v < 999.5 => format!("{} µs", three(v)),
        v if v < 999.5e3 => format!("{} ms", three(v / 1e3)),
        v => format!("{} s", three(v / 1e6)),
    }
}

/// Half the width of an interval, in percent of the median.
pub(crate) fn plus_minus(median: f64, [low, high]: [f64; 2]) -> String {
    let half = 50.0 * (high - low) / median;
    if half.is_finite() { format!("±{half:.1} %") } else { "—".into() }
}

/// A rate in FLOP/s.
pub(crate) fn rate(flops: f64) -> String {
    match flops {
        v if !v.is_finite() => "—".into(),
        v if v >= 1e12 => format!("{} TFLOP/s", three(v / 1e12)),
        v if v >= 1e9 => format!("{} GFLOP/s", three(v / 1e9)),
        v => format!("{} MFLOP/s", three(v / 1e6)),
    }
}

/// How many times faster; a dash where it is not known.
pub(crate) fn times(ratio: Option<f64>) -> String {
    ratio.filter(|r| r.is_finite()).map_or("—".into(), |r| format!("{}×", three(r)))
}

/// How many times faster, with its interval; a dash where no rounds tell.
pub(crate) fn times_between(ratio: Option<(f64, [f64; 2])>) -> String {
    match ratio {
        Some((ratio, [low, high])) if low < high => {
            format!("{} [{} … {}]", times(Some(ratio)), three(low), three(high))
        }
        ratio => times(ratio.map(|(ratio, _)| ratio)),
    }
}

/// A share in percent; a dash where it is not known.
pub(crate) fn percent(share: Option<f64>) -> String {
    share.filter(|s| s.is_finite()).map_or("—".into(), |s| format!("{:.0} %", 100.0 * s))
}

/// How sure something is, in words.
pub(crate) fn sure(confidence: f64) -> String {
    format!("{:.0} % sure to be", (100.0 * confidence + 1e-6).floor())
}

/// A size in bytes.
pub(crate) fn bytes(count: u64) -> String {
    let mut value = count as f64;
    for unit in ["B", "KiB", "MiB", "GiB"] {
        if value < 1024.0 {
            return if unit == "B" { format!("{count} B") } else { format!("{} {unit}", three(value)) };
        }
        value /= 1024.0;
    }
    format!("{} TiB", three(value))
}

/// A whole number in groups of three digits.
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// One thing, several things.
pub(crate) fn some(number: usize, one: &str, many: &str) -> String {
    format!("{} {}", count(number as u64), if number == 1 { one } else { many })
}

/// How long ago.
pub(crate) fn ago(age: Duration) -> String {
    let seconds = age.as_secs();
    let (number, unit) = match seconds {
        0..=59 => return "just now".into(),
        60..=3599 => (seconds / 60, "minute"),
        3600..=86_399 => (seconds / 3600, "hour"),
        _ => (seconds / 86_400, "day"),
    };
    format!("{number} {unit}{} ago", if number == 1 { "" } else { "s" })
}

/// A problem text shortened for a column: sizes without `=`, flags by name where they are set, types by value.
pub(crate) fn short(problem: &str) -> String {
    let fields = problem.split_once(':').map_or(problem, |(_, fields)| fields);
    let words = fields.split(',').filter_map(|field| match field.split_once('=') {
        Some((_, "false")) => None,
        Some((name, "true")) => Some(name.to_string()),
        Some(("dtype", value)) => Some(value.to_string()),
        Some((name, value)) if value.parse::<u64>().is_ok() => Some(format!("{name}{value}")),
        _ => Some(field.to_string()),
    });
    words.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_three_digits_and_the_unit_that_suits() {
        let all = [(0.0421, "42.1 ns"), (1.0, "1.00 µs"), (999.4, "999 µs"), (999.6, "1.00 ms"), (2.5e6, "2.50 s")];
        for (us, text) in all {
            assert_eq!(time(us), text);
        }
        assert_eq!(time(f64::NAN), "—");
    }

    #[test]
    fn numbers_are_grouped_and_sizes_have_units() {
        assert_eq!((count(0), count(1234), count(100_000)), ("0".into(), "1,234".into(), "100,000".into()));
        assert_eq!((bytes(12), bytes(2048), bytes(3 << 30)), ("12 B".into(), "2.00 KiB".into(), "3.00 GiB".into()));
        assert_eq!(some(1, "record", "records"), "1 record");
        assert_eq!(ago(Duration::from_secs(7200)), "2 hours ago");
    }

    #[test]
    fn a_short_problem_keeps_every_fact() {
        assert_eq!(short("gemm:m=64,n=8,k=16,dtype=bf16,a=col"), "m64 n8 k16 bf16 a=col");
        assert_eq!(short("attention:b=1,sq=512,dtype=f32,causal=true"), "b1 sq512 f32 causal");
        assert_eq!(short("attention:b=1,causal=false"), "b1");
    }
}
