//! The arguments: the list of commands, and who runs each.

use std::ffi::OsString;
use std::io::Write;
use std::sync::Arc;

use clap::{CommandFactory, Parser, Subcommand};
use warplap::core::sanitize_text::{MESSAGE, is_unseen, message, visible};

#[cfg(feature = "fleet")]
use crate::commands::fleet;
use crate::commands::{
    bench, completions, devices, doctor, explain, export, record, regret, replay, report, space, store, tune, variants,
    vllm,
};
use crate::console::Console;
use crate::failure::{EXIT_CODES, Exit, Failure};
use crate::global::Global;

/// Races kernel variants on this machine, proves them right, and remembers the winner.
#[derive(Parser)]
#[command(name = "warplap", version, max_term_width = 110, after_help = after_help(), propagate_version = true)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The commands.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Tune problems, or answer from the store; with no problem, some of every operation
    Tune(Box<tune::Tune>),
    /// Verify and time one variant, or every variant, alone; sweep one field
    Bench(Box<bench::Bench>),
    /// Say why a winner won: samples, losers, rejections, and how the lookup matched
    Explain(explain::Explain),
    /// Write a winner down as a C header, or all trials as T4 results or a Kernel Tuner cachefile
    Export(export::Export),
    /// Show all trials of a problem on one page that needs no network
    Report(report::Report),
    /// Measure what rounding sizes to a bucket costs a problem
    Regret(regret::Regret),
    /// Time every config of a variant and keep them as a space to replay
    Record(record::Record),
    /// Run a search on a recorded space, many times over, and score it
    Replay(replay::Replay),
    /// Count and sample the legal configs of axes and rules
    Space(space::Space),
    /// List the devices and what they can do
    Devices,
    /// Check clock, noise, load and store, and say what is missing
    Doctor {
        /// Measure the CPU's ceilings anew, in place of those in the store.
        #[arg(long)]
        again: bool,
    },
    /// List the variants of an operation, and how each stands to a problem
    Variants(variants::Variants),
    /// List, check, prune and exchange records
    #[command(subcommand)]
    Store(store::Store),
    /// Tune for vLLM ahead: tables of fused experts, in Python
    Vllm(vllm::Vllm),
    /// Tune on many machines together: a store in PostgreSQL, engines that place jobs
    #[cfg(feature = "fleet")]
    #[command(subcommand)]
    Fleet(Box<fleet::Fleet>),
    /// Prove CUDA candidates and compile kernels for another process, which starts it
    #[command(hide = true)]
    Worker,
    /// Print completions for a shell
    Completions(completions::Completions),
}

impl Cli {
    /// Runs the command.
    pub(crate) fn run(self, console: &Arc<Console>) -> Result<Exit, Failure> {
        let root = self.global.store.as_deref();
        match self.command {
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
            Command::Doctor { again } => doctor::run(again, root, console),
            Command::Variants(variants) => variants.run(console),
            Command::Store(store) => store.run(root, console),
            Command::Vllm(vllm) => vllm.run(root, console),
            #[cfg(feature = "fleet")]
            Command::Fleet(fleet) => fleet.run(root, console),
            // Whoever was started by a caller of its own never comes here.
            Command::Worker => Err(Failure::input("worker is not for people: warplap starts it by itself".to_string())),
            Command::Completions(completions) => completions.run(Cli::command(), console),
        }
    }
}

fn after_help() -> String {
    let examples: Vec<&str> = warplap::any::operations().iter().map(|op| op.example).collect();
    format!(
        "Problems read op:field=value,…, or name a spec file of your own kernel (.toml, T1 .json)\n  {}\n\n{EXIT_CODES}",
        examples.join("\n  ")
    )
}

/// Reads the arguments; help, versions and bad ones are answered here.
pub(crate) fn read(arguments: Vec<OsString>) -> Result<Cli, Exit> {
    if arguments.len() <= 1 {
        let _ = Cli::command().print_help();
        return Err(Exit::BadInput);
    }
    let odd = |a: &OsString| a.len() > MESSAGE / 2 || a.to_string_lossy().chars().any(is_unseen);
    let odd = arguments.iter().any(odd);
    Cli::try_parse_from(arguments).map_err(|e| {
        // Nobody is left to hear that help cannot be printed.
        let _ = match odd {
            true if e.use_stderr() => std::io::stderr().write_all(plain(&e.render().to_string()).as_bytes()),
            _ => e.print(),
        };
        if e.use_stderr() { Exit::BadInput } else { Exit::Ok }
    })
}

/// A sentence about arguments that quotes them: each line of some length, and with nothing that is not seen.
fn plain(text: &str) -> String {
    text.lines().map(|line| format!("{}\n", message(&visible(line)))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arguments_are_well_formed() {
        Cli::command().debug_assert();
    }
}
