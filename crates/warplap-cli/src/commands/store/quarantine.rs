//! `warplap store quarantine`: who crashed, hung or was wrong and is not tried again, and why; `--clear` lets them go.

use clap::Args;
use serde_json::json;
use warplap::core::quarantine::{self, Quarantined};
use warplap::core::store::Store;

use crate::console::Console;
use crate::failure::{Exit, Failure};
use crate::table::Table;
use crate::units;

/// Arguments of `store quarantine`.
#[derive(Args)]
pub(crate) struct Quarantine {
    /// Only candidates whose operation, variant or device's folder name is this
    #[arg(value_name = "NAME")]
    only: Option<String>,
    /// Let them go: the next race tries them again
    #[arg(long)]
    clear: bool,
}

impl Quarantine {
    pub(crate) fn run(&self, store: &Store, console: &Console) -> Result<Exit, Failure> {
        let is_meant = |(slug, q): &(String, Quarantined)| {
            self.only.as_ref().is_none_or(|name| *name == q.op || *name == q.candidate.variant || name == slug)
        };
        let meant: Vec<(String, Quarantined)> = quarantine::all(store).into_iter().filter(is_meant).collect();
        if self.clear {
            let mut cleared = 0;
            for (slug, one) in &meant {
                cleared += usize::from(quarantine::clear(store, slug, one)?);
            }
            if console.json {
                console.line(&json!({"cleared": cleared}))?;
            } else {
                console.say(format!("{} let go", units::some(cleared, "candidate", "candidates")))?;
            }
            return Ok(Exit::Ok);
        }
        if console.json {
            let line = |(slug, q): &(String, Quarantined)| {
                json!({
                    "device": slug, "op": q.op, "variant": q.candidate.variant, "config": q.candidate.config,
                    "source": q.candidate.source, "soft": q.soft, "problem": q.problem, "why": q.rejection.word(),
                    "reason": q.rejection.to_string(), "count": q.count, "at": q.at,
                })
            };
            console.lines(meant.iter().map(line))?;
            return Ok(Exit::Ok);
        }
        if meant.is_empty() {
            console.say("nobody is in quarantine")?;
            return Ok(Exit::Ok);
        }
        let mut table = Table::new(&["candidate", "problem", ">times", "~reason"]);
        let mut device = "";
        for (slug, q) in &meant {
            if slug != device {
                device = slug;
                table.section(device);
            }
            let (who, count) = (q.candidate.to_string(), q.count.to_string());
            table.row([who.into(), q.problem.clone().into(), count.into(), q.rejection.to_string().into()]);
        }
        console.say(table.render(console.width()))?;
        Ok(Exit::Ok)
    }
}
