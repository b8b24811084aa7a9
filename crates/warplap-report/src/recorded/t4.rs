//! T4 results: a list of configurations with their measurements and whether they were correct.

use serde_json::Value as Json;

use super::kernel_tuner::{Entry, recorded, time};
use super::{Recorded, RecordedError};

/// Reads T4 results. The time is the measurement that the first objective names.
pub(super) fn read(json: &Json) -> Result<Recorded, RecordedError> {
    let form = || RecordedError::Form("T4: 'results' is no list of objects with a 'configuration'".into());
    let results = json["results"].as_array().ok_or_else(form)?;
    let mut configs: Vec<Entry<'_>> = Vec::new();
    for result in results {
        let Some(configuration) = result["configuration"].as_object() else { continue };
        let objective = result["objectives"][0].as_str().unwrap_or("time");
        let measured = result["measurements"].as_array().and_then(|all| {
            let named = all.iter().find(|m| m["name"].as_str() == Some(objective)).or(all.first());
            named.map(|m| time(m.get("value")))
        });
        let runtimes = || time(result["times"].get("runtimes"));
        let outcome = match result["invalidity"].as_str() {
            Some("correct") | None => measured.unwrap_or_else(runtimes),
            Some(word) => Err(word.to_string()),
        };
        configs.push((configuration, outcome));
    }
    let first = configs.first().ok_or_else(form)?.0;
    let names: Vec<&str> = first.keys().map(String::as_str).collect();
    recorded(&names, &configs)
}
