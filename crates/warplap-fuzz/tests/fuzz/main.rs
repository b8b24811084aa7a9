//! Fuzzing on stable: every target in a process of its own for some seconds, with inputs made of `corpus/<target>`.
//!
//! ```text
//! cargo test -p warplap-fuzz                                  every target for half a second
//! WARPLAP_FUZZ_SECONDS=60 cargo test -p warplap-fuzz          the long form
//! cargo test -p warplap-fuzz -- bundle                        targets whose name has this in it
//! WARPLAP_FUZZ_SEED=7 cargo test -p warplap-fuzz              other inputs
//! WARPLAP_FUZZ_INPUT=FILE cargo test -p warplap-fuzz -- note  one input, as a finding names it
//! ```
#![cfg_attr(unix, allow(clippy::print_stdout, reason = "this is a program, and that is its output"))]

#[cfg(unix)]
mod mutate;
#[cfg(unix)]
mod targets;
#[cfg(unix)]
mod trial;

#[cfg(not(unix))]
fn main() {}

#[cfg(unix)]
fn main() -> std::process::ExitCode {
    unix::main()
}

#[cfg(unix)]
mod unix {
    use std::path::{Path, PathBuf};
    use std::process::{Command, ExitCode, Output};

    use warplap::core::sanitize_text;
    use warplap::ops::registry::{self, Known, Visitor};

    use crate::targets::{TARGETS, Target};
    use crate::trial;

    const SECONDS: f64 = 0.5;
    const SEED: u64 = 15;
    /// The target of a process that this program started; the file for its last input comes with it.
    const TARGET: &str = "WARPLAP_FUZZ_TARGET";
    const LAST: &str = "WARPLAP_FUZZ_LAST";

    fn setting(name: &str) -> Option<String> {
        std::env::var(name).ok().filter(|value| !value.is_empty())
    }

    fn number<T: std::str::FromStr>(name: &str, usual: T) -> T {
        setting(name).map_or(usual, |v| v.parse().unwrap_or_else(|_| panic!("{name} is '{v}': expected a number")))
    }

    pub(crate) fn main() -> ExitCode {
        let (seconds, seed) = (number("WARPLAP_FUZZ_SECONDS", SECONDS), number("WARPLAP_FUZZ_SEED", SEED));
        if let (Some(name), Some(last)) = (setting(TARGET), setting(LAST)) {
            let target = TARGETS.iter().find(|target| target.name == name).expect("a target's name");
            let (count, answers) = trial::run(target, &corpus(&name), seed, seconds, Path::new(&last));
            println!("{count} inputs, {answers} different answers");
            return ExitCode::SUCCESS;
        }
        let wanted: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
        let is_wanted = |target: &&Target| wanted.is_empty() || wanted.iter().any(|w| target.name.contains(w.as_str()));
        if std::env::args().any(|a| a == "--list") {
            TARGETS.iter().for_each(|target| println!("{}: test", target.name));
            return ExitCode::SUCCESS;
        }
        println!("fuzzing: {seconds} s a target, seed {seed}");
        let findings = TARGETS.iter().filter(is_wanted).filter(|target| !stands(target)).count();
        if findings == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }

    /// Tries one target in a process of its own and says what became of it.
    fn stands(target: &Target) -> bool {
        let folder = tempfile::tempdir().expect("a folder for the last input");
        let last = folder.path().join("last");
        let program = std::env::current_exe().expect("this program");
        let ran = Command::new(program).env(TARGET, target.name).env(LAST, &last).output().expect("this program again");
        if ran.status.success() {
            println!("  {:<12} {}", target.name, String::from_utf8_lossy(&ran.stdout).trim());
            return true;
        }
        println!("  {:<12} FOUND: {}", target.name, said(&ran));
        if let Some(input) = trial::last_input(&last) {
            let path = kept(target.name, &input);
            println!("    the input: {} ({} bytes)", path.display(), input.len());
            println!("    again: WARPLAP_FUZZ_INPUT={} cargo test -p warplap-fuzz -- {}", path.display(), target.name);
        }
        false
    }

    fn said(ran: &Output) -> String {
        let words = sanitize_text::shown(String::from_utf8_lossy(&ran.stderr).trim());
        match ran.status.code() {
            Some(trial::FOUND) => words,
            _ => format!("{}: {words}", ran.status),
        }
    }

    /// Keeps a finding below the target directory, by its hash.
    fn kept(target: &str, input: &[u8]) -> PathBuf {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("findings");
        let path = folder.join(format!("{target}-{}", &blake3::hash(input).to_hex()[..12]));
        std::fs::create_dir_all(&folder).and_then(|()| std::fs::write(&path, input)).expect("the finding is kept");
        path
    }

    /// What a target begins with, in the order of the names; or the one input that is asked for.
    fn corpus(target: &str) -> Vec<Vec<u8>> {
        if let Some(file) = setting("WARPLAP_FUZZ_INPUT") {
            return vec![std::fs::read(&file).unwrap_or_else(|e| panic!("{file}: {e}"))];
        }
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target);
        let entries = std::fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
        let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        files.sort();
        assert!(!files.is_empty(), "{} is empty: a target needs something to begin with", folder.display());
        let mut seeds: Vec<Vec<u8>> =
            files.iter().map(|file| std::fs::read(file).expect("a file of the corpus")).collect();
        if target == "problem" {
            let mut texts = Texts(Vec::new());
            registry::each(&mut texts);
            seeds.extend(texts.0);
        }
        seeds
    }

    /// Problems of every operation: where its kernels break, and what its right answers are proved on.
    struct Texts(Vec<Vec<u8>>);

    impl Visitor for Texts {
        fn visit<O: Known>(&mut self) {
            let edges = O::edges();
            let some = edges.iter().step_by(edges.len().div_ceil(8).max(1)).map(String::as_str);
            self.0.extend(some.chain(O::PROOFS.iter().copied()).map(|text| text.as_bytes().to_vec()));
        }
    }
}
