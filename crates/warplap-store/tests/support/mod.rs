//! What the store's tests share: a sample record, child processes made of this same test program, and a faulty disk.
#![allow(unreachable_pub, dead_code, reason = "each test program uses its own part")]

pub mod book;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use warplap_store::files::{Hook, Step};
use warplap_store::records::candidate::{Candidate, Outcome, SourceHash, Trial};
use warplap_store::records::config::Config;
use warplap_store::records::fingerprint::Fingerprint;
use warplap_store::records::key::Key;
use warplap_store::records::measurement::Measurement;
use warplap_store::records::record::{Record, SCHEMA, Skipped, TuningRun};
use warplap_store::records::rejection::Rejection;
use warplap_store::records::verdict::{Grade, Verdict};
use warplap_store::records::work::Work;

/// Whether the long forms were asked for.
pub fn long() -> bool {
    std::env::var_os("WARPLAP_LONG").is_some()
}

/// A directory for a test. In memory where the system has such a place: these tests kill, damage and crowd, and none of
/// that needs a disk, whose syncs take a hundred times as long when others use it. The long forms are on the disk.
pub fn temp() -> tempfile::TempDir {
    let roomy = |s: rustix::fs::StatVfs| s.f_bavail.saturating_mul(s.f_frsize) > 512 << 20;
    let in_memory =
        || rustix::fs::statvfs("/dev/shm").is_ok_and(roomy).then(|| tempfile::tempdir_in("/dev/shm").ok()).flatten();
    (!long()).then(in_memory).flatten().unwrap_or_else(|| tempfile::tempdir().unwrap())
}

/// A device; another number is another chip.
pub fn device(n: u32) -> Fingerprint {
    let hard = [("model", format!("Test Chip {n}")), ("cores", "2".to_string())];
    Fingerprint::new(hard, [("driver", "1.0".to_string())])
}

/// The n-th key.
pub fn key(n: u64) -> Key {
    Key::new("matmul", format!("matmul:m={n},n=64,k=64,f32;bucket=exact"))
}

/// An edition whose winner carries `n`, so that a reader can tell it.
pub fn edition(origin: &str, at: u64, n: i64) -> TuningRun {
    let winner = Candidate {
        variant: "tiled".into(),
        config: Config::new().with("mc", n).with("pack", true).with("isa", "avx2"),
        source: SourceHash::of(&["fn main() {}"]),
    };
    let loser = Candidate { variant: "naive".into(), config: Config::new(), source: SourceHash::of(&["x"]) };
    let measured = Measurement {
        median_us: 12.345678901234567,
        ci_us: [12.1, 12.6],
        sigma: 0.01,
        rounds: 3,
        batch: 1,
        samples_us: vec![12.1, 12.345678901234567, 0.1 + 0.2],
        cost: None,
        behind: None,
        resources: None,
    };
    let wrong = Rejection::WrongAnswer { error: f64::INFINITY, allowed: 1e-3, reason: "NaN at 3".into() };
    TuningRun {
        soft: BTreeMap::from([("driver".to_string(), "1.0".to_string())]),
        origin: origin.into(),
        tuned_at: at,
        program: "0.1.0".into(),
        verdict: Verdict {
            winner: winner.clone(),
            median_us: 12.345678901234567,
            ci_us: [12.1, 12.6],
            runner_up: None,
            margin: None,
            ties: vec![],
            eps: 0.01,
            won_by: Default::default(),
            confidence: 0.99,
            grade: Grade::Clean,
            rounds: 3,
            launches: 6,
        },
        trials: vec![Trial::new(winner, Outcome::Measured(measured)), Trial::new(loser, Outcome::Rejected(wrong))],
        skipped: vec![Skipped {
            variant: "gpu".into(),
            source: SourceHash::of(&["gpu"]),
            configs: 3,
            reason: "no GPU \"here\"\n".into(),
        }],
        work: Work { flops: 1e9, bytes: 1e6 },
        floor_us: Some(1.5),
        sizes: Vec::new(),
        end_to_end_race: None,
        artifacts: Default::default(),
        vouched: Default::default(),
        seconds: 0.25,
    }
}

