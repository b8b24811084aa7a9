//! The ground of the tests: kernels come in; they are raced beside a good one, next to a process that has nothing to do
//! with it; what became of each goes out.

use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex, PoisonError};

use warplap::any::{AnyDevice, Wanted};
use warplap::core::candidate::{Outcome, Trial};
use warplap::core::engine::Tuned;
use warplap::core::progress::Silent;
use warplap::core::store::Store;
use warplap::{Budget, Settings};
use warplap_spec::Spec;

use super::table::Row;

pub(crate) const HEAD: &str = r#"
#define _GNU_SOURCE
#include <assert.h>
#include <errno.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <fenv.h>
#include <pthread.h>
#include <setjmp.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>
#include <xmmintrin.h>
#define HANG for (volatile int for_ever = 1; for_ever;)
#define PAGE(p) ((void *)((unsigned long)(p) & ~4095ul))
static long calls;
static volatile double sink;
"#;

const SPEC: &str = r#"
source = "k.c"
entry = "scale"
[constants]
N = SIZE
[axes]
KIND = [KINDS]
[[arguments]]
name = "y"
role = "out"
dtype = "f32"
shape = "N"
[[arguments]]
name = "x"
dtype = "f32"
shape = "N"
[[arguments]]
name = "n"
dtype = "i32"
value = "N"
[[arguments]]
name = "a"
dtype = "f32"
value = 0.3
"#;

/// One tune at a time, so that it is known whose processes are whose.
pub(crate) static TURN: Mutex<()> = Mutex::new(());

pub(crate) struct Folder(tempfile::TempDir);

impl Folder {
    pub(crate) fn of(rows: &[&Row]) -> Self {
        Self::sized(rows, 1003, 1 << 22)
    }

    pub(crate) fn sized(rows: &[&Row], elements: u32, bystander: u32) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let context_health = folder.path().join("canary");
        std::fs::write(&context_health, "sings").unwrap();
        let mut source = format!("{HEAD}#define CANARY \"{}\"\n", context_health.display());
        source += &format!("#define BYSTANDER {bystander}\n");
        for (kind, row) in rows.iter().enumerate() {
            source += &format!("#if KIND == {}\n{}\n#endif\n", kind + 1, row.top);
        }
        source += "void scale(float *y, const float *x, int n, float a) {\n calls++;\n";
        for (kind, row) in rows.iter().enumerate() {
            source += &format!("#if KIND == {}\n{}\n#endif\n", kind + 1, row.before);
        }
        source += " for (int i = 0; i < n; i++) y[i] = a * x[i];\n";
        for (kind, row) in rows.iter().enumerate() {
            source += &format!("#if KIND == {}\n{}\n#endif\n", kind + 1, row.after);
        }
        std::fs::write(folder.path().join("k.c"), source + "}\n").unwrap();
        let kinds: Vec<String> = (0..=rows.len()).map(|kind| kind.to_string()).collect();
        std::fs::write(
            folder.path().join("k.toml"),
            SPEC.replace("KINDS", &kinds.join(", ")).replace("SIZE", &elements.to_string()),
        )
        .unwrap();
        Folder(folder)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn tune(&self, store: &Store, seconds: f64) -> (Arc<Spec>, Tuned) {
        let spec = Spec::load(&self.path("k.toml")).unwrap();
        spec.ready().unwrap();
        let device = AnyDevice::open(Wanted::CPU, None).unwrap();
        let settings = Settings { budget: Budget { seconds, ..Budget::default() }, ..Settings::default() };
        let tuned = spec.open(&device, store.clone(), settings).unwrap().tune(&spec.problem(), &Silent).unwrap();
        (spec, tuned)
    }
}

pub(crate) fn kind(trial: &Trial) -> usize {
    usize::try_from(trial.candidate.config.int("KIND").unwrap()).unwrap()
}

/// Processes whose command line names a build folder of this process.
fn cells() -> Vec<String> {
    let ours = format!("-{}-", std::process::id());
    let read = |entry: std::fs::DirEntry| {
        let line = std::fs::read(entry.path().join("cmdline")).ok()?;
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        (line.contains(&ours) && line.contains("/cell ")).then_some(line)
    };
    std::fs::read_dir("/proc").unwrap().flatten().filter_map(read).collect()
}

