//! Proving what a store holds from elsewhere, for `store import`, and for `store verify` and `fleet pull` with `--prove`.

use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use serde_json::json;
use warplap::any::{ProvedAll, Wanted, prove};

use crate::console::{BAD, Console, GOOD, paint};
use crate::failure::{Exit, Failure};
use crate::machine::{Machine, listen};
use crate::progress::Progress;
use crate::units;

/// Proves every winner from elsewhere on the device that was named; where none was, on the best one and on the CPU.
pub(in crate::commands) fn run(
    root: Option<&Path>,
    device: Wanted,
    limit: Option<Duration>,
    console: &Arc<Console>,
) -> Result<Exit, Failure> {
    let best = Machine::open(root, device)?;
    let beside = device == Wanted::Best && best.device.kind() != "cpu";
    let exit = run_on(&best, limit, console)?;
    if !beside {
        return Ok(exit);
    }
    let cpu = run_on(&Machine::open(root, Wanted::CPU)?, limit, console)?;
    Ok(if matches!(exit, Exit::Ok) { cpu } else { exit })
}

/// Proves every winner from elsewhere on a device, and says what became of them.
fn run_on(machine: &Machine, limit: Option<Duration>, console: &Arc<Console>) -> Result<Exit, Failure> {
    let (stop, progress) = (listen(console), OnceLock::new());
    let result = prove(&machine.device, &machine.store, &stop, limit, &|n, count, problem| {
        drop(progress.get_or_init(|| Progress::new(console, count)).begin(n, problem));
    });
    drop(progress);
    let ProvedAll { passed, ties, failed, late, other } = &result;
    if console.json {
        for (key, candidate, why) in failed {
            console.line(&json!({"key": key, "candidate": candidate, "why": why}))?;
        }
        for (key, why) in late {
            console.line(&json!({"key": key, "late": why}))?;
        }
        let (failed, late) = (failed.len(), late.len());
        console.line(&json!({"proved": passed, "ties": ties, "failed": failed, "late": late,
                             "nothing_to_prove": other}))?;
    } else {
        for (key, candidate, why) in failed {
            console.say(format!("{}  {key}: {candidate}: {why}", paint(BAD, "failed")))?;
        }
        let proved = paint(GOOD, format!("{} proved here", units::some(*passed, "winner", "winners")));
        let ties = units::some(*ties, "tie", "ties");
        console.say(format!("{proved} with {ties}, {} failed, {other} with nothing to prove", failed.len()))?;
        if let Some((key, why)) = late.first() {
            let some = units::some(late.len(), "winner", "winners");
            console.warn(format_args!(
                "{some} not proved in time ({key}: {why}): a replay does not use them; \
                 warplap store verify --prove takes the time it needs"
            ));
        }
    }
    Ok(if failed.is_empty() { Exit::Ok } else { Exit::NoAnswer })
}
