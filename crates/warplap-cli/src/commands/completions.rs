//! `warplap completions SHELL`: the script a shell sources to complete commands and options.

use clap::{Args, Command};
use clap_complete::Shell;
use serde_json::json;

use crate::console::Console;
use crate::failure::{Exit, Failure};

/// Arguments of `completions`.
#[derive(Args)]
pub(crate) struct Completions {
    /// bash, zsh, fish, elvish or powershell
    shell: Shell,
}

impl Completions {
    pub(crate) fn run(&self, mut program: Command, console: &Console) -> Result<Exit, Failure> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut program, "warplap", &mut script);
        let script = String::from_utf8_lossy(&script).into_owned();
        if console.json {
            console.line(&json!({"shell": self.shell.to_string(), "script": script}))?;
        } else {
            console.say(script)?;
        }
        Ok(Exit::Ok)
    }
}
