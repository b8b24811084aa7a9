//! The workshop: a config comes in; a library that was built goes out, or why not; and processes to run libraries in.
//! Everything lies in a private folder that goes with the spec.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use warplap::core::array::Array;
use warplap::core::rejection::Rejection;
use warplap::core::space::Config;

use super::cell::Cell;
use super::child::{self, words};
use super::folder::Folder;
use super::{apart, calls, text};
use crate::argument::Argument;
use crate::spec::{Code, Reference, Spec};

/// What every kernel is compiled with.
const FLAGS: [&str; 4] = ["-O3", "-march=native", "-shared", "-fPIC"];

/// What the cell's program is linked with: it lies low, where nobody else does, and its tables are read only.
const CELL_FLAGS: &[&str] =
    if cfg!(target_os = "linux") { &["-no-pie", "-fno-pie", "-Wl,-z,now,-z,relro", "-ldl"] } else { &[] };

/// What a compiler may take.
const COMPILE: Duration = Duration::from_secs(120);

type Made = Arc<OnceLock<Result<PathBuf, Rejection>>>;

/// Where a spec's C kernels are built.
#[derive(Debug)]
pub(crate) struct Workshop {
    folder: Folder,
    compiler: String,
    version: String,
    built: Mutex<HashMap<String, Made>>,
    program: OnceLock<Result<PathBuf, Rejection>>,
    spent: Mutex<Vec<(Instant, Instant)>>,
}

fn failed(what: &str, error: impl std::fmt::Display) -> Rejection {
    Rejection::DoesNotBuild { reason: format!("{what}: {error}") }
}

impl Workshop {
    /// Finds the compiler (`CC`, else cc) and makes the folder.
    pub(crate) fn open() -> Result<Self, Rejection> {
        let folder = Folder::create().map_err(|e| failed("no folder to build in", e))?;
        let compiler = warplap::core::environment::text("CC").unwrap_or_else(|| "cc".into());
        let log = folder.path().join("version.log");
        let asked = child::run(command(&compiler).arg("--version"), &log, COMPILE);
        let missing = |why: &dyn std::fmt::Display| {
            failed("no C compiler", format!("'{compiler}' {why}: set CC to one that runs"))
        };
        let ended = asked.map_err(|e| missing(&e))?;
        if !ended.status.is_some_and(|s| s.success()) {
            return Err(missing(&"does not say its version"));
        }
        let version = ended.said.lines().next().unwrap_or_default().trim().to_string();
        let (built, spent) = (Mutex::default(), Mutex::default());
        Ok(Workshop { folder, compiler, version, built, program: OnceLock::new(), spent })
    }

    /// The compiler's first line about itself.
    pub(crate) fn version(&self) -> &str {
        &self.version
    }

    /// The kernel at a config: built once, whoever asks first.
    pub(crate) fn own(&self, spec: &Spec, config: &Config) -> Result<PathBuf, Rejection> {
        self.library(&format!("own {config}"), &spec.code, &spec.arguments, &spec.defines(config))
    }

    /// The reference's library: that of the kernel the spec names, or the kernel's own at its default config.
    pub(crate) fn reference(&self, spec: &Spec) -> Result<PathBuf, Rejection> {
        match &spec.reference {
            Reference::Kernel(code) => {
                let defines = spec.defines(&Config::new());
                self.library("reference", code, &spec.arguments, &defines)
            }
            _ => self.own(spec, &spec.default_config()),
        }
    }

    /// What the reference gives for inputs, for each argument that is written: every answer comes from a process of its
    /// own, so that it remembers nothing of the one before.
    pub(crate) fn answer(&self, spec: &Spec, inputs: &[Array]) -> Result<Vec<Vec<f64>>, Rejection> {
        apart::answer(spec, self.cell(&self.reference(spec)?)?, inputs)
    }

    /// A process with a library in it.
    pub(crate) fn cell(&self, library: &Path) -> Result<Cell, Rejection> {
        let program = self.program.get_or_init(|| self.make_program()).clone()?;
        self.checked(library)?;
        self.checked(&program)?;
        Cell::start(&program, library, apart::memory_for_itself())
    }

    /// A process in which every call does nothing.
    pub(crate) fn empty_cell(&self) -> Result<Cell, Rejection> {
        let program = self.program.get_or_init(|| self.make_program()).clone()?;
        self.checked(&program)?;
        Cell::empty(&program, apart::memory_for_itself())
    }

    /// Refuses to load what somebody else could have put there.
    pub(crate) fn checked(&self, file: &Path) -> Result<(), Rejection> {
        let refused = |e: std::io::Error| Rejection::LaunchFailed { reason: e.to_string() };
        self.folder.holds(file).map_err(refused)
    }

