//! `warplap store ls`: the records, with their winners where there are not too many to open.

use std::sync::Mutex;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args;
use serde_json::{Value, json};
use warplap::core::record::{Record, TuningRun};
use warplap::core::store::care::for_each;
use warplap::core::store::{Checked, Entry, Store};

use crate::console::{BAD, Console, DIM, NAME};
use crate::failure::{Exit, Failure};
use crate::suite;
use crate::table::{Cell, Table};
use crate::units;

/// Up to so many records are opened to show their winners without being asked.
const OPENED: usize = 2000;

/// Arguments of `store ls`.
#[derive(Args)]
pub(crate) struct Ls {
    /// Of this operation alone
    #[arg(long, value_name = "OP")]
    op: Option<String>,
    /// Of devices whose folder name contains this
    #[arg(long, value_name = "TEXT")]
    device: Option<String>,
    /// Open every record, however many there are
    #[arg(long, conflicts_with = "short")]
    long: bool,
    /// Open none: names, sizes and ages alone
    #[arg(long)]
    short: bool,
}

impl Ls {
    pub(crate) fn run(&self, store: &Store, console: &Console) -> Result<Exit, Failure> {
        let op = suite::operation(self.op.as_deref())?;
        let wanted = |e: &Entry| {
            op.is_none_or(|op| e.op == op.name) && self.device.as_ref().is_none_or(|d| e.device_slug.contains(d))
        };
        let entries: Vec<Entry> = store.entries().into_iter().filter(wanted).collect();
        let open = self.long || (!self.short && entries.len() <= OPENED);
        if !open && !self.short {
            console
                .log(format_args!("{} records: names alone (--long opens each)", units::count(entries.len() as u64)));
        }
        let opened: Vec<Option<Checked>> = if open {
            let opened = Mutex::new(vec![None; entries.len()]);
            for_each(store, &entries, |n, checked| {
                opened.lock().unwrap_or_else(std::sync::PoisonError::into_inner)[n] = Some(checked);
            });
            opened.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner)
        } else {
            vec![None; entries.len()]
        };
        if console.json {
            console.lines(entries.iter().zip(&opened).map(|(entry, checked)| line(entry, checked.as_ref())))?;
            return Ok(Exit::Ok);
        }
        let mut table = match open {
            true => Table::new(&["hash", "problem", "~winner", ">time", ">trials", "age"]),
            false => Table::new(&["hash", "op", "", ">size", "", "age"]),
        };
        let mut device = "";
        for (entry, checked) in entries.iter().zip(&opened) {
            if entry.device_slug != device {
                device = &entry.device_slug;
                table.section(device);
            }
            row(&mut table, entry, checked.as_ref());
        }
        if table.is_empty() {
            console.log(format_args!("no records in {}", store.place()));
            return Ok(Exit::Ok);
        }
        console.say(table.render(console.width()))?;
        Ok(Exit::Ok)
    }
}

fn newest(record: &Record) -> Option<&TuningRun> {
    record.editions.last()
}

fn line(entry: &Entry, checked: Option<&Checked>) -> Value {
    let modified = entry.modified.duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    let mut line = json!({
        "device": entry.device_slug, "op": entry.op, "hash": entry.hash, "bytes": entry.bytes, "modified": modified,
    });
    match checked {
        None => {}
        Some(Checked::Whole(record)) => {
            line["problem"] = record.problem.as_str().into();
            line["key"] = record.key.as_str().into();
            line["editions"] = record.editions.len().into();
            if let Some(edition) = newest(record) {
                let winner = &edition.verdict.winner;
                line["winner"] = json!({"variant": winner.variant, "config": winner.config});
                line["median_us"] = edition.verdict.median_us.into();
                line["grade"] = edition.verdict.grade.word().into();
                line["trials"] = edition.trials.len().into();
            }
        }
        Some(other) => line["trouble"] = trouble(other).into(),
    }
    line
}

/// What is wrong with an entry.
fn trouble(checked: &Checked) -> String {
    match checked {
        Checked::Whole(_) => "nothing".into(),
        Checked::Damaged(why) => format!("damaged: {why}"),
        Checked::Newer(schema) => format!("written by a newer warplap (form {schema})"),
        Checked::Misplaced(why) => format!("misplaced: {why}"),
        Checked::Unreadable(why) => format!("unreadable: {why}"),
        Checked::Gone => "gone".into(),
    }
}

fn row(table: &mut Table, entry: &Entry, checked: Option<&Checked>) {
    let hash = Cell::styled(&entry.hash[..entry.hash.len().min(8)], DIM);
    let age = SystemTime::now().duration_since(entry.modified).unwrap_or_default();
    let age = Cell::styled(units::ago(age), DIM);
    match checked {
        None => {
            let hash = Cell::from(&entry.hash);
            table.row([hash, entry.op.as_str().into(), "".into(), units::bytes(entry.bytes).into(), "".into(), age]);
        }
        Some(Checked::Whole(record)) => {
            let edition = newest(record);
            let winner = edition.map(|e| e.verdict.winner.to_string()).unwrap_or_default();
            let time = edition.map(|e| units::time(e.verdict.median_us)).unwrap_or_default();
            let trials = edition.map_or(0, |e| e.trials.len());
            let cold = if record.key.contains("cache=cold") { " cold" } else { "" };
            let clock = if record.key.contains("clock=back-to-back") { " back-to-back" } else { "" };
            let bucket = if record.key.contains("bucket=pow2") { " bucket" } else { "" };
            let problem = format!("{}{cold}{clock}{bucket}", record.problem);
            table.row([hash, problem.into(), Cell::styled(winner, NAME), time.into(), trials.into(), age]);
        }
        Some(other) => {
            let what = Cell::styled(trouble(other), BAD);
            table.row([hash, entry.op.as_str().into(), what, "".into(), "".into(), age]);
        }
    }
}
