//! The direction of the arrows: warplap, py → cli → {spec → session → graph → ops → {cpu, cuda}, fleet} → worker → core, and
//! nothing points back. Packages name the session `warplap`, as users do.

use std::fs;
use std::path::Path;

/// Each package and the packages of ours it may use.
const ALLOWED: [(&str, &[&str]); 17] = [
    ("warplap-store", &[]),
    ("warplap-core", &["warplap-store"]),
    ("warplap-worker", &["warplap-core"]),
    ("warplap-cpu", &["warplap-core", "warplap-worker"]),
    // A driver for tests, which knows nobody.
    ("warplap-standin", &[]),
    ("warplap-cuda", &["warplap-core", "warplap-worker", "warplap-standin"]),
    ("warplap-ops", &["warplap-core", "warplap-cpu", "warplap-cuda"]),
    ("warplap-report", &["warplap-core"]),
    // The programs in its docs name the session.
    ("warplap-graph", &["warplap-core", "warplap-cpu", "warplap-cuda", "warplap-ops", "warplap-report", "warplap"]),
    // Its tests and examples name it as users do, by the package that is the library and the program.
    (
        "warplap-session",
        &[
            "warplap-core",
            "warplap-worker",
            "warplap-cpu",
            "warplap-cuda",
            "warplap-ops",
            "warplap-report",
            "warplap-graph",
            "warplap",
        ],
    ),
    ("warplap-spec", &["warplap", "warplap-worker", "warplap-standin"]),
    ("warplap-fleet", &["warplap-store", "warplap-core", "warplap-worker"]),
    ("warplap-cli", &["warplap", "warplap-spec", "warplap-fleet", "warplap-standin"]),
    ("warplap", &["warplap-session", "warplap-spec", "warplap-cli"]),
    ("warplap-py", &["warplap", "warplap-spec", "warplap-fleet", "warplap-cli"]),
    ("warplap-burn", &["warplap"]),
    // For tests alone: hands bytes to every parser.
    ("warplap-fuzz", &["warplap", "warplap-worker", "warplap-spec", "warplap-fleet", "warplap-cli"]),
];

/// The packages of ours a manifest names, in dependencies of any kind.
fn uses(manifest: &str) -> Vec<String> {
    manifest
        .lines()
        .map(str::trim)
        .filter_map(|line| line.split(['.', '=', ' ']).next())
        .filter(|name| *name == "warplap" || name.starts_with("warplap-"))
        .map(str::to_string)
        .collect()
}

#[test]
fn no_package_uses_one_that_stands_before_it() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut seen = 0;
    for entry in fs::read_dir(&crates).expect("the folder of packages") {
        let folder = entry.expect("an entry").path();
        let Ok(manifest) = fs::read_to_string(folder.join("Cargo.toml")) else { continue };
        let name = folder.file_name().and_then(|n| n.to_str()).expect("a plain name").to_string();
        let (_, allowed) =
            ALLOWED.iter().find(|(n, _)| *n == name).unwrap_or_else(|| panic!("{name} has no place yet"));
        for used in uses(&manifest) {
            assert!(allowed.contains(&used.as_str()), "{name} must not use {used}");
        }
        seen += 1;
    }
    assert!(seen >= 5, "only {seen} packages found");
}

#[test]
fn the_core_knows_no_device_and_no_unsafe() {
    let core = Path::new(env!("CARGO_MANIFEST_DIR")).join("../warplap-core/src");
    let root = fs::read_to_string(core.join("lib.rs")).expect("the core's root");
    assert!(root.contains("#![forbid(unsafe_code)]"));
    let manifest = fs::read_to_string(core.join("../Cargo.toml")).expect("the core's manifest");
    for device in ["cudarc", "rayon", "gemm", "libloading"] {
        assert!(!manifest.contains(&format!("{device}.")), "the core must not know {device}");
    }
}

/// What stands in a folder's files, by their paths.
fn texts(folder: &Path) -> Vec<(std::path::PathBuf, String)> {
    let mut result = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        match fs::read_to_string(&path) {
            Ok(text) => result.push((path, text)),
            Err(_) if path.is_dir() => result.extend(texts(&path)),
            Err(e) => panic!("{}: {e}", path.display()),
        }
    }
    result
}

#[test]
fn the_worker_knows_no_vendor() {
    let texts = texts(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../warplap-worker"));
    assert!(texts.len() > 5, "only {} files found", texts.len());
    for (path, text) in texts {
        let text = text.to_lowercase();
        for word in ["cuda", "nvidia", "nvrtc", "cubin", "ptx", "hip", "rocm", "libloading"] {
            let said =
                text.split(|c: char| !c.is_alphanumeric()).any(|w| w == word || (word.len() > 3 && w.contains(word)));
            assert!(!said, "{} says {word}", path.display());
        }
    }
}
