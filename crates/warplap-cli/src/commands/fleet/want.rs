//! `warplap fleet want`: problems come in; the fleet knows that somebody wants them tuned.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;
use warplap::core::store::Missed;
use warplap::{Mode, Stop};
use warplap_fleet::wants;

use super::reach::reach;
use crate::console::Console;
use crate::failure::{Exit, Failure};
use crate::machine::device;
use crate::race_args::{self, RaceArgs};
use crate::suite;
use crate::units;

/// Arguments of `fleet want`.
#[derive(Args)]
pub(crate) struct Want {
    /// What is wanted: op:field=value,…
    #[arg(value_name = "PROBLEM")]
    problems: Vec<String>,
    /// A file with one problem a line
    #[arg(long, value_name = "FILE")]
    suite: Option<PathBuf>,
    /// What programs on this machine in mode record asked for and did not find
    #[arg(long)]
    misses: bool,
    #[command(flatten)]
    race: RaceArgs,
}

impl Want {
    pub(crate) fn run(&self, root: Option<&Path>, console: &Console) -> Result<Exit, Failure> {
        let mut asked = Vec::new();
        for problem in &self.problems {
            asked.push(suite::asked(problem, None)?);
        }
        if let Some(path) = &self.suite {
            asked.extend(suite::read(path, None)?);
        }
        if asked.is_empty() && !self.misses {
            return Err(Failure::input("PROBLEM: expected at least one, --suite FILE or --misses"));
        }
        let mut far = reach(None, root)?;
        let device = device(self.race.place.device, Some(&far.folder))?;
        let bucket = race_args::bucket("changing").map_err(Failure::input)?;
        let settings = self.race.settings(&device, Mode::Record, bucket, &Stop::default());
        let mut wanted = Vec::new();
        for asked in &asked {
            let tuner = asked.open(&device, far.near.clone(), settings.clone())?;
            let key = tuner.key(&asked.problem)?;
            let hard = device.fingerprint().hard.clone();
            wanted.push(Missed { op: key.op.clone(), key: key.text, problem: asked.problem.clone(), device: hard });
        }
        if self.misses {
            wanted.extend(far.near.misses());
        }
        far.ask(|session| wants::add(session, &wanted))?;
        match console.json {
            true => console.line(&json!({"wanted": wanted.len()}))?,
            false => console.say(format!("{} wanted of {}", units::some(wanted.len(), "key", "keys"), far.title))?,
        }
        Ok(Exit::Ok)
    }
}
