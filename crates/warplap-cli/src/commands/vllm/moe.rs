//! Tables of fused mixture-of-experts kernels as vLLM reads them: records of a Triton kernel come in, one file goes
//! out; or a file comes in and is checked.
//!
//! vLLM looks for `E=…,N=…,device_name=….json` in the folder that `VLLM_TUNED_CONFIG_FOLDER` names and takes the row
//! whose number of tokens is nearest, however far away it is.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Map, Value, json};
use warplap::core::record::Record;
use warplap::core::space::{Config, Value as Setting};
use warplap::core::store::{Checked, Store};
use warplap::core::user_files;

use crate::failure::Failure;

/// Types that stand in a file's name; one without a type is for 16-bit floats.
const DTYPES: [&str; 5] = ["fp8_w8a8", "fp8_w8a16", "int8_w8a16", "int4_w4a16", "float32"];
/// What every row sets, and what it may set.
const BLOCKS: [&str; 3] = ["BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K"];
const OTHERS: [&str; 7] =
    ["GROUP_SIZE_M", "num_warps", "num_stages", "SPLIT_K", "waves_per_eu", "matrix_instr_nonkdim", "kpack"];
/// What tables of others set besides.
const FOREIGN: [&str; 2] = ["num_ctas", "grf_mode"];
/// Tokens of a prefill: a table that ends before answers for them with a row for decoding.
const PREFILL: u64 = 1024;

/// The most a table's file may hold, in bytes.
const MOST: u64 = 16 << 20;

/// What a table is for: the fields of its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MoeTable {
    experts: u64,
    intermediate: u64,
    device: Option<String>,
    dtype: Option<String>,
    block: Option<[u64; 2]>,
    /// Whose kernel it is for, where not Triton's.
    backend: Option<String>,
    /// The field of a problem that counts tokens.
    tokens: String,
}

fn bad(what: &str, result: &str, expected: &str) -> Failure {
    Failure::input(format!("--vllm-moe: {what} is '{result}', expected {expected}"))
}

impl MoeTable {
    /// Reads `E=8,N=14336[,dtype=fp8_w8a8][,block_shape=128x128][,device=NAME][,m=FIELD]`.
    pub(crate) fn read(text: &str) -> Result<MoeTable, Failure> {
        let (mut experts, mut intermediate) = (None, None);
        let (mut device, mut dtype, mut block, mut tokens) = (None, None, None, "M".to_string());
        for field in text.split(',').map(str::trim).filter(|f| !f.is_empty()) {
            let Some((name, value)) = field.split_once('=') else {
                return Err(bad("a field", field, "NAME=VALUE"));
            };
            let size =
                || value.parse::<u64>().ok().filter(|v| *v > 0).ok_or_else(|| bad(name, value, "a whole number"));
            match name {
                "E" => experts = Some(size()?),
                "N" => intermediate = Some(size()?),
                "m" => tokens = value.to_string(),
                "device" => device = Some(device_name(value)),
                "dtype" if DTYPES.contains(&value) => dtype = Some(value.to_string()),
                "dtype" => return Err(bad(name, value, &format!("one of {}, or none", DTYPES.join(", ")))),
                "block_shape" => block = Some(shape(value).ok_or_else(|| bad(name, value, "NxK, as 128x128"))?),
                _ => return Err(bad("a field", name, "one of E, N, dtype, block_shape, device, m")),
            }
        }
        let missing = |name: &str, what: &str| bad(name, "", what);
        Ok(MoeTable {
            experts: experts.ok_or_else(|| missing("E", "the number of experts"))?,
            intermediate: intermediate.ok_or_else(|| missing("N", "the intermediate size of one shard"))?,
            device,
            dtype,
            block,
            backend: None,
            tokens,
        })
    }

