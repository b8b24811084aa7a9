//! `warplap doctor`: is this machine fit to measure on? Clock, noise, load, ceilings and store are looked at; what is
//! missing is named, with the way to get it.

use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::time::Instant;

use serde_json::json;
use warplap::core::device::Device;
use warplap::core::measure::summarize;
use warplap::core::store::{self, Address, Store, StoreError};
use warplap::cpu::{blas, clock, load};
use warplap::{Cpu, Cuda};

use super::devices;
use crate::console::{BAD, Console, DIM, GOOD, WARN, paint};
use crate::failure::{Exit, Failure};
use crate::units;

/// How a check ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CheckState {
    Good,
    Note,
    Bad,
}

/// One check: what was looked at, what was found, what to do.
struct DoctorCheck {
    name: &'static str,
    state: CheckState,
    result: String,
    remedy: Option<String>,
}

fn good(name: &'static str, result: String) -> DoctorCheck {
    DoctorCheck { name, state: CheckState::Good, result, remedy: None }
}

fn note(name: &'static str, result: String, remedy: &str) -> DoctorCheck {
    DoctorCheck { name, state: CheckState::Note, result, remedy: Some(remedy.to_string()) }
}

pub(crate) fn run(again: bool, root: Option<&Path>, console: &Console) -> Result<Exit, Failure> {
    let cpu = Cpu::new();
    let (store_checks, store) = look_at_store(root);
    let mut checks = vec![build(), clock_check(), noise(), other_load(&cpu), governor(), quota()];
    checks.extend(libraries());
    checks.extend(store_checks);
    match again {
        true => cpu.renew_ceilings(&store),
        false => cpu.get_ready(&store, f64::INFINITY),
    }
    checks.push(match cpu.ceilings() {
        Some(c) if c.load >= load::CONTENDED => {
            let result = format!("{}, measured beside other work", devices::shown(&c));
            note(
                "ceilings",
                result,
                "warplap doctor --again measures them anew; so does the next tune on a quiet machine",
            )
        }
        Some(c) => good("ceilings", devices::shown(&c)),
        None => note("ceilings", "not measured".into(), "warplap tune measures them"),
    });
    checks.extend(cuda(&store));
    let bad = checks.iter().any(|c| c.state == CheckState::Bad);
    for check in &checks {
        let word = match check.state {
            CheckState::Good => "ok",
            CheckState::Note => "note",
            CheckState::Bad => "bad",
        };
        if console.json {
            console
                .line(&json!({"check": check.name, "state": word, "found": check.result, "remedy": check.remedy}))?;
            continue;
        }
        let style = match check.state {
            CheckState::Good => GOOD,
            CheckState::Note => WARN,
            CheckState::Bad => BAD,
        };
        let mut text = format!("{}  {:<12} {}", paint(style, format!("{word:<4}")), check.name, check.result);
        if let Some(remedy) = &check.remedy {
            text.push_str(&format!("\n{:19}{}", "", paint(DIM, remedy)));
        }
        console.say(text)?;
    }
    Ok(if bad { Exit::NoAnswer } else { Exit::Ok })
}

/// The GPUs: driver, compiler, readings, ceilings.
fn cuda(store: &Store) -> Vec<DoctorCheck> {
    let count = match Cuda::count() {
        Ok(count) => count,
        Err(why) => {
            let result = format!("{why}; the CPU is used");
            return vec![DoctorCheck { name: "cuda", state: CheckState::Note, result, remedy: None }];
        }
    };
    let mut checks = Vec::new();
    for ordinal in 0..count {
        let device = match Cuda::open(ordinal) {
            Ok(device) => device,
            Err(why) => {
                checks.push(note("cuda", format!("cuda:{ordinal}: {why}"), "nvidia-smi may say more"));
                continue;
            }
        };
        let (chip, (major, minor)) = (device.chip(), device.chip().driver);
        checks.push(good("cuda", format!("cuda:{ordinal}: {}, driver for CUDA {major}.{minor}", chip.name)));
        checks.push(match device.compiler() {
            Ok(c) => good("compiler", format!("NVRTC {}.{} for {}", c.version().0, c.version().1, chip.arch())),
            Err(why) => note("compiler", why.to_string(), "pip install nvidia-cuda-nvrtc, or install the CUDA toolkit"),
        });
        checks.push(match device.readings() {
            Some(now) if now.contended() => {
                note("gpu now", devices::said(&now), "verdicts will be graded 'contended'; tune when the GPU is free")
            }
            Some(now) if !now.held_by.is_empty() => {
                note("gpu now", devices::said(&now), "what is measured now is slower than the GPU can be")
            }
            Some(now) => good("gpu now", devices::said(&now)),
            None => note("gpu now", "NVML does not tell clocks or neighbours".into(), "nothing to do"),
        });
        device.get_ready(store, f64::INFINITY);
        checks.push(match device.ceilings() {
            Some(c) => good("ceilings", devices::shown(&c)),
            None => note("ceilings", "could not be measured".into(), "look at the compiler's check"),
        });
    }
    checks
}

