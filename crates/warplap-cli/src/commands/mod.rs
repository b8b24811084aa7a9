//! The commands, one file each.

pub(crate) mod bench;
pub(crate) mod completions;
mod devices;
mod doctor;
pub(crate) mod explain;
pub(crate) mod export;
pub(crate) mod record;
pub(crate) mod regret;
pub(crate) mod replay;
pub(crate) mod report;
pub(crate) mod space;
pub(crate) mod store;
pub(crate) mod tune;
pub(crate) mod variants;
mod vllm_moe;

use std::sync::Arc;

use crate::args::{Cli, Command};
use crate::console::Console;
use crate::failure::{Exit, Failure};

/// Runs a command.
pub(crate) fn run(cli: Cli, console: &Arc<Console>) -> Result<Exit, Failure> {
    let root = cli.global.store.as_deref();
    match cli.command {
        Command::Tune(tune) => tune.run(root, console),
        Command::Bench(bench) => bench.run(root, console),
        Command::Explain(explain) => explain.run(root, console),
        Command::Export(export) => export.run(root, console),
        Command::Report(report) => report.run(root, console),
        Command::Regret(regret) => regret.run(root, console),
        Command::Record(record) => record.run(root, console),
        Command::Replay(replay) => replay.run(console),
        Command::Space(space) => space.run(console),
        Command::Devices => devices::run(root, console),
        Command::Doctor => doctor::run(root, console),
        Command::Variants(variants) => variants.run(console),
        Command::Store(store) => store.run(root, console),
        // Whoever was started by a caller of its own never comes here.
        Command::Worker => Err(Failure::input("worker is not for people: warplap starts it by itself".to_string())),
        Command::Completions(completions) => completions.run(console),
    }
}