    /// The table a file's name says it is.
    pub(crate) fn of_name(name: &str) -> Result<MoeTable, Failure> {
        let wrong = || bad("the file's name", name, "E=…,N=…,device_name=…[,dtype=…][,block_shape=[n,k]].json");
        let mut rest = name.strip_suffix(".json").ok_or_else(wrong)?.to_string();
        let mut block = None;
        if let Some((before, result)) = rest.clone().split_once(",block_shape=[") {
            let inner = result.strip_suffix(']').ok_or_else(wrong)?;
            block = Some(shape(&inner.replace(',', "x").replace(' ', "")).ok_or_else(wrong)?);
            rest = before.to_string();
        }
        let mut fields = BTreeMap::new();
        for field in rest.split(',') {
            let (name, value) = field.split_once('=').ok_or_else(wrong)?;
            fields.insert(name, value);
        }
        let mut text = String::new();
        for (name, wanted) in [("E", "E"), ("N", "N"), ("device_name", "device")] {
            let value = fields.remove(name).ok_or_else(wrong)?;
            text.push_str(&format!("{wanted}={value},"));
        }
        let [dtype, backend] = ["dtype", "backend"].map(|name| fields.remove(name).map(str::to_string));
        if !fields.is_empty() {
            return Err(wrong());
        }
        Ok(MoeTable { block, dtype, backend, ..MoeTable::read(&text)? })
    }

    /// The name vLLM looks for.
    pub(crate) fn file_name(&self, device: &str) -> String {
        let dtype = self.dtype.as_ref().map(|d| format!(",dtype={d}")).unwrap_or_default();
        let block = self.block.map(|[n, k]| format!(",block_shape=[{n},{k}]")).unwrap_or_default();
        let backend = self.backend.as_ref().map(|b| format!(",backend={b}")).unwrap_or_default();
        format!("E={},N={},device_name={device}{dtype}{backend}{block}.json", self.experts, self.intermediate)
    }

    /// Collects the winners of a kernel's records, and whose they are: the file's name and its text.
    pub(crate) fn collect(&self, op: &str, store: &Store) -> Result<(String, String), Failure> {
        let mut result: BTreeMap<String, BTreeMap<u64, Map<String, Value>>> = BTreeMap::new();
        for entry in store.entries().into_iter().filter(|e| e.op == op) {
            let Checked::Whole(record) = store.check(&entry) else { continue };
            let (Some(tokens), Some(edition)) = (self.tokens_of(&record), record.editions.last()) else { continue };
            let device = device_name(record.device.get("model").map_or(&*entry.device_slug, |m| m));
            result.entry(device).or_default().insert(tokens, row(&edition.verdict.winner.config));
        }
        let devices = result.keys().cloned().collect::<Vec<_>>().join(", ");
        let (device, rows) = match &self.device {
            Some(wanted) => result.remove_entry(wanted),
            None if result.len() > 1 => return Err(bad("device", "", &format!("one of {devices}"))),
            None => result.pop_first(),
        }
        .ok_or_else(|| {
            let known = if devices.is_empty() { "none" } else { &devices };
            let expected = format!("records of it with a field {} (there are some of: {known})", self.tokens);
            Failure::input(format!("{op}: nothing is kept for this table, expected {expected}"))
        })?;
        let body: Map<String, Value> = rows.into_iter().map(|(m, row)| (m.to_string(), json!(row))).collect();
        self.check(&body)?;
        Ok((self.file_name(&device), ordered(&body)))
    }

    /// The number of tokens a record is for, if its problem has the field.
    fn tokens_of(&self, record: &Record) -> Option<u64> {
        let fields = record.problem.split_once(':')?.1;
        fields.split(',').find_map(|f| f.trim().strip_prefix(self.tokens.as_str())?.strip_prefix('=')?.parse().ok())
    }