fn build() -> DoctorCheck {
    if cfg!(debug_assertions) {
        let result = "this program was built without full optimisation: its numbers are not what users get".into();
        return note("build", result, "cargo build --release");
    }
    good("build", format!("warplap {}, optimised", env!("CARGO_PKG_VERSION")))
}

fn clock_check() -> DoctorCheck {
    let mut steps: Vec<f64> = Vec::new();
    let started = Instant::now();
    while steps.len() < 1000 && started.elapsed().as_secs_f64() < 0.2 {
        let from = Instant::now();
        let mut step = from.elapsed();
        while step.is_zero() {
            step = from.elapsed();
        }
        steps.push(step.as_secs_f64() * 1e9);
    }
    let resolution = steps.into_iter().fold(f64::INFINITY, f64::min);
    let overhead = clock::overhead() * 1e9;
    let result = format!("resolution {resolution:.0} ns, reading it costs {overhead:.0} ns");
    if resolution > 1000.0 || overhead > 500.0 {
        return note("clock", result, "a virtual machine with a slow clock source: prefer tsc or kvm-clock");
    }
    good("clock", result)
}

/// A fixed piece of arithmetic of about 0.2 ms, timed again and again.
fn noise() -> DoctorCheck {
    let work = || {
        let started = Instant::now();
        let mut x = black_box(0.5f64);
        for _ in 0..50_000 {
            x = black_box(x * 0.999 + 0.001);
        }
        black_box(x);
        started.elapsed().as_secs_f64()
    };
    let samples: Vec<f64> = (0..600).map(|_| work()).collect();
    let m = summarize(&samples, 1);
    let slow = samples.iter().filter(|s| **s * 1e6 > 1.25 * m.median_us).count();
    let share = 100.0 * slow as f64 / samples.len() as f64;
    let result = format!("{:.1} % from sample to sample, {share:.1} % of samples disturbed", 100.0 * m.sigma);
    if m.sigma > 0.05 || share > 10.0 {
        return note("noise floor", result, "close other programs, or give races a larger --budget");
    }
    good("noise floor", result)
}

fn other_load(cpu: &Cpu) -> DoctorCheck {
    // We wait here with one thread, not with all.
    let Some(others) = load::others(1) else {
        return note("other load", "the operating system does not tell".into(), "nothing to do");
    };
    let result = format!("{others:.0} other threads want to run; this machine has {}", cpu.threads());
    if others / cpu.threads() as f64 > load::CONTENDED {
        return note("other load", result, "verdicts will be graded 'contended'; tune when the machine is quiet");
    }
    good("other load", result)
}

fn governor() -> DoctorCheck {
    let path = "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor";
    match std::fs::read_to_string(path).map(|t| t.trim().to_string()) {
        Ok(governor) if governor == "performance" => good("governor", governor),
        Ok(governor) => note("governor", governor, "sudo cpupower frequency-set -g performance"),
        Err(_) => good("governor", "not ours to set (the host decides)".into()),
    }
}

/// The BLAS libraries that race on the CPU, loaded to see that they can be.
fn libraries() -> Vec<DoctorCheck> {
    let result = blas::installed();
    let opened = |seen: &blas::Seen| match seen.open() {
        Ok(library) => {
            good("blas", format!("{}: {} ({})", seen.maker().word(), library.version(), seen.path().display()))
        }
        Err(why) => note("blas", why, "it does not race; WARPLAP_BLAS names another one"),
    };
    let mut checks: Vec<DoctorCheck> = result.libraries().iter().map(opened).collect();
    if checks.is_empty() {
        checks.push(DoctorCheck { name: "blas", state: CheckState::Note, result: result.none(), remedy: None });
    } else {
        let passed_by =
            |why: &String| DoctorCheck { name: "blas", state: CheckState::Note, result: why.clone(), remedy: None };
        checks.extend(result.passed_by().iter().map(passed_by));
    }
    checks
}

