//! BLAS libraries of this machine: found at run time, never linked. The process comes in; the libraries a user could
//! have called instead go out, each loaded when it is first asked to multiply.
//!
//! Every call takes one thread of the library's, so that its threads and ours do not share the cores: whoever wants
//! more calls it from several. That starts no second pool that spins on the cores, and has nothing to lose in a fork.
//! It costs little: two halves of 512³ to 2048³, one after the other, take 1.00 to 1.02 times the CPU time of the whole
//! by MKL, 1.01 to 1.05 times by OpenBLAS.

mod finder;
mod library;
mod limit;

use std::fs::Metadata;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::UNIX_EPOCH;

pub use finder::Places;
pub use library::{Blas, Matrix};

/// Whose library it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Maker {
    /// Intel's, as `libmkl_rt` or inside torch.
    Mkl,
    /// OpenBLAS, of the system or inside NumPy or SciPy.
    OpenBlas,
    /// BLIS, or AMD's form of it.
    Blis,
    /// Apple's.
    Accelerate,
    /// Another one, which the user has named.
    Named,
}

impl Maker {
    /// One word for configs and tables.
    pub fn word(self) -> &'static str {
        match self {
            Maker::Mkl => "mkl",
            Maker::OpenBlas => "openblas",
            Maker::Blis => "blis",
            Maker::Accelerate => "accelerate",
            Maker::Named => "named",
        }
    }
}

/// A library that was seen: it is loaded when it is first opened.
#[derive(Debug)]
pub struct Seen {
    maker: Maker,
    path: PathBuf,
    size: u64,
    changed: u64,
    opened: OnceLock<Result<Blas, String>>,
}

impl Seen {
    fn new(maker: Maker, path: PathBuf, meta: Option<&Metadata>) -> Self {
        let age = |m: &Metadata| Some(m.modified().ok()?.duration_since(UNIX_EPOCH).ok()?.as_secs());
        let (size, changed) = (meta.map_or(0, Metadata::len), meta.and_then(age).unwrap_or(0));
        Seen { maker, path, size, changed, opened: OnceLock::new() }
    }

    /// Whose it is.
    pub fn maker(&self) -> Maker {
        self.maker
    }

    /// Its file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What tells it from another one: its file, and that file's size and time.
    pub fn identity(&self) -> String {
        format!("{} {} {} {}", self.maker.word(), self.path.display(), self.size, self.changed)
    }

    /// The library, loaded once per process; or why it cannot be.
    pub fn open(&self) -> Result<&Blas, String> {
        let named = |why| format!("{}: {why}", self.path.display());
        self.opened.get_or_init(|| Blas::open(self.maker, &self.path).map_err(named)).as_ref().map_err(Clone::clone)
    }
}

/// What a search has found.
#[derive(Debug, Default)]
pub struct BlasLibraries {
    libraries: Vec<Seen>,
    passed_by: Vec<String>,
}

impl BlasLibraries {
    /// The libraries, one a maker, best first.
    pub fn libraries(&self) -> &[Seen] {
        &self.libraries
    }

    /// The library of a maker, by his word.
    pub fn library(&self, word: &str) -> Option<&Seen> {
        self.libraries.iter().find(|seen| seen.maker.word() == word)
    }

    /// What was seen and not taken, and why.
    pub fn passed_by(&self) -> &[String] {
        &self.passed_by
    }

    /// Why there is none, and what to do.
    pub fn none(&self) -> String {
        let hint = "pip install mkl or numpy into the active environment, or set WARPLAP_BLAS to a library's file";
        match &self.passed_by[..] {
            [] => format!("no BLAS library was found: {hint}"),
            said => format!("no BLAS library was taken ({}): {hint}", said.join("; ")),
        }
    }

    /// What tells these libraries from others.
    pub fn identity(&self) -> String {
        self.libraries.iter().map(Seen::identity).collect::<Vec<_>>().join("\n")
    }
}

/// The libraries of this process, looked for once.
pub fn installed() -> &'static BlasLibraries {
    static LIBRARIES: OnceLock<BlasLibraries> = OnceLock::new();
    LIBRARIES.get_or_init(|| Places::here().look())
}
