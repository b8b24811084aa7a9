//! Proving what a store holds from elsewhere, for `store verify`, `store import` and `fleet pull` with `--prove`.

use std::path::Path;
use std::sync::Arc;

use serde_json::json;
use warplap::any::{ProvedAll, Wanted, prove};

use crate::console::{BAD, Console, GOOD, paint};
use crate::failure::{Exit, Failure};
use crate::machine::{Machine, listen};
use crate::progress::Progress;
use crate::units;

/// Proves every winner from elsewhere on a device, and says what became of them.
pub(in crate::commands) fn run(root: Option<&Path>, device: Wanted, console: &Arc<Console>) -> Result<Exit, Failure> {
    let machine = Machine::open(root, device)?;
    let (stop, progress) = (listen(console), std::cell::OnceCell::new());
    let result = prove(&machine.device, &machine.store, &stop, &|n, count, problem| {
        drop(progress.get_or_init(|| Progress::new(console, count)).begin(n, problem));
    });
    drop(progress);
    let ProvedAll { passed, ties, failed, other } = &result;
    if console.json {
        for (key, candidate, why) in failed {
            console.line(&json!({"key": key, "candidate": candidate, "why": why}))?;
        }
        console.line(&json!({"proved": passed, "ties": ties, "failed": failed.len(), "nothing_to_prove": other}))?;
    } else {
        for (key, candidate, why) in failed {
            console.say(format!("{}  {key}: {candidate}: {why}", paint(BAD, "failed")))?;
        }
        let proved = paint(GOOD, format!("{} proved here", units::some(*passed, "winner", "winners")));
        console.say(format!("{proved} with {ties} ties, {} failed, {other} with nothing to prove", failed.len()))?;
    }
    Ok(if failed.is_empty() { Exit::Ok } else { Exit::NoAnswer })
}