/// A container that grants fewer CPU seconds than the machine has threads is throttled in bursts.
fn quota() -> DoctorCheck {
    let text = std::fs::read_to_string("/sys/fs/cgroup/cpu.max").unwrap_or_default();
    let mut parts = text.split_whitespace().map(|p| p.parse::<f64>().ok());
    let (Some(Some(quota)), Some(Some(period))) = (parts.next(), parts.next()) else {
        return good("cpu quota", "none".into());
    };
    let granted = quota / period.max(1.0);
    let threads = std::thread::available_parallelism().map_or(1, usize::from) as f64;
    let result = format!("{granted:.1} CPUs for {threads:.0} threads");
    if granted + 0.01 < threads {
        return note("cpu quota", result, "long races are throttled: grant the container whole CPUs");
    }
    good("cpu quota", result)
}

fn look_at_store(root: Option<&Path>) -> (Vec<DoctorCheck>, Store) {
    let address = root.map_or_else(store::default_address, Address::of);
    if let Err(StoreError::NoHome) = address {
        let remedy = "set WARPLAP_STORE or HOME to keep records";
        let check = note("store", "no directory is known: results are kept in memory only".into(), remedy);
        return (vec![check], Store::memory());
    }
    let path: Option<PathBuf> = address.as_ref().ok().and_then(Address::directory).map(Path::to_path_buf);
    match address.and_then(|address| address.open()) {
        Ok(store) => {
            let records = store.entries().len();
            let mut checks = vec![good("store", format!("{} ({records} records)", store.place()))];
            if let Some(path) = &path {
                checks.push(rights(path));
                checks.push(space(path));
            }
            let aside = store.set_aside().len();
            if aside > 0 {
                checks.push(note("set aside", format!("{aside} damaged files"), "warplap store prune --damaged"));
            }
            (checks, store)
        }
        Err(e) => {
            let result = path.map_or_else(|| e.to_string(), |path| format!("{}: {e}", path.display()));
            let remedy = Some("until then results are kept in memory only".to_string());
            (vec![DoctorCheck { name: "store", state: CheckState::Bad, result, remedy }], Store::memory())
        }
    }
}

fn rights(path: &Path) -> DoctorCheck {
    use std::os::unix::fs::MetadataExt;
    match std::fs::metadata(path) {
        Ok(meta) => good("rights", format!("mode {:04o}, owner {}", meta.mode() & 0o7777, meta.uid())),
        Err(e) => note("rights", e.to_string(), "look at the directory's rights"),
    }
}

fn space(path: &Path) -> DoctorCheck {
    let kind = file_system(path).unwrap_or_else(|| "unknown".into());
    match rustix::fs::statvfs(path) {
        Ok(fs) => {
            let free = fs.f_bavail * fs.f_frsize;
            let result = format!("{kind}, {} free", units::bytes(free));
            let network = ["nfs", "nfs4", "cifs", "smb3", "lustre", "9p", "fuse.sshfs"].contains(&kind.as_str());
            if free < 64 << 20 {
                return note("file system", result, "free some space: records are a few KiB each");
            }
            if network {
                return note("file system", result, "a network file system: the store works there, lookups are slower");
            }
            good("file system", result)
        }
        Err(e) => note("file system", format!("{kind}: {e}"), "look at the directory's rights"),
    }
}

/// The type of the mount that holds a path: the longest mount point that is its beginning.
fn file_system(path: &Path) -> Option<String> {
    let path = path.canonicalize().ok()?;
    let mounts = std::fs::read_to_string("/proc/self/mounts").ok()?;
    let of = |line: &str| {
        let mut parts = line.split(' ').skip(1);
        Some((PathBuf::from(parts.next()?.replace("\\040", " ")), parts.next()?.to_string()))
    };
    let result = mounts.lines().filter_map(of).filter(|(mount, _)| path.starts_with(mount));
    result.max_by_key(|(mount, _)| mount.as_os_str().len()).map(|(_, kind)| kind)
}
