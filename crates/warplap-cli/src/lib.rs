//! The program `warplap`: tunes problems, explains winners, keeps the store. Arguments come in; tables, JSON lines and
//! an exit code go out. A library, so that whoever carries the program need not carry a second file.

mod commands;
mod facts;
mod failure;
#[doc(hidden)]
pub mod fuzzing;
mod kept;
mod machine;
mod output;
mod ranking;
mod requests;

use output::{answer, console, live, notices, progress, story, strip, table, units};
use requests::{args, global, names, race_args, suite, sweep};

use std::ffi::OsString;

/// Lets a write that is over a limit (`ulimit -f`) be an error like any other: a signal would end the program without an
/// answer.
fn survive_limits() {
    #[cfg(unix)]
    // SAFETY: ignoring a signal runs no code of ours when it comes.
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
    }
}

/// Runs the program with its arguments, the first of which is its name; the exit code goes out.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> u8 {
    survive_limits();
    #[cfg(feature = "fleet")]
    warplap_fleet::register();
    let cli = match args::read(arguments.into_iter().collect()) {
        Ok(cli) => cli,
        Err(exit) => return exit.number(),
    };
    let console = console::Console::new(&cli.global);
    let left_out = notices::listen(&console);
    let ended = cli.run(&console);
    left_out.tell(&console);
    match ended {
        Ok(exit) => exit.number(),
        Err(failure) => {
            console.fail(&failure);
            failure.exit().number()
        }
    }
}
