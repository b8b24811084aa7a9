//! Kernel Tuner's cachefiles: `tune_params`, and under `cache` one object per config with its objective.

use serde_json::{Map, Value as Json};

use super::{Recorded, RecordedError, Row};
use warplap_core::space::{Axis, Value};

/// What older cachefiles say instead of a failure.
const OLD_FAILURE: f64 = 1e20;

/// A config by name, and its time or failure.
pub(super) type Entry<'j> = (&'j Map<String, Json>, Result<f64, String>);

/// Reads a cachefile.
pub(super) fn read(json: &Json) -> Result<Recorded, RecordedError> {
    let form = |what: &str| RecordedError::Form(format!("the cachefile's {what}"));
    let keys = json["tune_params_keys"].as_array().ok_or_else(|| form("'tune_params_keys' is no list"))?;
    let names: Vec<&str> = keys.iter().filter_map(Json::as_str).collect();
    let objective = json["objective"].as_str().unwrap_or("time");
    let cache = json["cache"].as_object().ok_or_else(|| form("'cache' is no object"))?;
    let entries = cache.values().filter_map(Json::as_object);
    let configs: Vec<Entry<'_>> = entries.map(|entry| (entry, time(entry.get(objective)))).collect();
    let mut recorded = recorded(&names, &configs)?;
    recorded.kernel = json["kernel_name"].as_str().unwrap_or_default().into();
    recorded.device = json["device_name"].as_str().unwrap_or_default().into();
    Ok(recorded)
}

/// A time as files have it: a number, a list of numbers, or the name of a failure.
pub(super) fn time(value: Option<&Json>) -> Result<f64, String> {
    match value {
        Some(Json::String(word)) => Err(word.clone()),
        Some(Json::Array(all)) => {
            let times: Vec<f64> = all.iter().filter_map(Json::as_f64).collect();
            let mean = times.iter().sum::<f64>() / times.len() as f64;
            if mean.is_finite() { Ok(mean) } else { Err("no time".into()) }
        }
        other => match other.and_then(Json::as_f64) {
            Some(t) if t < OLD_FAILURE => Ok(t),
            _ => Err("no time".into()),
        },
    }
}

/// A recorded space of configs by name. The values of an axis are those that occur.
pub(super) fn recorded(names: &[&str], configs: &[Entry<'_>]) -> Result<Recorded, RecordedError> {
    let value = |config: &Map<String, Json>, name: &str| -> Option<Value> {
        let json = config.get(name)?;
        serde_json::from_value(json.clone()).ok().or_else(|| Some(Value::Text(json.to_string())))
    };
    let whole: Vec<_> = configs.iter().filter(|(c, _)| names.iter().all(|n| c.contains_key(*n))).collect();
    let axis = |name: &&str| Axis::values_of(name, whole.iter().filter_map(|(c, _)| value(c, name)));
    let axes: Vec<Axis> = names.iter().map(axis).collect();
    if let Some(axis) = axes.iter().find(|a| a.values().len() > usize::from(u16::MAX)) {
        return Err(warplap_core::space::SpaceError::TooManyValues(axis.name().into()).into());
    }
    let mut rows = Vec::new();
    for (config, time_ms) in whole {
        let point = axes.iter().map(|a| a.number(&value(config, a.name())?)).collect::<Option<Vec<u16>>>();
        rows.extend(point.map(|point| Row { point, time_ms: time_ms.clone() }));
    }
    Recorded::new(axes, rows)
}
