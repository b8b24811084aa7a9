//! `warplap store prune`: removes what its rules name, or says what they would.

use std::time::Duration;

use clap::Args;
use serde_json::json;
use warplap::Cpu;
use warplap::core::device::Device;
use warplap::core::store::{Store, care};

use crate::console::Console;
use crate::failure::{Exit, Failure};
use crate::units;

/// Arguments of `store prune`.
#[derive(Args)]
pub(crate) struct Prune {
    /// Records last written longer ago than so many days
    #[arg(long, value_name = "DAYS", value_parser = days)]
    older_than: Option<f64>,
    /// This device's records of other library versions
    #[arg(long)]
    stale: bool,
    /// Damaged, misplaced and set-aside files
    #[arg(long)]
    damaged: bool,
    /// All but the newest N records
    #[arg(long, value_name = "N")]
    keep: Option<usize>,
    /// Only say what would go
    #[arg(long)]
    dry_run: bool,
}

fn days(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|v| (0.0..=36_500.0).contains(v));
    number.ok_or_else(|| "expected days, from 0 to 36500".into())
}

impl Prune {
    pub(crate) fn run(&self, store: &Store, console: &Console) -> Result<Exit, Failure> {
        if self.older_than.is_none() && !self.stale && !self.damaged && self.keep.is_none() {
            let rules = "--older-than DAYS, --stale, --damaged, --keep N";
            return Err(Failure::input(format!("no rule is given: expected at least one of {rules}")));
        }
        let rules = care::Prune {
            older_than: self.older_than.map(|d| Duration::from_secs_f64(d * 86_400.0)),
            stale_for: self.stale.then(|| Cpu::new().fingerprint().clone()),
            damaged: self.damaged,
            keep: self.keep,
            dry_run: self.dry_run,
        };
        let pruned = care::prune(store, &rules)?;
        if console.json {
            console.lines(
                pruned
                    .entries
                    .iter()
                    .map(|e| json!({"removed": e.hash, "op": e.op, "device": e.device_slug, "bytes": e.bytes})),
            )?;
            console.line(&json!({
                "records": pruned.entries.len(), "bytes": pruned.bytes, "swept": pruned.swept, "dry_run": self.dry_run,
            }))?;
            return Ok(Exit::Ok);
        }
        let verb = if self.dry_run { "would go" } else { "removed" };
        console.say(format!(
            "{} ({}) and {} {verb}",
            units::some(pruned.entries.len(), "record", "records"),
            units::bytes(pruned.bytes),
            units::some(pruned.swept, "file set aside", "files set aside"),
        ))?;
        Ok(Exit::Ok)
    }
}
