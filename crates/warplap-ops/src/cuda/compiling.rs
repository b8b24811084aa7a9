//! The compiler of the tests: NVRTC of one version, installed once from the Python package into the target folder, so that
//! kernels are compiled on machines without CUDA. Chips to compile for come with it.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use warplap_cuda::{Chip, Compiler};

use super::plan::Plan;

const PACKAGE: &str = "nvidia-cuda-nvrtc==13.0.88";

/// The compiler; `None`, said aloud, where `WARPLAP_NO_NVRTC=1` says that there shall be none. A missing Python or network
/// is a failure: a kernel that nobody compiled is not a tested one.
pub(crate) fn compiler() -> Option<Compiler> {
    if std::env::var_os("WARPLAP_NO_NVRTC").is_some_and(|v| v == "1") {
        use std::io::Write;
        let _ = writeln!(std::io::stderr(), "SKIPPED: CUDA kernels were not compiled (WARPLAP_NO_NVRTC=1)");
        return None;
    }
    if std::env::var_os("WARPLAP_NVRTC").is_some() {
        return Some(Compiler::find().unwrap_or_else(|why| panic!("WARPLAP_NVRTC: {why}")));
    }
    let remedy = "the CUDA kernels are compiled with NVRTC from the Python package nvidia-cuda-nvrtc: give the test python3 \
         with venv and a network, or set WARPLAP_NVRTC to a folder that holds libnvrtc, or WARPLAP_NO_NVRTC=1 to skip";
    let folder = installed().unwrap_or_else(|why| panic!("{why}; {remedy}"));
    Some(Compiler::within(&folder).unwrap_or_else(|why| panic!("{why}; {remedy}")))
}

/// The folder of the installed library, which the first test that asks for it installs.
fn installed() -> Result<PathBuf, String> {
    let said = |what: &str, e: std::io::Error| format!("{what}: {e}");
    let exe = std::env::current_exe().map_err(|e| said("the test's own path", e))?;
    let target = exe.ancestors().nth(3).ok_or("the test does not lie in a target folder")?;
    let room = target.join("nvrtc-venv");
    fs::create_dir_all(&room).map_err(|e| said("the environment's folder", e))?;
    // Several tests, threads and processes ask at once: one installs, the others wait.
    let lock = File::create(room.join(".lock")).map_err(|e| said("the environment's lock", e))?;
    lock.lock().map_err(|e| said("the environment's lock", e))?;
    if let Some(found) = library(&room) {
        return Ok(found);
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

/// A chip of a capability, with the shared memory such chips have.
pub(crate) fn chip(capability: (u32, u32)) -> Chip {
    let shared_memory = match capability {
        (8, 0) => 166_912,
        (8, _) | (12, _) => 101_376,
        _ => 232_448,
    };
    Chip { name: "a chip to compile for".into(), capability, shared_memory, ..Chip::h200() }
}

/// Compiles a plan for a chip and checks what the assembler says of it against what the host counted.
pub(crate) fn check(plan: &Plan, chip: &Chip, compiler: &Compiler, what: &str) {
    let cubin = plan.source.compile(compiler, &chip.arch());
    let report = cubin.unwrap_or_else(|why| panic!("{what} on {}: {why}", chip.arch())).report;
    let what = format!("{what} on {}: {report:?}", chip.arch());
    assert_eq!(report.refusal(), None, "{what}");
    assert_eq!(report.spill_bytes, 0, "{what}");
    assert!(report.registers > 0 && report.registers * plan.threads <= 65536, "{what}");
    assert!(plan.shared + u64::from(report.shared_bytes) <= chip.shared_memory, "{what}: {} asked for", plan.shared);
}
