//! `warplap variants`: the variants of the operations, and how each stands to a problem.

use clap::Args;
use serde_json::json;
use std::sync::Arc;
use warplap::Settings;
use warplap::any::{OPERATIONS, Operation, Standing};
use warplap::core::store::MemoryStore;
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
        let ops: Vec<&Operation> = match (&asked, op) {
            (Some(asked), _) => vec![asked.op],
            (None, Some(op)) => vec![op],
            (None, None) => OPERATIONS.iter().collect(),
        };
        let device = machine::device(self.place.device, None)?;
        let problem = asked.as_ref().map(|a| a.problem.as_str());
        let mut table = match problem {
            Some(_) => Table::new(&["  variant", "role", "priority", ">configs", "~axes, or why it stands aside"]),
            None => Table::new(&["  variant", "role", "", "", ""]),
        };
        for op in ops {
            let tuner = op.open(&device, Arc::new(MemoryStore::new()), Settings::default());
            table.section(op.name);
            for standing in tuner.variants(problem)? {
                if console.json {
                    console.line(&line(op.name, &standing))?;
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

fn role(s: &Standing) -> &'static str {
    match (s.reference, s.library) {
        (true, _) => "reference",
        (_, true) => "library",
        _ => "",
    }
}

fn line(op: &str, s: &Standing) -> serde_json::Value {
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

fn row(table: &mut Table, s: &Standing) {
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
