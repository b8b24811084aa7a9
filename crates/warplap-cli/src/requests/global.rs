//! What every command takes.

use std::path::PathBuf;

use clap::Args;

/// What every command takes.
#[derive(Args, Clone, Debug)]
pub(crate) struct Global {
    /// Print JSON lines on stdout and nothing else there
    #[arg(long, global = true, help_heading = "For every command")]
    pub(crate) json: bool,
    /// Keep records in this directory, or at file:/DIR, memory: or postgres://user@host/db (default: $WARPLAP_STORE, else warplap in your cache
    /// directory)
    #[arg(long, global = true, value_name = "DIR|URL", help_heading = "For every command")]
    pub(crate) store: Option<PathBuf>,
    /// No progress; warnings and answers only
    #[arg(long, short, global = true, help_heading = "For every command")]
    pub(crate) quiet: bool,
    /// Say more (twice: everything); tables are not shortened
    #[arg(long, short, global = true, action = clap::ArgAction::Count, help_heading = "For every command")]
    pub(crate) verbose: u8,
}