    /// Checks what a file holds, row by row; how many rows there are and what a user should know of it.
    pub(crate) fn check(&self, body: &Map<String, Value>) -> Result<(usize, Vec<String>), Failure> {
        let mut most = 0;
        let mut rows = 0;
        for (tokens, row) in body {
            if tokens == "triton_version" {
                continue;
            }
            let number = tokens.parse::<u64>().ok().filter(|n| *n > 0 && n.to_string() == *tokens);
            most = most.max(number.ok_or_else(|| bad("a row", tokens, "a number of tokens"))?);
            let row = row.as_object().ok_or_else(|| bad(&format!("row {tokens}"), "no object", "named settings"))?;
            // Another kernel's settings are for others to know.
            if self.backend.is_none() {
                self.check_row(tokens, row)?;
            }
            rows += 1;
        }
        if rows == 0 {
            return Err(bad("the table", "empty", "one row or more"));
        }
        let mut warnings = Vec::new();
        if let Some(dtype) = self.dtype.as_deref().filter(|dtype| !DTYPES.contains(dtype)) {
            warnings.push(format!("vLLM looks for no table of type {dtype}: nobody reads this one"));
        }
        if most < PREFILL {
            let large = format!("the largest row is {most} tokens: vLLM takes it for prefills too");
            warnings.push(format!("{large}; add rows from {PREFILL} up"));
        }
        Ok((rows, warnings))
    }

    fn check_row(&self, tokens: &str, row: &Map<String, Value>) -> Result<(), Failure> {
        let wrong = |name: &str, result: &str, expected: &str| bad(&format!("row {tokens}: {name}"), result, expected);
        let known = |name: &&String| [&BLOCKS[..], &OTHERS, &FOREIGN].concat().contains(&name.as_str());
        if let Some(other) = row.keys().find(|name| !known(name)) {
            return Err(wrong("a setting", other, &format!("one of {}, {}", BLOCKS.join(", "), OTHERS.join(", "))));
        }
        for name in BLOCKS.into_iter().chain(["GROUP_SIZE_M"]) {
            let value = row.get(name).map_or("missing".to_string(), ToString::to_string);
            let number = row.get(name).and_then(Value::as_u64).filter(|v| *v > 0);
            let number = number.ok_or_else(|| wrong(name, &value, "a whole number"))?;
            // Few tokens of 8-bit numbers change places with the weights, and then eight are enough.
            let least = if name == "BLOCK_SIZE_M" { 8 } else { 16 };
            if BLOCKS.contains(&name) && (!number.is_power_of_two() || number < least) {
                return Err(wrong(name, &value, &format!("a power of two from {least}")));
            }
            // vLLM takes the smaller of the two.
            if let ("BLOCK_SIZE_K", Some([_, k])) = (name, self.block)
                && k % number.min(k) != 0
            {
                return Err(wrong(name, &value, &format!("a divisor of the quantised block's {k}, or more")));
            }
        }
        for (name, expected) in [("num_warps", "a power of two up to 32"), ("num_stages", "a whole number")] {
            let Some(value) = row.get(name) else { continue };
            let right = |v: &u64| *v > 0 && (name != "num_warps" || (v.is_power_of_two() && *v <= 32));
            value.as_u64().filter(right).ok_or_else(|| wrong(name, &value.to_string(), expected))?;
        }
        Ok(())
    }
}

fn shape(text: &str) -> Option<[u64; 2]> {
    let (n, k) = text.split_once('x')?;
    let size = |t: &str| t.parse::<u64>().ok().filter(|v| *v > 0);
    Some([size(n)?, size(k)?])
}

/// A device's name as vLLM writes it: runs of spaces and slashes are one underscore, and every H200 is one device.
fn device_name(name: &str) -> String {
    let words: Vec<&str> = name.split(|c: char| c.is_whitespace() || c == '/').filter(|w| !w.is_empty()).collect();
    if words.iter().flat_map(|w| w.split('_')).any(|w| w == "H200") {
        return "NVIDIA_H200".into();
    }
    words.join("_")
}

fn row(config: &Config) -> Map<String, Value> {
    let known = |name: &&String| BLOCKS.contains(&name.as_str()) || OTHERS.contains(&name.as_str());
    let value = |v: &Setting| match v {
        Setting::Int(v) => json!(v),
        other => json!(other.to_string()),
    };
    config.0.iter().filter(|(name, _)| known(name)).map(|(name, v)| (name.clone(), value(v))).collect()
}

