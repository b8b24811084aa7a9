//! The store from Python: listing, showing, exporting, importing and pruning.

use std::path::PathBuf;
use std::time::{Duration, UNIX_EPOCH};

use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use serde_json::{Value, json};
use warplap::core::store::bundle::Bundle;
use warplap::core::store::care::{self, Prune};
use warplap::core::store::{Checked, Entry};

use crate::call::failure::{bad, store as failed};
use crate::call::state::{refresh, state};

/// Where the store is, and why it is in memory alone, if it is against the user's wish.
#[pyfunction]
pub(crate) fn store_place() -> (String, Option<String>) {
    let state = state();
    (state.store.place(), state.warning.clone())
}

fn line(entry: &Entry) -> Value {
    let at = entry.modified.duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    let Entry { device_slug, op, hash, bytes, .. } = entry;
    json!({"device": device_slug, "op": op, "hash": hash, "bytes": bytes, "modified": at})
}

/// Every record with its key, winner and time, as JSON.
#[pyfunction]
pub(crate) fn store_list(py: Python<'_>) -> String {
    let store = state().store.clone();
    let rows = py.detach(|| {
        let row = |entry: Entry| {
            let mut row = line(&entry);
            match store.check(&entry) {
                Checked::Whole(record) => {
                    row["key"] = json!(record.key);
                    row["problem"] = json!(record.problem);
                    if let Some(edition) = record.editions.last() {
                        row["winner"] = json!(edition.verdict.winner.to_string());
                        row["median_us"] = json!(edition.verdict.median_us);
                        row["grade"] = json!(edition.verdict.grade);
                    }
                }
                other => row["damage"] = json!(format!("{other:?}")),
            }
            row
        };
        store.entries().into_iter().map(row).collect::<Vec<Value>>()
    });
    Value::from(rows).to_string()
}

/// The whole record of a key's hash (its first digits do), as JSON.
#[pyfunction]
pub(crate) fn store_show(py: Python<'_>, hash: &str) -> PyResult<String> {
    let store = state().store.clone();
    let answer: Vec<Entry> = py.detach(|| store.entries()).into_iter().filter(|e| e.hash.starts_with(hash)).collect();
    match &answer[..] {
        [entry] => match store.check(entry) {
            Checked::Whole(record) => serde_json::to_string(&record).map_err(failed),
            other => Err(bad(format!("record {hash}: {other:?}"))),
        },
        [] => Err(PyKeyError::new_err(format!("no record has a hash that begins with '{hash}'"))),
        many => Err(PyKeyError::new_err(format!("{} records have a hash that begins with '{hash}'", many.len()))),
    }
}

/// Writes all records, or those of one operation, to a bundle; how many.
#[pyfunction]
#[pyo3(signature = (path, op=None))]
pub(crate) fn store_export(py: Python<'_>, path: PathBuf, op: Option<String>) -> PyResult<usize> {
    let store = state().store.clone();
    py.detach(|| {
        let bundle = Bundle::of(&store, |entry| op.as_ref().is_none_or(|op| entry.op == *op));
        bundle.write(&path).map(|()| bundle.len()).map_err(failed)
    })
}

/// Merges a bundle into the store: records added, joined and known already.
#[pyfunction]
pub(crate) fn store_import(py: Python<'_>, path: PathBuf) -> PyResult<(usize, usize, usize)> {
    let store = state().store.clone();
    let imported = py.detach(|| {
        let bundle = Bundle::read(&path).map_err(|e| bad(format!("{}: {e}", path.display())))?;
        bundle.put_into(&store).map_err(failed)
    })?;
    refresh();
    Ok((imported.added, imported.joined, imported.unchanged))
}

/// Removes records; those removed (or to be removed, in a dry run), as JSON.
#[pyfunction]
#[pyo3(signature = (*, older_than=None, keep=None, stale=false, damaged=false, dry_run=false))]
pub(crate) fn store_prune(
    py: Python<'_>,
    older_than: Option<f64>,
    keep: Option<usize>,
    stale: bool,
    damaged: bool,
    dry_run: bool,
) -> PyResult<String> {
    let older_than = older_than.map(Duration::try_from_secs_f64).transpose();
    let older_than = older_than.map_err(|e| bad(format!("older_than: {e}")))?;
    let state = state();
    let stale_for = stale.then(|| warplap::core::device::Device::fingerprint(&*state.device).clone());
    let rules = Prune { older_than, keep, damaged, stale_for, dry_run };
    let store = state.store.clone();
    let pruned = py.detach(|| care::prune(&store, &rules)).map_err(failed)?;
    refresh();
    Ok(json!({"records": pruned.entries.iter().map(line).collect::<Vec<_>>(), "bytes": pruned.bytes,
              "swept": pruned.swept})
    .to_string())
}

/// The keys that were asked for in mode `record` and not found, as JSON.
#[pyfunction]
pub(crate) fn store_misses() -> String {
    let rows: Vec<Value> = state().store.misses().iter().map(|m| json!({"op": m.op, "problem": m.problem})).collect();
    Value::from(rows).to_string()
}
