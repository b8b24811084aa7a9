//! The arguments: what every command shares, and the list of commands.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, CommandFactory, Parser, Subcommand};

use crate::commands::{
    bench, completions, explain, export, record, regret, replay, report, space, store, tune, variants,
};
use crate::failure::{EXIT_CODES, Exit};

/// Races kernel variants on this machine, proves them right, and remembers the winner.
#[derive(Parser)]
#[command(name = "warplap", version, max_term_width = 110, after_help = after_help(), propagate_version = true)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What every command takes.
#[derive(Args, Clone, Debug)]
pub(crate) struct Global {
    /// Print JSON lines on stdout and nothing else there
    #[arg(long, global = true, help_heading = "For every command")]
    pub(crate) json: bool,
    /// Keep records in this directory, or at file:/DIR or memory: (default: $WARPLAP_STORE, else warplap in your cache directory)
    #[arg(long, global = true, value_name = "DIR|URL", help_heading = "For every command")]
    pub(crate) store: Option<PathBuf>,
    /// No progress; warnings and answers only
    #[arg(long, short, global = true, help_heading = "For every command")]
    pub(crate) quiet: bool,
    /// Say more (twice: everything); tables are not shortened
    #[arg(long, short, global = true, action = clap::ArgAction::Count, help_heading = "For every command")]
    pub(crate) verbose: u8,
}

/// The commands.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Tune problems, or answer from the store; with no problem, a suite over all operations
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
    Doctor,
    /// List the variants of an operation, and how each stands to a problem
    Variants(variants::Variants),
    /// List, check, prune and exchange records
    #[command(subcommand)]
    Store(store::Store),
    /// Prove CUDA candidates and compile kernels for another process, which starts it
    #[command(hide = true)]
    Worker,
    /// Print completions for a shell
    Completions(completions::Completions),
}

fn after_help() -> String {
    let examples: Vec<&str> = warplap::any::operations().iter().map(|op| op.example).collect();
    format!(
        "Problems read op:field=value,…, or name a spec file of your own kernel (.toml, T1 .json)\n  {}\n\n{EXIT_CODES}",
        examples.join("\n  ")
    )
}

/// Reads the arguments; help, versions and bad ones are answered here.
pub(crate) fn read() -> Result<Cli, ExitCode> {
    if std::env::args_os().len() <= 1 {
        let _ = Cli::command().print_help();
        return Err(Exit::BadInput.code());
    }
    Cli::try_parse().map_err(|e| {
        // Nobody is left to hear that help cannot be printed.
        let _ = e.print();
        if e.use_stderr() { Exit::BadInput.code() } else { Exit::Ok.code() }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arguments_are_well_formed() {
        Cli::command().debug_assert();
    }
}
