//! What the fleet knows, for whoever tunes: classes come in; the near store is up to date afterwards, and what is wanted
//! goes out. What failed is told.

use std::path::Path;

use warplap::core::key::Key;
use warplap_fleet::jobs::{Class, Event, Job, State};
use warplap_fleet::{follow, wants};

use super::reach::{is_far, reach, said};
use crate::console::Console;
use crate::failure::Failure;

/// A key that somebody wants on a class.
pub(super) struct Open {
    pub(super) device: String,
    pub(super) key: Key,
    pub(super) problem: String,
}

/// Takes over what others have tuned of these classes, and says what is wanted of them and was not given up. Nothing
/// where the store has no far side.
pub(super) fn catch_up(root: Option<&Path>, classes: &[Class], console: &Console) -> Result<Vec<Open>, Failure> {
    if !is_far(root) {
        return Ok(Vec::new());
    }
    let mut far = reach(None, root)?;
    let mut open = Vec::new();
    for class in classes {
        let (own, near) = (far.own.clone(), far.near.clone());
        let pulled = follow::pull(&mut far.session, &near, &own, Some(&class.device), false, None);
        console.warn_of(&pulled.map_err(|e| said(&far.title, &e))?.refused);
        let wanted = far.ask(|session| wants::all(session, Some(&class.device)))?;
        open.extend(wanted.into_iter().filter(|w| w.editions == 0 && !w.given_up).map(|w| Open {
            device: w.device,
            key: Key::new(&w.op, w.key),
            problem: w.problem,
        }));
    }
    Ok(open)
}

/// Tells the fleet what failed, and where: a key that fails three times on two nodes is left alone.
pub(super) fn report_failures<'e>(
    root: Option<&Path>,
    ended: impl Iterator<Item = (&'e Job, &'e Key, &'e Event)>,
    console: &Console,
) -> Result<(), Failure> {
    let failed: Vec<_> = ended.filter(|(.., event)| event.state == State::Failed).collect();
    if failed.is_empty() || !is_far(root) {
        return Ok(());
    }
    let mut far = reach(None, root)?;
    for (job, key, event) in failed {
        let why = event.why.as_deref().unwrap_or("nobody said why");
        let text = far.ask(|session| wants::failed(session, &job.device, &key.hash(), &event.node, why));
        text.unwrap_or_else(|e| console.warn(e));
    }
    Ok(())
}
