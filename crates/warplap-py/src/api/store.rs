//! The store from Python: listing, showing, exporting, importing and pruning.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, Instant, UNIX_EPOCH};

use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use serde_json::{Value, json};
use warplap::any::{OpenTuner, Operation, as_raced, prove_with};
use warplap::core::progress::{Event, Observer};
use warplap::core::store::bundle::Bundle;
use warplap::core::store::care::{self, Prune};
use warplap::core::store::{Checked, Entry, Store};
use warplap::{Settings, Stop};

use crate::api::tuning::{budget_of, open_operation};
use crate::api::watch::{Watch, interrupted};
use crate::call::failure::{bad, store as failed};
use crate::call::state::{refresh, state};
use crate::launch::gpu;

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

/// Proves every winner from elsewhere on this machine's devices; begins nothing after so many seconds. Whoever never met
/// what its users would call without us races beside that once. What became of them, as JSON.
#[pyfunction]
#[pyo3(signature = (*, seconds=None))]
pub(crate) fn store_prove(py: Python<'_>, seconds: Option<f64>) -> PyResult<String> {
    let limit = budget_of(seconds)?.map(Duration::try_from_secs_f64).transpose();
    let limit = limit.map_err(|e| bad(format!("seconds: {e}")))?;
    let (state, started) = (state().clone(), Instant::now());
    let (store, stop) = (state.store.clone(), Stop::default());
    let mut slugs: BTreeSet<String> = store.entries().into_iter().map(|entry| entry.device_slug).collect();
    let cpu = warplap::core::device::Device::fingerprint(&*state.device).slug();
    let mut places = if slugs.remove(&cpu) { vec![(cpu, None)] } else { Vec::new() };
    // A GPU is not opened for what cannot be of one.
    for ordinal in 0..gpu::DEVICES {
        if slugs.is_empty() {
            break;
        }
        let Ok(device) = gpu::device(ordinal) else { break };
        let slug = warplap::core::device::Device::fingerprint(&*device).slug();
        if slugs.remove(&slug) {
            places.push((slug, Some(ordinal)));
        }
    }
    let (mut proved, mut failed, mut late, mut raced) = (0, Vec::new(), Vec::new(), 0);
    for (slug, ordinal) in places {
        let left = limit.map(|limit| limit.saturating_sub(started.elapsed()));
        let open = |op: &'static Operation, settings: Settings| {
            open_operation(&state, op.name, ordinal, store.clone(), settings).ok()
        };
        let watch = Watch { stop: stop.clone(), tell: None };
        // Ctrl-C is heard between proofs.
        let begin = |_: usize, _: usize, problem: &str| watch.event(&Event::Waiting(problem));
        let all = py.detach(|| prove_with(&slug, &store, &stop, left, &open, &begin));
        proved += all.passed;
        failed.extend(all.failed);
        late.extend(all.late);
        let is_over = || limit.is_some_and(|limit| started.elapsed() >= limit);
        raced += py.detach(|| meet_the_host(&slug, &store, &open, &watch, &is_over));
    }
    refresh();
    if let Some(error) = interrupted() {
        return Err(error);
    }
    Ok(json!({"proved": proved, "failed": failed, "late": late, "raced": raced}).to_string())
}

/// Lets winners that passed here race beside what users would call without us, where they have not met; how many did.
fn meet_the_host(slug: &str, store: &Store, open: OpenTuner<'_>, watch: &Watch, is_over: &dyn Fn() -> bool) -> usize {
    let mut raced = 0;
    for entry in store.entries().into_iter().filter(|entry| entry.device_slug == slug) {
        if is_over() || watch.stop.said() {
            break;
        }
        let Checked::Whole(record) = store.check(&entry) else { continue };
        let Some((op, settings)) = as_raced(&record, &watch.stop) else { continue };
        let Some(tuner) = open(op, settings) else { continue };
        let Ok(answer) = tuner.find(&record.problem) else { continue };
        let elsewhere = answer.edition.as_ref().is_some_and(|edition| edition.origin != store.id());
        if elsewhere && answer.proved && !answer.met_the_host && answer.key.text == record.key {
            match tuner.ensure(&record.problem, watch) {
                Ok(_) => raced += 1,
                Err(why) => tracing::warn!("{}: it did not race beside the library: {why}", record.problem),
            }
        }
    }
    raced
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
