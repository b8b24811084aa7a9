//! `warplap fleet trust`: who may publish to the fleet.

use std::path::Path;

use clap::{Args, Subcommand};
use serde_json::json;
use warplap_fleet::roster;

use super::reach::reach;
use crate::console::Console;
use crate::failure::{Exit, Failure};
use crate::table::Table;

/// Arguments of `fleet trust`.
#[derive(Args)]
pub(crate) struct FleetTrust {
    #[command(subcommand)]
    verb: FleetTrustVerb,
}

#[derive(Subcommand)]
enum FleetTrustVerb {
    /// List who publishes, asks to, or was sent away
    Ls,
    /// Let a store in that has asked (as a keeper)
    Add {
        /// Its origin, as `fleet join` printed it
        origin: String,
    },
    /// Send a store away: nothing of it is taken any more (as a keeper)
    Revoke {
        /// Its origin
        origin: String,
    },
}

impl FleetTrust {
    pub(crate) fn run(&self, root: Option<&Path>, console: &Console) -> Result<Exit, Failure> {
        let mut far = reach(None, root)?;
        let done = match &self.verb {
            FleetTrustVerb::Ls => true,
            FleetTrustVerb::Add { origin } => far.ask(|session| roster::admit(session, origin))?,
            FleetTrustVerb::Revoke { origin } => far.ask(|session| roster::send_away(session, origin))?,
        };
        if !done {
            return Err(Failure::NoAnswer("there is no such origin, or it was sent away (fleet trust ls)".into()));
        }
        let members = far.ask(roster::members)?;
        if console.json {
            console.lines(members.iter().map(|m| json!(m)))?;
            return Ok(Exit::Ok);
        }
        let mut table = Table::new(&["origin", "node", "login", "standing", ">editions"]);
        for m in &members {
            table.row([
                m.origin.as_str().into(),
                m.node.as_str().into(),
                m.role.as_str().into(),
                m.standing.as_str().into(),
                (m.editions as usize).into(),
            ]);
        }
        match members.is_empty() {
            true => console.say("nobody has joined yet (warplap fleet join)")?,
            false => console.say(table.render(console.width()))?,
        }
        Ok(Exit::Ok)
    }
}