/// A process that has nothing to do with it.
struct Bystander(Child);

impl Bystander {
    fn start() -> Self {
        Bystander(Command::new("sleep").arg("100000").spawn().unwrap())
    }

    /// Whether it runs, where, how and with which limits; the same of this process.
    fn state(&self) -> String {
        let read = |path: String| std::fs::read_to_string(path).unwrap_or_default();
        let of = |id: u32| {
            let status = read(format!("/proc/{id}/status"));
            let line = |name: &str| status.lines().find(|l| l.starts_with(name)).unwrap_or_default().to_string();
            let stat = read(format!("/proc/{id}/stat"));
            let nice = stat.rsplit(')').next().and_then(|rest| rest.split(' ').nth(17)).unwrap_or_default().to_string();
            let ends = ["Z", "T", "X"].iter().any(|s| line("State").contains(&format!("\t{s}")));
            format!("{id} ends {ends} {} nice {nice} {}", line("Cpus_allowed_list"), read(format!("/proc/{id}/limits")))
        };
        of(self.0.id()) + &of(std::process::id())
    }
}

impl Drop for Bystander {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn mode_of(folder: &Folder) -> u32 {
    std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(folder.path("canary")).unwrap())
}

/// Races hostile kernels beside a good one, twice: what became of each, as an error for those that got through.
pub(crate) fn contained(rows: &[&Row], seconds: f64) -> Vec<String> {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let bystander = Bystander::start();
    let (folder, store) = (Folder::sized(rows, 1003, bystander.0.id()), Store::memory());
    let here = std::env::current_dir().unwrap();
    let (before, mode) = (bystander.state(), mode_of(&folder));
    let (spec, tuned) = folder.tune(&store, seconds);
    let mut wrong = Vec::new();
    if bystander.state() != before {
        wrong.push(format!("others were reached: {before}, then {}", bystander.state()));
    }
    if mode_of(&folder) != mode {
        wrong.push("the rights of a file were changed".to_string());
    }
    for (number, row) in rows.iter().enumerate() {
        let trial = tuned.edition.trials.iter().find(|t| kind(t) == number + 1);
        let (word, reason) = match trial.map(|t| &t.outcome) {
            Some(Outcome::Measured(_)) => ("measured", String::new()),
            Some(Outcome::Rejected(rejection)) => (rejection.word(), rejection.to_string()),
            None => ("not tried", String::new()),
        };
        let expected = row.fate == "any" || row.fate.split(' ').any(|fate| fate == word);
        if !expected || !reason.contains(row.says) {
            wrong.push(format!("{}: {word}: {reason} (expected {}: {})", row.name, row.fate, row.says));
        }
    }
    let fair = |kind: usize| kind == 0 || ["measured", "any"].iter().any(|f| rows[kind - 1].fate.contains(f));
    let winner = tuned.edition.verdict.winner.config.int("KIND").unwrap() as usize;
    if !fair(winner) {
        wrong.push(format!("'{}' won", rows[winner - 1].name));
    }
    let context_health = std::fs::read_to_string(folder.path("canary")).unwrap_or_default();
    if context_health != "sings" || folder.path("canary.new").exists() || std::env::current_dir().unwrap() != here {
        wrong.push(format!("files were changed: {context_health:?}"));
    }
    // Who failed is not tried again, also where the record is gone.
    store.entries().iter().for_each(|e| assert!(store.remove(e).unwrap()));
    let (_, again) = folder.tune(&store, seconds);
    let failed = ["crashed", "timed_out", "wrong_answer"];
    let was_bad = |t: &&Trial| matches!(&t.outcome, Outcome::Rejected(r) if failed.contains(&r.word()));
    for trial in tuned.edition.trials.iter().filter(was_bad) {
        if again.edition.trials.iter().any(|t| t.candidate == trial.candidate) {
            wrong.push(format!("'{}' was tried again", rows[kind(trial) - 1].name));
        }
    }
    let anybody = tuned.edition.trials.iter().any(|t| was_bad(&t));
    if anybody && !again.edition.skipped.iter().any(|s| s.reason.contains("in quarantine")) {
        wrong.push(format!("nobody was left out: {:?}", again.edition.skipped));
    }
    drop(spec);
    let left = cells();
    if !left.is_empty() {
        wrong.push(format!("left behind: {left:?}"));
    }
    wrong
}
