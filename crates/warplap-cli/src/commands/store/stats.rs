//! `warplap store stats`: counts, from file names and sizes alone.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::json;
use warplap::core::store::{Store, care};

use crate::console::{Console, DIM, paint};
use crate::failure::{Exit, Failure};
use crate::table::Table;
use crate::units;

pub(crate) fn run(store: &Store, console: &Console) -> Result<Exit, Failure> {
    let stats = care::stats(store);
    if console.json {
        let by_op: Vec<_> = (stats.by_op.iter())
            .map(|((device, op), (records, bytes))| json!({"device": device, "op": op, "records": records, "bytes": bytes}))
            .collect();
        let newest = stats.newest.and_then(|t| t.duration_since(UNIX_EPOCH).ok()).map(|d| d.as_secs());
        console.line(&json!({
            "place": store.place(),
            "id": store.id(),
            "records": stats.records,
            "bytes": stats.bytes,
            "by_op": by_op,
            "misses": stats.misses,
            "set_aside": stats.set_aside,
            "newest": newest,
        }))?;
        return Ok(Exit::Ok);
    }
    let mut table = Table::new(&["device", "op", ">records", ">size"]);
    for ((device, op), (records, bytes)) in &stats.by_op {
        let records = units::count(*records as u64);
        table.row([device.as_str().into(), op.as_str().into(), records.into(), units::bytes(*bytes).into()]);
    }
    if !table.is_empty() {
        console.say(table.render(console.width()))?;
    }
    let newest = stats.newest.and_then(|t| SystemTime::now().duration_since(t).ok());
    let newest = newest.map(|age| format!(", the last one {}", units::ago(age))).unwrap_or_default();
    console.say(paint(
        DIM,
        format!(
            "{}: {}, {}{newest}; {} missed, {} set aside",
            store.place(),
            units::some(stats.records, "record", "records"),
            units::bytes(stats.bytes),
            units::count(stats.misses as u64),
            stats.set_aside,
        ),
    ))?;
    Ok(Exit::Ok)
}
