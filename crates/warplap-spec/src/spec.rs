//! A Spec: everything a spec file says, checked and worked out.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use warplap::DType;
use warplap::core::array::Array;
use warplap::core::candidate::SourceHash;
use warplap::core::objective::Objective;
use warplap::core::rejection::Rejection;
use warplap::core::roofline::Work;
use warplap::core::slot::Signature;
use warplap::core::space::{Config, Expr, Space, Value};
use warplap::core::tolerance::Tolerance;

use crate::argument::{Argument, Role, bytes};
use crate::c::Workshop;
use crate::error::SpecError;
use crate::python;
use crate::read;

/// What a kernel is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    /// C for the CPU, built with the system compiler.
    C,
    /// CUDA C++ for an NVIDIA GPU, built with NVRTC.
    Cuda,
}

impl Language {
    /// Its name in spec files.
    pub fn name(self) -> &'static str {
        match self {
            Language::C => "c",
            Language::Cuda => "cuda",
        }
    }
}

/// One kernel's code.
#[derive(Clone, Debug)]
pub(crate) struct Code {
    /// As the spec file names it, from where the program runs.
    pub(crate) path: PathBuf,
    pub(crate) text: String,
    pub(crate) entry: String,
    pub(crate) flags: Vec<String>,
}

/// How many blocks of how many threads, as expressions over axes and constants.
#[derive(Clone, Debug)]
pub(crate) struct Launch {
    pub(crate) grid: Vec<Expr>,
    pub(crate) block: Vec<Expr>,
    pub(crate) shared: Option<Expr>,
    pub(crate) cluster: Vec<Expr>,
}

impl Launch {
    /// All its expressions, as one text.
    fn identity(&self) -> String {
        let texts = |sizes: &[Expr]| sizes.iter().map(|e| e.text().to_string()).collect::<Vec<String>>();
        let shared = self.shared.as_ref().map(Expr::text);
        format!("{:?} {:?} {shared:?} {:?}", texts(&self.grid), texts(&self.block), texts(&self.cluster))
    }
}

/// Where the right answer comes from.
#[derive(Clone, Debug)]
pub(crate) enum Reference {
    /// The kernel itself at its default config: every other config must agree with it.
    Default,
    /// Another kernel in C.
    Kernel(Code),
    /// Another kernel in CUDA, with its launch where it states one: over constants alone.
    Cuda(Code, Option<Launch>),
    /// A function in Python, on NumPy's arrays.
    Python(Code),
    /// Files: one for each output.
    Files(Arc<Vec<Array>>),
}

/// A user's kernel, ready to be opened on a device.
#[derive(Debug)]
pub struct Spec {
    pub(crate) file: PathBuf,
    /// Its name in keys and tables.
    pub name: String,
    /// What it is written in.
    pub language: Language,
    pub(crate) code: Code,
    /// What counts as part of the source: names as the spec file has them, and texts.
    pub(crate) headers: Vec<(String, String)>,
    /// Constants by name, as they reach the compiler.
    pub constants: Vec<(String, Value)>,
    /// The arguments, in order.
    pub arguments: Vec<Argument>,
    pub(crate) launch: Option<Launch>,
    /// The axes and the rules between them.
    pub space: Space,
    pub(crate) reference: Reference,
    /// Where the spec file names it.
    pub(crate) reference_line: Option<usize>,
    /// Relative and absolute, where the file says so.
    pub(crate) tolerance: (Option<f64>, Option<f64>),
    /// The useful work, as far as the file states it.
    pub work: Work,
    /// What candidates are raced for.
    pub objective: Objective,
    /// Where the spec file names it.
    pub(crate) objective_line: Option<usize>,
    /// Whether the winner's energy shall be measured too, where the device tells.
    pub energy: bool,
    /// Seconds of tuning the file asks for.
    pub budget: Option<f64>,
    pub(crate) identity: OnceLock<String>,
    pub(crate) workshop: OnceLock<Result<Workshop, Rejection>>,
}

impl Spec {
    /// The reference's name in records, where it is a kernel of its own.
    pub(crate) const REFERENCE: &'static str = "reference";

