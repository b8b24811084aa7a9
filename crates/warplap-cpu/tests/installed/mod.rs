//! OpenBLAS of both widths of integers, installed once from Python packages into the target folder: NumPy's own (64
//! bits) and SciPy's build for others (32 bits). Knows nothing but files, so that tests of other packages can include
//! it.
#![allow(dead_code)] // Each test takes what it needs.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

const PACKAGES: [&str; 2] = ["numpy", "scipy-openblas32"];

const REMEDY: &str = "BLAS is tested with the libraries of the Python packages numpy and scipy-openblas32: give the \
    test python3 with venv and a network, or set WARPLAP_BLAS to a library's file, or WARPLAP_BLAS=off to skip";

/// NumPy's library and the one of 32-bit integers; `None`, said aloud, where `WARPLAP_BLAS=off` says that there shall be
/// none. A missing Python or network is a failure: a library that nobody called is not a tested one.
pub(crate) fn libraries() -> Option<[PathBuf; 2]> {
    if std::env::var_os("WARPLAP_BLAS").is_some_and(|v| v == "off") {
        let _ = writeln!(std::io::stderr(), "SKIPPED: no BLAS library was called (WARPLAP_BLAS=off)");
        return None;
    }
    Some(installed().unwrap_or_else(|why| panic!("{why}; {REMEDY}")))
}

fn installed() -> Result<[PathBuf; 2], String> {
    let said = |what: &str, e: std::io::Error| format!("{what}: {e}");
    let exe = std::env::current_exe().map_err(|e| said("the test's own path", e))?;
    let target = exe.ancestors().nth(3).ok_or("the test does not lie in a target folder")?;
    let room = target.join("blas-venv");
    fs::create_dir_all(&room).map_err(|e| said("the environment's folder", e))?;
    // Several tests, threads and processes ask at once: one installs, the others wait.
    let lock = File::create(room.join(".lock")).map_err(|e| said("the environment's lock", e))?;
    lock.lock().map_err(|e| said("the environment's lock", e))?;
    if let Some(result) = both(&room) {
        return Ok(result);
    }
    run(Command::new("python3").args(["-m", "venv"]).arg(&room))?;
    let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
    run(Command::new(room.join("bin/python")).args(pip).args(PACKAGES))?;
    both(&room).ok_or_else(|| format!("{} were installed but brought no OpenBLAS", PACKAGES.join(" and ")))
}

fn both(room: &Path) -> Option<[PathBuf; 2]> {
    let pythons = fs::read_dir(room.join("lib")).ok()?.flatten();
    let packages = pythons.map(|p| p.path().join("site-packages")).find(|p| p.is_dir())?;
    let within = |folder: &str| {
        let files = fs::read_dir(packages.join(folder)).ok()?.flatten().map(|e| e.path());
        let named = |f: &PathBuf| f.file_name().is_some_and(|n| n.to_string_lossy().starts_with("libscipy_openblas"));
        files.into_iter().find(named)
    };
    Some([within("numpy.libs")?, within("scipy_openblas32/lib")?])
}

fn run(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|e| format!("{command:?}: {e}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{command:?} ended with {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim()))
}
