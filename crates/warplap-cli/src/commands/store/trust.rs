//! `warplap store trust`: whose bundles this store takes.

use std::path::Path;

use clap::{Args, Subcommand};
use serde_json::json;
use warplap::core::sanitize_text::is_unseen;
use warplap::core::store::trusted::{TrustPolicy, Trusted};
use warplap::core::store::{PublicKey, Store};
use warplap::core::user_files;

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
    /// Trust a key: what `store keygen` printed, a public key of minisign, or a file with one
    Add {
        /// The public key, or a file that holds it
        #[arg(value_name = "KEY|FILE")]
        key: String,
        /// What you call its owner
        #[arg(long, value_name = "NAME", default_value = "")]
        name: String,
    },
    /// List the keys, and whether they are asked for
    #[command(alias = "ls")]
    List,
    /// Trust a key no more
    Remove {
        /// The public key, or a file that holds it
        #[arg(value_name = "KEY|FILE")]
        key: String,
    },
    /// Refuse from now on what a key signed, and let nothing answer that came under it
    Revoke {
        /// The public key, or a file that holds it
        #[arg(value_name = "KEY|FILE")]
        key: String,
    },
    /// Say how many of the trusted keys must have signed a bundle
    Threshold {
        /// How many
        #[arg(value_name = "N", value_parser = clap::value_parser!(u64).range(1..=16))]
        keys: u64,
    },
    /// Say when a winner from elsewhere may run here: proved (it passed here), signed (a trusted key is enough)
    Policy {
        /// proved, signed, or any with --without-proof
        #[arg(value_name = "POLICY")]
        policy: String,
        /// Let winners run that nobody proved and nobody signed
        #[arg(long)]
        without_proof: bool,
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
                let key = read(key)?;
                if name.len() > 100 || name.chars().any(is_unseen) {
                    return Err(Failure::input("--name: expected a name of at most 100 letters in one line"));
                }
                show(&store.trust(|t| t.add(&key, name))?, console)
            }
            Verb::List => show(&store.trusted()?, console),
            Verb::Remove { key } => {
                let key = read(key)?;
                if !store.trusted()?.has(&key) {
                    return Err(Failure::NoAnswer(format!("{key} is not trusted here")));
                }
                show(&store.trust(|t| drop(t.keys.remove(&key.to_string())))?, console)
            }
            Verb::Revoke { key } => {
                let key = read(key)?;
                show(&store.trust(|t| t.revoke(&key))?, console)
            }
            Verb::Threshold { keys } => show(&store.trust(|t| t.threshold = Some(*keys as usize))?, console),
            Verb::Policy { policy, without_proof } => {
                let policy = match (&**policy, without_proof) {
                    ("proved", false) => TrustPolicy::Proved,
                    ("signed", false) => TrustPolicy::Signed,
                    ("any", true) => TrustPolicy::Any,
                    _ => {
                        let what = "expected proved or signed (any runs what nobody proved: --without-proof)";
                        return Err(Failure::input(format!("POLICY is '{policy}': {what}")));
                    }
                };
                show(&store.trust(|t| t.policy = policy)?, console)
            }
            Verb::Require { off } => show(&store.trust(|t| t.required = !off)?, console),
        }
    }
}

/// A key by its text, or by the name of a file.
fn read(inputs: &str) -> Result<PublicKey, Failure> {
    let bad = |why: String| Failure::input(format!("KEY is '{inputs}': {why}"));
    if let Ok(key) = inputs.parse() {
        return Ok(key);
    }
    let text = user_files::text(Path::new(inputs), 4096)
        .map_err(|why| bad(format!("{why}: expected what `store keygen` printed, or a file with it")))?;
    text.parse().map_err(|e| bad(format!("{e}")))
}

fn show(trusted: &Trusted, console: &Console) -> Result<Exit, Failure> {
    if console.json {
        let Trusted { required, keys, revoked, policy, serials, .. } = trusted;
        console.line(&json!({"required": required, "keys": keys, "revoked": revoked, "policy": policy.word(),
            "threshold": trusted.needed(), "serials": serials}))?;
        return Ok(Exit::Ok);
    }
    for (key, name) in &trusted.keys {
        console.say(format!("{key}  {name}").trim_end())?;
    }
    for (key, name) in &trusted.revoked {
        console.say(format!("{key}  {name}").trim_end().to_string() + "  revoked")?;
    }
    let keys = units::some(trusted.keys.len(), "trusted key", "trusted keys");
    let asked = if trusted.required { "a signature of one is asked for" } else { "unsigned bundles are taken too" };
    let needed = match trusted.needed() {
        1 => String::new(),
        needed => format!("; {needed} must have signed"),
    };
    console.say(format!("{keys}; {asked}{needed}; winners from elsewhere: {}", trusted.policy.word()))?;
    Ok(Exit::Ok)
}
