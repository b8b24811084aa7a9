//! The program `warplap`.

use std::process::ExitCode;

fn main() -> ExitCode {
    warplap::worker::Worker::new().with_ground(warplap_spec::ground()).serve_if_asked();
    warplap_cli::run(std::env::args_os()).into()
}
