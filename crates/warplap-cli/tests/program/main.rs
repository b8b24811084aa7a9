//! The real program, run as a user runs it: arguments in, exit code, stdout and stderr out.

mod bad_input;
mod bundles;
mod cuda_kernels;
#[cfg(feature = "fleet")]
mod fleet_here;
#[cfg(feature = "fleet")]
mod fleet_split;
#[cfg(feature = "fleet")]
mod fleet_store;
mod kernels;
mod manners;
mod page;
mod spaces;
mod verbs;
mod waiting;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

use serde_json::Value;

/// A problem that is tuned in a moment.
const SMALL: &str = "gemm:m=16,n=16,k=16,dtype=f32";

/// A store of its own for one test.
struct Corner {
    dir: tempfile::TempDir,
}

impl Corner {
    /// An empty store that knows the machine's ceilings: measuring them takes a second, once for all tests.
    fn new() -> Corner {
        static SEED: OnceLock<tempfile::TempDir> = OnceLock::new();
        let seed = SEED.get_or_init(|| {
            let dir = tempfile::tempdir().unwrap();
            let status = program(&dir.path().join("store")).args(["tune", SMALL, "--budget", "0.05", "-q"]).output();
            assert!(status.unwrap().status.success());
            dir
        });
        let place = Corner { dir: tempfile::tempdir().unwrap() };
        let empty = place.run(&["store", "import", place.empty_bundle().to_str().unwrap()]);
        assert_eq!(empty.code, 0, "{}", empty.stderr);
        copy(&seed.path().join("store/devices-v1"), &place.store().join("devices-v1"));
        place
    }

    fn store(&self) -> PathBuf {
        self.dir.path().join("store")
    }

    /// The bundle of an empty store.
    fn empty_bundle(&self) -> PathBuf {
        let path = self.dir.path().join("empty.bundle");
        std::fs::write(&path, warplap::core::store::bundle::Bundle::default().to_bytes()).unwrap();
        path
    }

    /// Runs the program with this store.
    fn run(&self, args: &[&str]) -> Ended {
        Ended::of(program(&self.store()).args(args).output().unwrap())
    }

    /// Every file of the store with its content.
    fn snapshot(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut files = BTreeMap::new();
        walk(&self.store(), &mut files);
        files
    }
}

/// How a run ended.
struct Ended {
    code: i32,
    stdout: String,
    stderr: String,
}

impl Ended {
    fn of(output: Output) -> Ended {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        let code = output.status.code().expect("the program ends by itself, not by a signal");
        Ended { code, stdout: text(output.stdout), stderr: text(output.stderr) }
    }

    /// The JSON lines on stdout; every line must be one.
    fn lines(&self) -> Vec<Value> {
        let line = |l| serde_json::from_str(l).unwrap_or_else(|e| panic!("{e} in: {l}\n{}", self.stderr));
        self.stdout.lines().map(line).collect()
    }
}

/// The program with a store, and nothing of the surroundings.
fn program(store: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_warplap"));
    command.arg("--store").arg(store).stdin(Stdio::null());
    command.env_remove("WARPLAP_STORE").env_remove("NO_COLOR").env_remove("CLICOLOR_FORCE");
    command
}

/// Whether this build has an operation.
fn has(op: &str) -> bool {
    warplap::any::operation(op).is_ok()
}

fn copy(from: &Path, to: &Path) {
    use std::os::unix::fs::PermissionsExt;
    let private = |path: &Path, mode| std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    std::fs::create_dir_all(to).unwrap();
    private(to, 0o700);
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), &target).unwrap();
            private(&target, 0o600);
        }
    }
}

fn walk(dir: &Path, files: &mut BTreeMap<PathBuf, Vec<u8>>) {
    for entry in std::fs::read_dir(dir).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() { walk(&path, files) } else { drop(files.insert(path.clone(), std::fs::read(&path).unwrap())) }
    }
}
