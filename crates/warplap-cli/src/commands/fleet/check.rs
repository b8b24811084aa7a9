//! `warplap fleet check`: some winners that came from others race here once more; who is off is named.

use std::path::Path;
use std::sync::Arc;

use clap::Args;
use serde_json::json;
use warplap::any::{Checked, Wanted, check, claims};

use crate::console::{BAD, Console, GOOD, paint};
use crate::failure::{Exit, Failure};
use crate::machine::{Machine, listen};
use crate::progress::Progress;
use crate::race_args::seconds;
use crate::table::Table;
use crate::units;

/// Slower than this, a winner is off.
const OFF: f64 = 0.05;

/// Arguments of `fleet check`.
#[derive(Args)]
pub(crate) struct Check {
    /// The share of the keys that came from others; one key at least
    #[arg(long, value_name = "SHARE", default_value_t = 0.01, value_parser = share)]
    share: f64,
    /// Which of them
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// Seconds for each
    #[arg(long, value_name = "S", default_value_t = 4.0, value_parser = seconds)]
    budget: f64,
    /// auto (a GPU where there is one, else the CPU), cpu, cuda or cuda:N
    #[arg(long, value_name = "DEVICE", env = "WARPLAP_DEVICE", default_value = "auto", hide_env_values = true)]
    device: Wanted,
}

impl Check {
    pub(crate) fn run(&self, root: Option<&Path>, console: &Arc<Console>) -> Result<Exit, Failure> {
        let machine = Machine::open(root, self.device)?;
        let claims = claims(&machine.device, &machine.store, self.share, self.seed);
        let (stop, progress) = (listen(console), Progress::new(console, claims.len()));
        let mut checked = Vec::new();
        for (n, claim) in claims.iter().enumerate().take_while(|_| !stop.said()) {
            match check(&machine.device, claim, self.budget, &stop, &progress.begin(n, claim.problem())) {
                Ok(one) => checked.push(one),
                Err(why) => console.warn(format_args!("{}: it was not checked: {why}", claim.problem())),
            }
        }
        drop(progress);
        report(&checked, console)?;
        let off = checked.iter().filter(|c| c.is_off(OFF)).count();
        Ok(match off {
            _ if stop.said() => Exit::Interrupted,
            0 => Exit::Ok,
            _ => Exit::NoAnswer,
        })
    }
}

fn report(checked: &[Checked], console: &Console) -> Result<(), Failure> {
    if console.json {
        return console.lines(checked.iter().map(|c| {
            json!({
                "problem": c.problem, "origin": c.origin, "said": c.said, "found": c.result,
                "behind": c.behind, "tie": c.tie, "off": c.is_off(OFF),
            })
        }));
    }
    let mut table = Table::new(&["problem", "~said by", "~winner", ">slower here by", "~fastest here"]);
    for c in checked {
        let behind = match c.behind {
            _ if c.tie => "a tie".to_string(),
            Some(behind) => format!("{:.1} %", 100.0 * behind),
            None => "not right".to_string(),
        };
        let cells = [&c.problem, &c.origin, &c.said, &behind, &c.result];
        table.row(cells.map(|cell| cell.as_str().into()));
    }
    if !checked.is_empty() {
        console.say(table.render(console.width()))?;
    }
    let (all, off) = (checked.len(), checked.iter().filter(|c| c.is_off(OFF)).count());
    let winners = units::some(all, "winner", "winners");
    console.say(match (all, off) {
        (0, _) => "nothing that came from others answers on this device".to_string(),
        (_, 0) => {
            format!("{} of others raced here, none is off by more than {:.0} %", paint(GOOD, winners), 100.0 * OFF)
        }
        _ => format!(
            "{winners} of others raced here, {} by more than {:.0} %",
            paint(BAD, format!("{off} off")),
            100.0 * OFF
        ),
    })
}

fn share(text: &str) -> Result<f64, String> {
    let read = text.parse::<f64>().ok().filter(|share| *share > 0.0 && *share <= 1.0);
    read.ok_or_else(|| "expected a share, more than 0 and at most 1".into())
}
