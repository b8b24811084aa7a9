//! `warplap report`: what the store knows of a problem, or a recorded space, comes in; one page that needs no network
//! goes out. Nothing is measured.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;
use warplap::core::user_files;
use warplap::report::recorded::Recorded;

use crate::console::Console;
use crate::facts::{self, page};
use crate::failure::{Exit, Failure};
use crate::kept::{Kept, write};
use crate::race_args::Where;
use crate::units;

/// The most a recorded space may hold, in bytes.
const MOST: u64 = 1 << 30;

/// Arguments of `report`.
#[derive(Args)]
pub(crate) struct Report {
    /// What to show: op:field=value,…, a spec file, or a recorded space (.json)
    #[arg(value_name = "PROBLEM|FILE")]
    what: String,
    /// The page
    #[arg(long, short, value_name = "FILE", default_value = "report.html")]
    output: PathBuf,
    #[command(flatten)]
    place: Where,
}

impl Report {
    pub(crate) fn run(&self, root: Option<&Path>, console: &Console) -> Result<Exit, Failure> {
        let facts = match recorded(&self.what)? {
            Some(recorded) => facts::recorded(&self.what, &recorded),
            None => {
                let kept = Kept::find(&self.what, &self.place, root)?;
                kept.subject().tuned(&kept.edition)
            }
        };
        write(&self.output, page(&facts).as_bytes(), "--output")?;
        let trials = facts["trials"].as_array().map_or(0, Vec::len);
        if console.json {
            console.line(&json!({"report": self.output, "trials": trials}))?;
        } else {
            let many = units::some(trials, "trial", "trials");
            console.say(format_args!("{} shows {many} of {}", self.output.display(), self.what))?;
        }
        Ok(Exit::Ok)
    }
}

/// A recorded space, where the argument names one.
fn recorded(what: &str) -> Result<Option<Recorded>, Failure> {
    if !what.ends_with(".json") || !Path::new(what).is_file() {
        return Ok(None);
    }
    let unread = |e: std::io::Error| Failure::input(format!("{what}: {e}: expected a text file"));
    let text = user_files::text(Path::new(what), MOST).map_err(unread)?;
    if text.contains("\"KernelSpecification\"") {
        return Ok(None);
    }
    Recorded::parse(&text).map(Some).map_err(|e| Failure::input(format!("{what}: {e}: expected a recorded space")))
}
