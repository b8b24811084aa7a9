//! `warplap variants`: the variants of the operations, and how each stands to a problem.

use clap::Args;
use serde_json::json;
use warplap::Settings;
use warplap::any::{VariantStatus, operations};
use warplap::core::store::Store;
use warplap::core::variant::Fit;

use crate::console::{Console, DIM, NAME};
use crate::failure::{Exit, Failure};
use crate::machine;
use crate::race_args::Where;
use crate::suite;
use crate::table::{Cell, Table};

/// Arguments of `variants`.
#[derive(Args)]
pub(crate) struct Variants {
    /// Also say how each stands to this problem
    #[arg(value_name = "PROBLEM")]
    problem: Option<String>,
    /// Of this operation alone
    #[arg(long, value_name = "OP")]
    op: Option<String>,
    #[command(flatten)]
    place: Where,
}

impl Variants {
    pub(crate) fn run(&self, console: &Console) -> Result<Exit, Failure> {
        let op = suite::operation(self.op.as_deref())?;
        let asked = self.problem.as_deref().map(|text| suite::asked(text, op)).transpose()?;
        let wanted = asked.as_ref().map_or(Ok(self.place.device), |a| a.wanted(self.place.device))?;
        let device = machine::device(wanted, None)?;
        let (store, settings) = (Store::memory(), Settings::default());
        let tuners = match (&asked, op) {
            (Some(asked), _) => vec![asked.open(&device, store, settings)?],
            (None, Some(op)) => vec![op.open(&device, store, settings)],
            (None, None) => operations().iter().map(|op| op.open(&device, store.clone(), settings.clone())).collect(),
        };
        let problem = asked.as_ref().map(|a| a.problem.as_str());
        let mut table = match problem {
            Some(_) => Table::new(&["  variant", "role", "priority", ">configs", "~axes, or why it stands aside"]),
            None => Table::new(&["  variant", "role", "", "", ""]),
        };
        for tuner in tuners {
            table.section(tuner.op());
            for standing in tuner.variants(problem)? {
                if console.json {
                    console.line(&line(tuner.op(), &standing))?;
                } else {
                    row(&mut table, &standing);
                }
            }
        }
        if !console.json {
            console.say(table.render(console.width()))?;
        }
        Ok(Exit::Ok)
    }
}

fn role(s: &VariantStatus) -> &'static str {
    match (s.reference, s.library) {
        (true, _) => "reference",
        (_, true) => "library",
        _ => "",
    }
}

fn line(op: &str, s: &VariantStatus) -> serde_json::Value {
    let mut line =
        json!({"op": op, "variant": s.id, "source": s.source.0, "reference": s.reference, "library": s.library});
    match &s.fit {
        Some(Fit::Fits(priority)) => {
            let axes: serde_json::Map<_, _> =
                s.axes.iter().map(|(name, values)| (name.clone(), json!(values))).collect();
            line["priority"] = priority.word().into();
            line["configs"] = s.configs.into();
            line["axes"] = axes.into();
        }
        Some(Fit::Aside(reason)) => line["aside"] = reason.as_str().into(),
        None => {}
    }
    line
}

fn row(table: &mut Table, s: &VariantStatus) {
    let name = Cell::styled(format!("  {}", s.id), NAME);
    match &s.fit {
        Some(Fit::Fits(priority)) => {
            let axes: Vec<String> =
                s.axes.iter().map(|(name, values)| format!("{name}={}", values.join("|"))).collect();
            table.row([name, role(s).into(), priority.word().into(), s.configs.into(), axes.join(" ").into()]);
        }
        Some(Fit::Aside(reason)) => {
            table.row([name, role(s).into(), Cell::styled("aside", DIM), "".into(), Cell::styled(reason, DIM)]);
        }
        None => table.row([name, role(s).into(), "".into(), "".into(), "".into()]),
    }
}
