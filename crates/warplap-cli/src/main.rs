//! The program `warplap`: tunes problems, explains winners, keeps the store. Arguments come in; tables, JSON lines and
//! an exit code go out.

mod answer;
mod args;
mod commands;
mod console;
mod facts;
mod failure;
mod global;
mod kept;
mod live;
mod machine;
mod names;
mod notices;
mod progress;
mod race_args;
mod ranking;
mod story;
mod strip;
mod suite;
mod sweep;
mod table;
mod units;

use std::process::ExitCode;

fn main() -> ExitCode {
    warplap::worker::Worker::new().with_ground(warplap_spec::ground()).serve_if_asked();
    let cli = match args::read() {
        Ok(cli) => cli,
        Err(code) => return code,
    };
    let console = console::Console::new(&cli.global);
    notices::listen(&console);
    match cli.run(&console) {
        Ok(exit) => exit.code(),
        Err(failure) => {
            console.fail(&failure);
            failure.exit().code()
        }
    }
}
