//! `warplap fleet`: many machines tune together, one file a verb.

mod fault;
mod job;
mod tune;
mod work;

use std::path::Path;
use std::sync::Arc;

use clap::Subcommand;

use crate::console::Console;
use crate::failure::{Exit, Failure};

/// Verbs of `fleet`.
#[derive(Subcommand)]
pub(crate) enum Fleet {
    /// Tune problems on every class of devices that an engine finds; what the store has is not tuned again
    Tune(Box<tune::Tune>),
    /// Tune what job lines on stdin ask for and print event lines: what engines run
    Work(work::Work),
}

impl Fleet {
    pub(crate) fn run(self, root: Option<&Path>, console: &Arc<Console>) -> Result<Exit, Failure> {
        match self {
            Fleet::Tune(tune) => tune.run(root, console),
            Fleet::Work(work) => work.run(root, console),
        }
    }
}
