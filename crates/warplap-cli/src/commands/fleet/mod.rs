//! `warplap fleet`: many machines tune together, one file a verb.

mod check;
mod fault;
mod init;
mod job;
mod join;
mod reach;
mod report;
mod shared;
mod split;
mod status;
mod sync;
mod trust;
mod tune;
mod want;
mod work;

use std::path::Path;
use std::sync::Arc;

use clap::Subcommand;

use crate::console::Console;
use crate::failure::{Exit, Failure};

/// Verbs of `fleet`.
#[derive(Subcommand)]
pub(crate) enum Fleet {
    /// Make the tables and roles of a fleet in a database
    Init(init::Init),
    /// Give this store a key, and ask to be let in
    Join(join::Join),
    /// List the kinds of device, their cards, and how far each is off its class
    Devices,
    /// Say that problems are wanted
    Want(Box<want::Want>),
    /// Say what is done, wanted and failed
    Status,
    /// Put all of that and the cards on a page
    Report(report::FleetReport),
    /// Take over what others have tuned
    Pull(sync::Pull),
    /// Send what this machine has tuned
    Push,
    /// Push, then pull
    Sync(sync::Pull),
    /// Race some winners of others here once more, and name those that are slow
    Check(check::Check),
    /// Say who may publish
    Trust(trust::FleetTrust),
    /// Tune problems on every class of devices that an engine finds; what the store has is not tuned again
    Tune(Box<tune::FleetTune>),
    /// Tune what job lines on stdin ask for and print event lines: what engines run
    Work(work::Work),
}

impl Fleet {
    pub(crate) fn run(self, root: Option<&Path>, console: &Arc<Console>) -> Result<Exit, Failure> {
        match self {
            Fleet::Init(init) => init.run(root, console),
            Fleet::Join(join) => join.run(root, console),
            Fleet::Devices => status::devices(root, console),
            Fleet::Want(want) => want.run(root, console),
            Fleet::Status => status::status(root, console),
            Fleet::Report(report) => report.run(root, console),
            Fleet::Pull(pull) => pull.run(root, console, false),
            Fleet::Push => sync::run_push(root, console),
            Fleet::Sync(pull) => pull.run(root, console, true),
            Fleet::Check(check) => check.run(root, console),
            Fleet::Trust(trust) => trust.run(root, console),
            Fleet::Tune(tune) => tune.run(root, console),
            Fleet::Work(work) => work.run(root, console),
        }
    }
}