/// The text of a table: rows by the number of tokens.
fn ordered(body: &Map<String, Value>) -> String {
    let mut rows: Vec<(u64, &Value)> = body.iter().filter_map(|(m, row)| Some((m.parse().ok()?, row))).collect();
    rows.sort_by_key(|(m, _)| *m);
    let rows: Vec<String> = rows.iter().map(|(m, row)| format!("    \"{m}\": {row}")).collect();
    format!("{{\n{}\n}}\n", rows.join(",\n"))
}

/// Checks a file; one sentence about it.
pub(crate) fn check_file(path: &Path) -> Result<String, Failure> {
    let name = path.file_name().and_then(|n| n.to_str()).unwrap_or_default();
    let named = |why: &dyn std::fmt::Display| Failure::input(format!("{}: {why}", path.display()));
    let text = user_files::text(path, MOST).map_err(|e| named(&e))?;
    check_text(name, &text, named)
}

/// Checks a table by its file's name and its text; one sentence about it.
pub(crate) fn check_text(
    name: &str,
    text: &str,
    named: impl Fn(&dyn std::fmt::Display) -> Failure,
) -> Result<String, Failure> {
    let table = MoeTable::of_name(name)?;
    let body: Map<String, Value> = serde_json::from_str(text).map_err(|e| named(&format!("{e}: expected JSON")))?;
    let (rows, warnings) = table.check(&body)?;
    Ok([format!("{name}: {rows} rows")].into_iter().chain(warnings).collect::<Vec<_>>().join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use warplap::core::fingerprint::Fingerprint;
    use warplap::core::key::Key;
    use warplap::core::record::TuningRun;
    use warplap::core::store::Store;

    fn edition(block: i64) -> TuningRun {
        let config = json!({"BLOCK_SIZE_M": block, "BLOCK_SIZE_N": 128, "BLOCK_SIZE_K": 64, "GROUP_SIZE_M": 1,
                            "num_warps": 4, "num_stages": 5, "num_ctas": 1});
        let winner = json!({"variant": "fused_moe_kernel", "config": config, "source": "00"});
        let mut won = winner.clone();
        won["measured"] = json!({"median_us": 1.0, "ci_us": [1.0, 1.0], "sigma": 0.0, "rounds": 1, "batch": 1,
                                 "samples_us": [1.0]});
        serde_json::from_value(json!({
            "soft": {}, "origin": "here", "tuned_at": 1, "program": "0", "trials": [won], "skipped": [],
            "work": {"flops": 0.0, "bytes": 0.0}, "floor_us": null, "seconds": 1.0,
            "verdict": {"winner": winner, "median_us": 1.0, "ci_us": [1.0, 1.0], "runner_up": null, "margin": null,
                        "ties": [], "confidence": 0.95, "eps": 0.02, "grade": "clean", "rounds": 1, "launches": 1},
        }))
        .expect("an edition")
    }

    fn store() -> Store {
        let store = Store::memory();
        let hard = [("kind", "cuda"), ("model", "NVIDIA H200")].map(|(k, v)| (k.to_string(), v.to_string()));
        let device = Fingerprint { hard: hard.into(), soft: Default::default(), libraries: Default::default() };
        for (tokens, block) in [(2048, 128), (16, 16), (1, 16)] {
            let text = format!("triton_fused_moe_kernel:M={tokens},torch.float16");
            store.put(&Key::new("triton_fused_moe_kernel", text.clone()), &device, edition(block), &text).unwrap();
        }
        store
    }

    #[test]
    fn winners_become_a_file_of_the_name_and_form_that_vllm_looks_for() {
        let table = MoeTable::read("E=8,N=14336,dtype=fp8_w8a8,block_shape=128x128").unwrap();
        let (name, text) = table.collect("triton_fused_moe_kernel", &store()).unwrap();
        assert_eq!(name, "E=8,N=14336,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128,128].json");
        assert_eq!(MoeTable::of_name(&name).unwrap(), MoeTable { device: Some("NVIDIA_H200".into()), ..table });
        let body: Map<String, Value> = serde_json::from_str(&text).unwrap();
        assert_eq!(body.len(), 3);
        let row = json!({"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 128, "BLOCK_SIZE_K": 64, "GROUP_SIZE_M": 1,
                         "num_warps": 4, "num_stages": 5});
        assert_eq!(body["16"], row);
        assert!(text.find("\"1\"").unwrap() < text.find("\"16\"").unwrap());
        assert!(text.find("\"16\"").unwrap() < text.find("\"2048\"").unwrap());
    }

    #[test]
    fn names_of_devices_are_written_as_vllm_writes_them() {
        for (name, written) in [
            ("NVIDIA H100 80GB HBM3", "NVIDIA_H100_80GB_HBM3"),
            ("NVIDIA H200 NVL", "NVIDIA_H200"),
            ("NVIDIA RTX 6000 / Ada", "NVIDIA_RTX_6000_Ada"),
        ] {
            assert_eq!(device_name(name), written);
        }
    }

    #[test]
    fn wrong_tables_are_refused_with_the_row_and_the_remedy() {
        let table = MoeTable::read("E=8,N=64,block_shape=128x128").unwrap();
        let row = |name: &str, value: Value| {
            let mut row = json!({"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 32, "BLOCK_SIZE_K": 64, "GROUP_SIZE_M": 1});
            row[name] = value;
            json!({"triton_version": "3.6.0", "8": row}).as_object().cloned().unwrap()
        };
        let (rows, warnings) = table.check(&row("num_warps", json!(4))).unwrap();
        assert!(rows == 1 && warnings.len() == 1 && warnings[0].contains("prefill"));
        // As shipped tables have them.
        for (name, value) in [("BLOCK_SIZE_K", json!(256)), ("BLOCK_SIZE_M", json!(8)), ("num_ctas", json!(1))] {
            assert!(table.check(&row(name, value)).is_ok(), "{name}");
        }
        let dead = MoeTable::of_name("E=8,N=64,device_name=X,dtype=bf16,backend=flydsl.json").unwrap();
        let said = dead.check(&row("tile_m", json!(1))).unwrap().1;
        assert!(said[0].contains("type bf16") && dead.file_name("X").contains(",backend=flydsl"), "{said:?}");
        for (body, part) in [
            (row("BLOCK_SIZE_M", json!(24)), "row 8: BLOCK_SIZE_M is '24', expected a power of two"),
            (row("BLOCK_SIZE_N", json!(8)), "a power of two from 16"),
            (row("GROUP_SIZE_M", json!("1")), "GROUP_SIZE_M"),
            (row("num_warps", json!(3)), "num_warps"),
            (row("num_stages", json!(0)), "num_stages"),
            (row("BLOCK", json!(16)), "a setting is 'BLOCK'"),
            (json!({"08": {}}).as_object().cloned().unwrap(), "a row is '08'"),
            (Map::new(), "one row or more"),
        ] {
            let error = table.check(&body).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
        let odd = MoeTable::read("E=8,N=64,block_shape=128x96").unwrap();
        let error = odd.check(&row("BLOCK_SIZE_K", json!(64))).unwrap_err().to_string();
        assert!(error.contains("a divisor of the quantised block's 96"), "{error}");
        for (fields, part) in [
            ("N=64", "E is ''"),
            ("E=8", "N is ''"),
            ("E=8,N=0", "N is '0'"),
            ("E=8,N=64,dtype=fp4", "fp8_w8a8"),
            ("E=8,N=64,block_shape=128", "128x128"),
            ("E=8,N=64,colour=red", "colour"),
        ] {
            assert!(MoeTable::read(fields).unwrap_err().to_string().contains(part), "{fields}");
        }
        let other = MoeTable::read("E=8,N=64,device=NVIDIA A100").unwrap();
        let error = other.collect("triton_fused_moe_kernel", &store()).unwrap_err().to_string();
        assert!(error.contains("NVIDIA_H200"), "{error}");
        for name in ["table.json", "E=8,N=64.json", "E=8,N=64,device_name=X,colour=red.json", "E=8,N=64,device_name=X"]
        {
            assert!(MoeTable::of_name(name).is_err(), "{name}");
        }
    }
}
