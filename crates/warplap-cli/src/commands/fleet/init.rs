//! `warplap fleet init`: an empty database comes in; one with the tables and roles of a fleet goes out.

use std::path::Path;

use clap::Args;
use serde_json::json;
use warplap_fleet::roster;

use super::reach::{reach, said};
use crate::console::Console;
use crate::failure::{Exit, Failure};

/// Arguments of `fleet init`.
#[derive(Args)]
pub(crate) struct Init {
    /// The database: postgres://owner@host/database
    #[arg(value_name = "URL")]
    url: Option<String>,
}

impl Init {
    pub(crate) fn run(&self, root: Option<&Path>, console: &Console) -> Result<Exit, Failure> {
        let mut far = reach(self.url.as_deref(), root)?;
        let left = roster::init(&mut far.session).map_err(|e| said(&far.title, &e))?;
        if let Some(left) = &left {
            console.warn(left);
        }
        if console.json {
            console.line(&json!({"far": far.title, "guarded": left.is_none()}))?;
        } else {
            console.say(format!("{} has the tables of a fleet", far.title))?;
            console
                .say("Let logins in: grant warplap_tuner to NAME (publishes), warplap_reader (asks), warplap_keeper")?;
            console.say("Then on each machine: warplap fleet join URL")?;
        }
        Ok(Exit::Ok)
    }
}