    /// Reads a spec file and the files it names. Nothing is built.
    pub fn load(path: &Path) -> Result<Arc<Spec>, SpecError> {
        let spec = Arc::new(read::load(path)?);
        let mut open = opened().lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|_, known| known.strong_count() > 0);
        Ok(open.entry(spec.place()).or_default().upgrade().unwrap_or_else(|| {
            open.insert(spec.place(), Arc::downgrade(&spec));
            spec
        }))
    }

    /// The spec that is open in this process under a file name and an identity.
    pub(crate) fn known(file: &str, identity: &str) -> Option<Arc<Spec>> {
        let open = opened().lock().unwrap_or_else(PoisonError::into_inner);
        open.get(&(PathBuf::from(file), identity.to_string()))?.upgrade()
    }

    fn place(&self) -> (PathBuf, String) {
        (self.file.clone(), self.identity().to_string())
    }

    /// The spec file.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// The kernel's source file.
    pub fn source_file(&self) -> &Path {
        &self.code.path
    }

    /// The kernel's entry: its name in records.
    pub fn entry(&self) -> &str {
        &self.code.entry
    }

    /// Everything that decides what is raced and what is right, hashed: records of another identity are stale.
    pub fn identity(&self) -> &str {
        self.identity.get_or_init(|| self.find_identity())
    }

    fn find_identity(&self) -> String {
        let arguments: Vec<String> = self.arguments.iter().map(Argument::identity).collect();
        let rules: Vec<String> = self.space.rules().iter().map(ToString::to_string).collect();
        let derived: Vec<&str> = self.space.derived().iter().map(|(_, e)| e.text()).collect();
        let reference = match &self.reference {
            Reference::Default => "default".to_string(),
            Reference::Kernel(code) => format!("{} {:?} {}", code.entry, code.flags, code.text),
            Reference::Cuda(code, launch) => {
                let launch = launch.as_ref().map(Launch::identity);
                format!("cuda {} {:?} {launch:?} {}", code.entry, code.flags, code.text)
            }
            Reference::Python(code) => format!("python {} {:?} {}", code.entry, code.flags, code.text),
            Reference::Files(arrays) => format!("{:?}", SourceHash::of(&[&format!("{arrays:?}")])),
        };
        let launch = self.launch.as_ref().map(Launch::identity);
        // Records made for another objective are stale; those made for time stay what they are.
        let objective =
            if self.objective.is_time() { String::new() } else { format!(" {:?} {:?}", self.objective, self.work) };
        let rest = format!(
            "{} {} {:?} {:?} {arguments:?} {:?} {rules:?} {derived:?} {launch:?} {:?} {}{objective}",
            self.name,
            self.code.entry,
            self.code.flags,
            self.constants,
            self.space.axes(),
            self.tolerance,
            self.language.name(),
        );
        let headers: String = self.headers.iter().map(|(_, text)| text.as_str()).collect();
        SourceHash::of(&[&self.code.text, &headers, &reference, &rest]).0
    }

    /// The objective in a key: nothing for time, its name, or where it is an expression that in short.
    pub(crate) fn objective_word(&self) -> String {
        let name = self.objective.name();
        match (self.objective.is_time(), name.chars().all(|c| c.is_ascii_lowercase() || c == '_')) {
            (true, _) => String::new(),
            (false, true) => name.to_string(),
            (false, false) => SourceHash::of(&[&format!("{:?}", self.objective)]).0,
        }
    }

    /// Compile-time constants of a config: axes, derived values and constants, as the preprocessor takes them.
    pub(crate) fn defines(&self, config: &Config) -> Vec<(String, String)> {
        let own = self.constants.iter().map(|(name, value)| (name, value));
        own.chain(&config.0).map(|(name, value)| (name.clone(), define(value))).collect()
    }

    /// A value by its name: an axis of a config, or a constant.
    pub(crate) fn value(&self, config: &Config, name: &str) -> Option<Value> {
        let constant = || self.constants.iter().find(|(n, _)| n == name).map(|(_, v)| v.clone());
        config.get(name).cloned().or_else(constant)
    }

    /// What its entry takes, in order: all arguments but constant memory.
    pub(crate) fn parameters(&self) -> impl Iterator<Item = &Argument> {
        self.arguments.iter().filter(|a| a.role != Role::Constant)
    }

    /// What its entry writes, in order: right answers come in this order.
    pub(crate) fn written(&self) -> impl Iterator<Item = &Argument> {
        self.arguments.iter().filter(|a| a.is_output())
    }

    /// Its parameters as slots.
    pub(crate) fn signature(&self) -> Signature {
        Signature(self.parameters().map(Argument::slot).collect())
    }

    /// Fresh inputs, one array a parameter.
    pub(crate) fn draw(&self, rng: &mut fastrand::Rng) -> Vec<Array> {
        self.parameters().map(|a| a.draw(rng)).collect()
    }

    /// The right answer to inputs, for each argument that is written.
    pub(crate) fn answer(&self, inputs: &[Array]) -> Result<Vec<Vec<f64>>, Rejection> {
        match &self.reference {
            Reference::Files(arrays) => Ok(arrays.iter().map(Array::to_f64).collect()),
            Reference::Python(code) => python::answer(self, code, inputs),
            Reference::Cuda(..) | Reference::Default if self.is_judged_afar() => {
                Err(Rejection::LaunchFailed { reason: "it is a CUDA kernel, which runs on a GPU alone".into() })
            }
            _ => self.workshop()?.answer(self, inputs),
        }
    }

    /// How far from a right answer of a type a kernel may be.
    pub(crate) fn allowed(&self, dtype: DType, answer: &[f64]) -> Tolerance {
        let relative = self.tolerance.0.unwrap_or(dtype.leeway());
        // Where sums cancel, the error is as large as that of the terms: the largest answer stands for them.
        let largest = answer.iter().filter(|v| v.is_finite()).fold(0.0, |m: f64, v| m.max(v.abs()));
        Tolerance { relative, floor: self.tolerance.1.unwrap_or(relative * largest) }
    }

    /// The first config: the kernel at it is the reference where the file names none.
    pub(crate) fn default_config(&self) -> Config {
        self.space.default_config().unwrap_or_default()
    }

    /// Whether the right answer comes from a kernel on the GPU.
    pub(crate) fn is_judged_afar(&self) -> bool {
        match self.reference {
            Reference::Cuda(..) => true,
            Reference::Default => self.language == Language::Cuda,
            _ => false,
        }
    }

    /// Constant memory by the name of its global, as bytes.
    pub(crate) fn constant_memory(&self) -> Vec<(&str, Vec<u8>)> {
        let constants = self.arguments.iter().filter(|a| a.role == Role::Constant);
        constants.map(|a| (a.name.as_str(), bytes(&a.content()))).collect()
    }

    /// Where C kernels are built.
    pub(crate) fn workshop(&self) -> Result<&Workshop, Rejection> {
        self.workshop.get_or_init(Workshop::open).as_ref().map_err(Clone::clone)
    }

    /// How many libraries were built, the seconds of all builds, and those in which at least one was under way.
    pub fn build_seconds(&self) -> (usize, f64, f64) {
        self.workshop.get().and_then(|w| w.as_ref().ok()).map_or((0, 0.0, 0.0), Workshop::spent)
    }

    /// Bytes of every buffer argument, for messages.
    pub fn footprint(&self) -> usize {
        self.arguments.iter().filter(|a| a.role != Role::Scalar).map(|a| a.len() * a.dtype().bytes()).sum()
    }
}

type Opened = Mutex<HashMap<(PathBuf, String), Weak<Spec>>>;

/// Specs that are open in this process: problems are texts, and each would be read and built again.
fn opened() -> &'static Opened {
    static OPEN: OnceLock<Opened> = OnceLock::new();
    OPEN.get_or_init(Opened::default)
}

/// A value as the preprocessor takes it.
fn define(value: &Value) -> String {
    match value {
        Value::Bool(b) => u8::from(*b).to_string(),
        other => other.to_string(),
    }
}
