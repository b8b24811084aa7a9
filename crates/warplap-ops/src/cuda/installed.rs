//! NVRTC of one version, installed once from the Python package into the target folder. Knows nothing but files, so
//! that tests of other packages can include it.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

const PACKAGE: &str = "nvidia-cuda-nvrtc==13.0.88";

/// What to do where it cannot be had.
pub(crate) const REMEDY: &str = "the CUDA kernels are compiled with NVRTC from the Python package nvidia-cuda-nvrtc: give the \
    test python3 with venv and a network, or set WARPLAP_NVRTC to a folder that holds libnvrtc, or WARPLAP_NO_NVRTC=1 to skip";

/// Whether `WARPLAP_NO_NVRTC=1` says that there shall be none, which is said aloud.
pub(crate) fn is_unwanted() -> bool {
    let unwanted = std::env::var_os("WARPLAP_NO_NVRTC").is_some_and(|v| v == "1");
    if unwanted {
        use std::io::Write;
        let _ = writeln!(std::io::stderr(), "SKIPPED: CUDA kernels were not compiled (WARPLAP_NO_NVRTC=1)");
    }
    unwanted
}

/// The folder of the installed library, which the first test that asks for it installs.
pub(crate) fn folder() -> PathBuf {
    installed().unwrap_or_else(|why| panic!("{why}; {REMEDY}"))
}

fn installed() -> Result<PathBuf, String> {
    let said = |what: &str, e: std::io::Error| format!("{what}: {e}");
    let exe = std::env::current_exe().map_err(|e| said("the test's own path", e))?;
    let target = exe.ancestors().nth(3).ok_or("the test does not lie in a target folder")?;
    let room = target.join("nvrtc-venv");
    fs::create_dir_all(&room).map_err(|e| said("the environment's folder", e))?;
    // Several tests, threads and processes ask at once: one installs, the others wait.
    let lock = File::create(room.join(".lock")).map_err(|e| said("the environment's lock", e))?;
    lock.lock().map_err(|e| said("the environment's lock", e))?;
    if let Some(path) = library(&room) {
        return Ok(path);
    }
    run(Command::new("python3").args(["-m", "venv"]).arg(&room))?;
    let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", PACKAGE];
    run(Command::new(room.join("bin/python")).args(pip))?;
    library(&room).ok_or_else(|| format!("{PACKAGE} was installed but brought no libnvrtc"))
}

fn library(room: &Path) -> Option<PathBuf> {
    let pythons = fs::read_dir(room.join("lib")).ok()?.flatten();
    let folders = pythons.map(|p| p.path().join("site-packages/nvidia/cu13/lib"));
    folders.into_iter().find(|f| f.join("libnvrtc.so.13").is_file())
}

fn run(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|e| format!("{command:?}: {e}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{command:?} ended with {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim()))
}
