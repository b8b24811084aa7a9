//! `warplap store trust`: whose bundles this store takes.

use std::path::Path;

use clap::{Args, Subcommand};
use serde_json::json;
use warplap::core::given;
use warplap::core::letters::is_unseen;
use warplap::core::store::trusted::Trusted;
use warplap::core::store::{PublicKey, Store};

use crate::console::Console;
use crate::failure::{Exit, Failure};
use crate::units;

/// Arguments of `store trust`.
#[derive(Args)]
pub(crate) struct Trust {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Trust a key: what `store keygen` printed, or a file with it
    Add {
        /// The public key, or a file that holds it
        #[arg(value_name = "KEY|FILE")]
        key: String,
        /// What you call its owner
        #[arg(long, value_name = "NAME", default_value = "")]
        name: String,
    },
    /// List the keys, and whether they are asked for
    List,
    /// Trust a key no more
    Remove {
        /// The public key, or a file that holds it
        #[arg(value_name = "KEY|FILE")]
        key: String,
    },
    /// From now on take bundles alone that a trusted key has signed
    Require {
        /// Take unsigned bundles again
        #[arg(long)]
        off: bool,
    },
}

impl Trust {
    pub(crate) fn run(&self, store: &Store, console: &Console) -> Result<Exit, Failure> {
        match &self.verb {
            Verb::Add { key, name } => {
                let key = read(key)?.to_string();
                if name.len() > 100 || name.chars().any(is_unseen) {
                    return Err(Failure::input("--name: expected a name of at most 100 letters in one line"));
                }
                show(&store.trust(|t| drop(t.keys.insert(key.clone(), name.clone())))?, console)
            }
            Verb::List => show(&store.trusted()?, console),
            Verb::Remove { key } => {
                let key = read(key)?;
                if !store.trusted()?.has(&key) {
                    return Err(Failure::NoAnswer(format!("{key} is not trusted here")));
                }
                show(&store.trust(|t| drop(t.keys.remove(&key.to_string())))?, console)
            }
            Verb::Require { off } => show(&store.trust(|t| t.required = !off)?, console),
        }
    }
}

/// A key by its text, or by the name of a file.
fn read(given: &str) -> Result<PublicKey, Failure> {
    let bad = |why: String| Failure::input(format!("KEY is '{given}': {why}"));
    if let Ok(key) = given.parse() {
        return Ok(key);
    }
    let text = given::text(Path::new(given), 4096)
        .map_err(|why| bad(format!("{why}: expected what `store keygen` printed, or a file with it")))?;
    text.parse().map_err(|e| bad(format!("{e}")))
}

fn show(trusted: &Trusted, console: &Console) -> Result<Exit, Failure> {
    if console.json {
        console.line(&json!({"required": trusted.required, "keys": trusted.keys}))?;
        return Ok(Exit::Ok);
    }
    for (key, name) in &trusted.keys {
        console.say(format!("{key}  {name}").trim_end())?;
    }
    let keys = units::some(trusted.keys.len(), "trusted key", "trusted keys");
    let asked = if trusted.required { "a signature of one is asked for" } else { "unsigned bundles are taken too" };
    console.say(format!("{keys}; {asked}"))?;
    Ok(Exit::Ok)
}
