//! `warplap fleet status` and `fleet devices`: what a fleet has, wants and could not do, by kind of device.

use std::path::Path;

use serde_json::json;
use warplap_fleet::{roster, wants};

use super::reach::reach;
use crate::console::Console;
use crate::failure::{Exit, Failure};
use crate::table::Table;

/// What is wanted, done and failed.
pub(super) fn status(root: Option<&Path>, console: &Console) -> Result<Exit, Failure> {
    let mut far = reach(None, root)?;
    let classes = far.ask(roster::classes)?;
    let wanted = far.ask(|session| wants::all(session, None))?;
    let open: Vec<_> = wanted.iter().filter(|w| w.editions == 0).collect();
    if console.json {
        console.line(&json!({"far": far.title, "classes": classes, "wanted": open}))?;
        return Ok(Exit::Ok);
    }
    let mut table = Table::new(&["device", ">keys", ">machines", ">wanted", ">failed"]);
    for c in &classes {
        let numbers = [c.keys, c.origins, c.wanted, c.failed].map(|n| (n as usize).into());
        let [keys, origins, wanted, failed] = numbers;
        table.row([c.device.as_str().into(), keys, origins, wanted, failed]);
    }
    match classes.is_empty() {
        true => console.say(format!("{} knows nothing yet", far.title))?,
        false => console.say(table.render(console.width()))?,
    }
    for w in open.iter().filter(|w| w.failed > 0) {
        let again = if w.given_up { "left alone" } else { "tried again" };
        let why = w.why.as_deref().unwrap_or("nobody said why");
        console.say(format!("{} on {}: failed {} times ({again}): {why}", w.problem, w.device, w.failed))?;
    }
    Ok(Exit::Ok)
}

/// The kinds of device there are.
pub(super) fn devices(root: Option<&Path>, console: &Console) -> Result<Exit, Failure> {
    let mut far = reach(None, root)?;
    let classes = far.ask(roster::classes)?;
    let cards = far.ask(warplap_fleet::cards::all)?;
    if console.json {
        console.lines(classes.iter().map(|c| {
            let own: Vec<_> = cards.iter().filter(|card| card.device == c.device).collect();
            json!({"device": c.device, "hard": c.hard, "keys": c.keys, "cards": own})
        }))?;
        return Ok(Exit::Ok);
    }
    let mut table = Table::new(&["device", "card", "node", ">off its class", "~ceilings"]);
    for card in &cards {
        let off = card.off.map_or("–".to_string(), |off| format!("{:+.1} %", 100.0 * off));
        let ceilings: Vec<String> = card.ceilings.iter().map(|(name, value)| format!("{name} {value:.3e}")).collect();
        table.row([
            card.device.as_str().into(),
            card.id.as_str().into(),
            card.node.as_str().into(),
            off.into(),
            ceilings.join(", ").into(),
        ]);
    }
    match cards.is_empty() {
        true => console.say("no card has told of itself yet (warplap fleet push)")?,
        false => console.say(table.render(console.width()))?,
    }
    Ok(Exit::Ok)
}
