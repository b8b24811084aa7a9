//! A program with another user's rights does not listen to the environment of the one who started it.
#![cfg(target_os = "linux")]

mod support;

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use support::{part, say};
use warplap_store::io::environment;

const NOBODY: u32 = 65534;
const NAMES: [&str; 8] = [
    "WARPLAP_CUDA_DRIVER",
    "WARPLAP_NVRTC",
    "WARPLAP_NVML",
    "WARPLAP_CUBLASLT",
    "WARPLAP_BLAS",
    "WARPLAP_WORKER",
    "WARPLAP_STORE",
    "CC",
];

/// How many of the variables this program with this mode listens to, started by nobody.
fn heard(program: &Path, mode: u32) -> String {
    std::fs::set_permissions(program, std::fs::Permissions::from_mode(mode)).unwrap();
    let mut command = Command::new(program);
    command.args(["a_set_uid_program_ignores_them", "--exact", "--nocapture", "--test-threads=1"]);
    command.env("WARPLAP_TEST_PART", "listen").uid(NOBODY).gid(NOBODY).current_dir("/").stdin(Stdio::null());
    command.envs(NAMES.map(|name| (name, "/tmp/planted")));
    let output = command.output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    said.lines().find_map(|l| l.strip_prefix("heard ")).unwrap_or_else(|| panic!("{said}")).to_string()
}

#[test]
fn a_set_uid_program_ignores_them() {
    if part().is_some() {
        let set = NAMES.iter().filter(|name| environment::var(name).is_some()).count();
        let store = warplap_store::default_address().is_ok();
        say(std::io::stderr(), format!("heard {set} {store}"));
        return;
    }
    if !rustix::process::geteuid().is_root() {
        say(std::io::stderr(), "SKIPPED: a set-uid program needs root to be made".into());
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let program = dir.path().join("program");
    std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    assert_eq!(heard(&program, 0o755), "8 true", "an ordinary program listens");
    assert_eq!(heard(&program, 0o4755), "0 false", "set-uid");
    assert_eq!(heard(&program, 0o2755), "0 false", "set-gid");
}
