//! What the machine says of itself: model, caches, memory.

use std::fs;

/// The chip behind the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chip {
    /// Its model, in the words of the operating system.
    pub model: String,
    /// Data cache sizes in bytes, nearest to the core first.
    pub caches: Vec<u64>,
    /// Bytes of main memory.
    pub memory: u64,
}

impl Chip {
    /// Reads what the operating system tells. What it does not tell gets a cautious guess.
    pub fn read() -> Self {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        Chip { model: model(&cpuinfo), caches: caches(), memory: memory(&meminfo) }
    }
}

/// Model name, with family, model and stepping where there are: clouds call different chips by one name.
fn model(cpuinfo: &str) -> String {
    let field = |name: &str| {
        cpuinfo
            .lines()
            .filter_map(|l| l.split_once(':'))
            .find(|(k, _)| k.trim() == name)
            .map(|(_, v)| v.trim().to_string())
    };
    let name = field("model name").or_else(|| field("Model")).unwrap_or_else(|| std::env::consts::ARCH.to_string());
    let numbers: Vec<String> = ["cpu family", "model", "stepping"].iter().filter_map(|n| field(n)).collect();
    if numbers.is_empty() { name } else { format!("{name} {}", numbers.join(".")) }
}

fn caches() -> Vec<u64> {
    let mut result: Vec<(u32, u64)> = Vec::new();
    for index in 0..8 {
        let read = |file: &str| {
            fs::read_to_string(format!("/sys/devices/system/cpu/cpu0/cache/index{index}/{file}"))
                .map(|t| t.trim().to_string())
        };
        let (Ok(level), Ok(kind), Ok(size)) = (read("level"), read("type"), read("size")) else {
            continue;
        };
        if let (true, Ok(level), Some(bytes)) = (kind != "Instruction", level.parse(), bytes(&size)) {
            result.push((level, bytes));
        }
    }
    result.sort_unstable();
    if result.is_empty() {
        return vec![32 << 10, 1 << 20, 8 << 20];
    }
    result.into_iter().map(|(_, bytes)| bytes).collect()
}

/// Reads `48K`, `2M`.
fn bytes(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let unit = match text[digits.len()..].trim() {
        "" => 1,
        "K" => 1 << 10,
        "M" => 1 << 20,
        "G" => 1 << 30,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(unit)
}

fn memory(meminfo: &str) -> u64 {
    meminfo
        .lines()
        .find_map(|l| l.strip_prefix("MemTotal:"))
        .and_then(|v| v.trim().split(' ').next()?.parse::<u64>().ok())
        .map_or(4 << 30, |kib| kib << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_with_their_unit() {
        assert_eq!(bytes("48K"), Some(49152));
        assert_eq!(bytes("300M"), Some(300 << 20));
        assert_eq!(bytes("x"), None);
    }

    #[test]
    fn a_model_carries_its_numbers() {
        let text = "model name : Chip\ncpu family : 6\nmodel : 207\nstepping : 2\n";
        assert_eq!(model(text), "Chip 6.207.2");
        assert!(!model("").is_empty());
    }
}
