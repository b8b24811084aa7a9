//! `warplap fleet pull`, `push` and `sync`: the near store gets what others published, and they what it has.

use std::path::Path;
use std::sync::Arc;

use clap::Args;
use serde_json::json;
use warplap::any::Wanted;
use warplap::cuda::Artifacts;
use warplap_fleet::{Address, Postgres, cards, follow};

use super::reach::{Reached, reach, said};
use crate::console::Console;
use crate::failure::{Exit, Failure};
use crate::machine::device;
use crate::units;

/// Arguments of `fleet pull` and `fleet sync`.
#[derive(Args)]
pub(crate) struct Pull {
    /// Of every kind of device, not this machine's alone
    #[arg(long)]
    all: bool,
    /// With every trial, for reports: about ten times as much
    #[arg(long)]
    bodies: bool,
    /// Then prove every winner of others here, so that programs which only replay may use it; exit 1 when one fails
    #[arg(long)]
    prove: bool,
    /// auto (a GPU where there is one, else the CPU), cpu, cuda or cuda:N
    #[arg(long, value_name = "DEVICE", env = "WARPLAP_DEVICE", default_value = "auto", hide_env_values = true)]
    device: Wanted,
}

impl Pull {
    pub(crate) fn run(&self, root: Option<&Path>, console: &Arc<Console>, also_push: bool) -> Result<Exit, Failure> {
        let mut far = reach(None, root)?;
        let sent = if also_push { Some(push(&mut far, console)?) } else { None };
        let slug = if self.all { None } else { Some(device(self.device, Some(&far.folder))?.fingerprint().slug()) };
        let own = far.own.clone();
        let kept = Artifacts::open(&far.folder).map_err(|e| Failure::NoAnswer(e.to_string()))?;
        let pulled = follow::pull(&mut far.session, &far.near, &own, slug.as_deref(), self.bodies, Some(&kept));
        let pulled = pulled.map_err(|e| said(&far.title, &e))?;
        console.warn_of(&pulled.refused);
        let follow::Pulled { added, joined, unchanged, refused, kernels: (taken, left), .. } = &pulled;
        if console.json {
            let refused = refused.len();
            let line = json!({"added": added, "joined": joined, "unchanged": unchanged, "refused": refused, "sent": sent,
                    "kernels": taken, "kernels_left": left});
            console.line(&line)?;
        } else {
            if let Some(sent) = sent {
                console.say(format!("{} sent to {}", units::some(sent as usize, "edition", "editions"), far.title))?;
            }
            let place = far.near.place();
            console.say(format!("{added} added, {joined} joined, {unchanged} known already → {place}"))?;
            if *taken > 0 {
                console.say(format!("{} taken over", units::some(*taken, "compiled kernel", "compiled kernels")))?;
            }
            if *left > 0 {
                let kernels = units::some(*left, "compiled kernel", "compiled kernels");
                console.say(format!("{kernels} left: no key that this store trusts signed them (store trust add)"))?;
            }
        }
        if self.prove { crate::commands::store::proving::run(root, self.device, None, console) } else { Ok(Exit::Ok) }
    }
}

/// Sends what is new.
pub(super) fn run_push(root: Option<&Path>, console: &Console) -> Result<Exit, Failure> {
    let mut far = reach(None, root)?;
    let sent = push(&mut far, console)?;
    match console.json {
        true => console.line(&json!({"sent": sent}))?,
        false => console.say(format!("{} sent to {}", units::some(sent as usize, "edition", "editions"), far.title))?,
    }
    Ok(Exit::Ok)
}

fn push(far: &mut Reached, console: &Console) -> Result<u64, Failure> {
    if far.own.is_empty() {
        return Err(Failure::input("this store has not joined the fleet (warplap fleet join URL)"));
    }
    let address = Address::read(&far.url).map_err(Failure::input)?;
    let post = Postgres::behind(far.near.clone(), address, Some(far.folder.clone()));
    let sent = post.send().map_err(|e| said(&far.title, &e))?;
    let node = super::join::host_name();
    let (own, near) = (far.own.clone(), far.near.clone());
    if let Err(e) = cards::tell(&mut far.session, &near, &own, &node) {
        console.warn(format_args!("the cards were not told of: {e}"));
    }
    Ok(sent)
}
