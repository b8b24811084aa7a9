//! `warplap fleet join`: this machine's store gets a key of its own and asks to be let in.

use std::path::Path;

use clap::Args;
use serde_json::json;
use warplap_fleet::roster;

use super::reach::{reach, said};
use crate::console::Console;
use crate::failure::{Exit, Failure};

/// Arguments of `fleet join`.
#[derive(Args)]
pub(crate) struct Join {
    /// The database: postgres://user@host/database
    #[arg(value_name = "URL")]
    url: Option<String>,
    /// What this machine is called (default: its host name)
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
}

impl Join {
    pub(crate) fn run(&self, root: Option<&Path>, console: &Console) -> Result<Exit, Failure> {
        let mut far = reach(self.url.as_deref(), root)?;
        let named = self.node.clone().unwrap_or_else(host_name);
        if named.len() > 100 || named.chars().any(warplap::core::sanitize_text::is_unseen) {
            return Err(Failure::input("--node: expected a name of at most 100 letters in one line"));
        }
        let joined = roster::join(&mut far.session, &far.folder, &named);
        let (origin, key, is_in) = joined.map_err(|e| said(&far.title, &e))?;
        if console.json {
            console.line(&json!({"far": far.title, "origin": origin, "key": key.to_string(), "in": is_in}))?;
            return Ok(Exit::Ok);
        }
        console.say(format!("this store is {origin} ({key})"))?;
        match is_in {
            true => console.say(format!("it publishes to {}", far.title))?,
            false => console.say(format!("it asks to be let in: warplap fleet trust add {origin} (as a keeper)"))?,
        }
        console.say(format!("its near store is {}", far.folder.display()))?;
        Ok(Exit::Ok)
    }
}

/// The machine's name, as far as it tells.
pub(super) fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}