/// What `edition` was told apart by.
pub fn winner(record: &Record) -> i64 {
    record.editions.last().and_then(|e| e.verdict.winner.config.int("mc")).unwrap_or(-1)
}

/// A whole record of one edition.
pub fn record(key: &Key, device: &Fingerprint, edition: TuningRun) -> Record {
    Record {
        schema: SCHEMA,
        op: key.op.clone(),
        key: key.text.clone(),
        problem: "matmul m=1".into(),
        device: device.hard.clone(),
        editions: vec![edition],
    }
}

/// The file of a key.
pub fn file_of(root: &Path, key: &Key, device: &Fingerprint) -> PathBuf {
    root.join("records-v1").join(device.slug()).join(&key.op).join(format!("{}.json", key.hash()))
}

/// Every file below a directory.
pub fn files_below(dir: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(dir) else {
        return vec![];
    };
    let paths = entries.flatten().map(|e| e.path());
    paths.flat_map(|p| if p.is_dir() && !p.is_symlink() { files_below(&p) } else { vec![p] }).collect()
}

/// The part a child process was started for; `None` in the test itself.
pub fn part() -> Option<String> {
    std::env::var("WARPLAP_TEST_PART").ok()
}

/// A setting of the part.
pub fn setting(name: &str) -> String {
    std::env::var(format!("WARPLAP_TEST_{name}")).unwrap_or_default()
}

/// This test program again, running only `test`, as the part named.
pub fn child(test: &str, part: &str, settings: &[(&str, &str)]) -> Command {
    child_of(&std::env::current_exe().unwrap(), test, part, settings)
}

/// The same by a copy of this program.
pub fn child_of(program: &Path, test: &str, part: &str, settings: &[(&str, &str)]) -> Command {
    let mut command = Command::new(program);
    command.args([test, "--exact", "--nocapture", "--test-threads=1"]).env("WARPLAP_TEST_PART", part);
    for (name, value) in settings {
        command.env(format!("WARPLAP_TEST_{name}"), value);
    }
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// Writes a line for the parent, or for people: the tests' own output would be captured.
pub fn say(mut to: impl io::Write, line: String) {
    to.write_all(format!("{line}\n").as_bytes()).unwrap();
    to.flush().unwrap();
}

/// Waits for children and says how many did not end well.
pub fn failures(children: Vec<Child>) -> usize {
    children.into_iter().map(|mut c| !c.wait().unwrap().success()).filter(|bad| *bad).count()
}

/// A disk that fails, or ends the process, at its k-th step, or at each step of one kind.
pub struct Faulty {
    pub at: usize,
    pub only: Option<Step>,
    pub code: Option<i32>,
    pub count: AtomicUsize,
    pub on: std::sync::atomic::AtomicBool,
}

impl Faulty {
    /// Fails at the k-th step with an error code; `None` ends the process there.
    pub fn at(k: usize, code: Option<i32>) -> Self {
        Faulty { at: k, only: None, code, count: AtomicUsize::new(0), on: true.into() }
    }

    /// Fails at each step of one kind.
    pub fn each(step: Step, code: i32) -> Self {
        Faulty { only: Some(step), ..Faulty::at(usize::MAX, Some(code)) }
    }
}

impl Hook for Faulty {
    fn before(&self, step: Step, _: &Path) -> io::Result<()> {
        if !self.on.load(Ordering::SeqCst) {
            return Ok(());
        }
        let k = self.count.fetch_add(1, Ordering::SeqCst);
        if k != self.at && self.only != Some(step) {
            return Ok(());
        }
        match self.code {
            Some(code) => Err(io::Error::from_raw_os_error(code)),
            None => std::process::abort(),
        }
    }
}