    fn library(
        &self,
        name: &str,
        code: &Code,
        arguments: &[Argument],
        defines: &[(String, String)],
    ) -> Result<PathBuf, Rejection> {
        let (made, number) = {
            let mut built = self.built.lock().unwrap_or_else(PoisonError::into_inner);
            let number = built.len();
            (built.entry(name.to_string()).or_default().clone(), number)
        };
        // Two who want the same wait for one build; others go on.
        made.get_or_init(|| {
            let started = Instant::now();
            let stem = format!("k{number}-{}", code.entry);
            let outcome = self.compile(&stem, code, arguments, defines);
            let ended = Instant::now();
            self.spent.lock().unwrap_or_else(PoisonError::into_inner).push((started, ended));
            outcome
        })
        .clone()
    }

    fn compile(
        &self,
        stem: &str,
        code: &Code,
        arguments: &[Argument],
        defines: &[(String, String)],
    ) -> Result<PathBuf, Rejection> {
        let at = |end: &str| self.folder.path().join(format!("{stem}.{end}"));
        let (entry_source, library, log) = (at("c"), at("so"), at("log"));
        let source = std::path::absolute(&code.path).map_err(|e| failed("the source", e))?;
        std::fs::write(&entry_source, text::entry_source(&source, &code.entry, arguments))
            .map_err(|e| failed("no room to build", e))?;
        let mut command = command(&self.compiler);
        command.args(FLAGS).args(&code.flags).args(defines.iter().map(|(name, value)| format!("-D{name}={value}")));
        command.arg("-o").arg(&library).arg(&entry_source).arg("-lm");
        let ended = child::run(&mut command, &log, COMPILE).map_err(|e| failed(&self.compiler, e))?;
        let _ = std::fs::remove_file(&entry_source);
        match ended.status {
            Some(status) if status.success() => Ok(library),
            Some(status) => Err(Rejection::DoesNotBuild {
                reason: first_error(&ended.said, (&source, &entry_source), &code.path, status),
            }),
            None => Err(failed("the compiler", format!("took longer than {} s", COMPILE.as_secs()))),
        }
    }

    fn make_program(&self) -> Result<PathBuf, Rejection> {
        let at = |name: &str| self.folder.path().join(name);
        let (source, program, log) = (at("cell.c"), at("cell"), at("cell.log"));
        std::fs::write(&source, calls::cell()).map_err(|e| failed("no room to build", e))?;
        let build = |flags: &[&str]| {
            let mut command = command(&self.compiler);
            command.args(["-O2", "-fno-builtin", "-o"]).arg(&program).arg(&source).args(flags);
            child::run(&mut command, &log, COMPILE).map_err(|e| failed(&self.compiler, e))
        };
        let mut ended = build(CELL_FLAGS)?;
        // A linker that does not know all of these.
        if !ended.status.is_some_and(|s| s.success()) {
            ended = build(if cfg!(target_os = "linux") { &["-ldl"] } else { &[] })?;
        }
        match ended.status {
            Some(status) if status.success() => Ok(program),
            _ => Err(failed("the program that runs kernels", ended.said.lines().next().unwrap_or("it does not build"))),
        }
    }

    /// How many libraries were built, the seconds of all builds, and the seconds in which at least one was under way.
    pub(crate) fn spent(&self) -> (usize, f64, f64) {
        let mut spans = self.spent.lock().unwrap_or_else(PoisonError::into_inner).clone();
        spans.sort();
        let all: f64 = spans.iter().map(|(from, to)| (*to - *from).as_secs_f64()).sum();
        let mut under_way = 0.0;
        let mut end: Option<Instant> = None;
        for (from, to) in &spans {
            let from = end.map_or(*from, |e| e.max(*from));
            if *to > from {
                under_way += (*to - from).as_secs_f64();
                end = Some(*to);
            }
        }
        (spans.len(), all, under_way)
    }
}

/// The compiler with words of its own, as `CC="ccache gcc"` has them.
fn command(compiler: &str) -> Command {
    let mut words = compiler.split_whitespace();
    let mut command = Command::new(words.next().unwrap_or("cc"));
    command.args(words);
    command
}

/// The first line that says what is wrong, with the user's own name of the file.
fn first_error(
    said: &str,
    (full, entry_source): (&Path, &Path),
    own: &Path,
    status: std::process::ExitStatus,
) -> String {
    let is_error =
        |line: &&str| line.contains("error:") || line.contains("undefined reference") || line.contains("cannot find");
    let line = said.lines().find(is_error).or_else(|| said.lines().find(|l| !l.trim().is_empty()));
    let fallback = || format!("the compiler {}", words(status));
    line.map_or_else(fallback, |l| {
        let line = l.trim().replace(&*full.to_string_lossy(), &own.to_string_lossy());
        line.replace(&*entry_source.to_string_lossy(), "the call of the kernel")
    })
}
