//! Compile: a source with its constants comes in; a CUBIN with the assembler's report goes out, from the artifacts where
//! they hold it.

use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use warplap_core::rejection::Rejection;

use crate::artifact::Artifacts;
use crate::error::CudaError;
use crate::nvrtc::Compiler;
use crate::own::OwnSource;
use crate::ptxas::Report;
use crate::sandbox::{COMPILE, CompileOrder, Crew, Pool};

/// One kernel source and the constants it is compiled with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// File stem and entry name.
    pub entry: &'static str,
    /// The text.
    pub text: &'static str,
    /// What it may include, by name.
    pub headers: &'static [(&'static str, &'static str)],
    /// Constants, by name.
    pub defines: Vec<(&'static str, i64)>,
}

impl CompileOrder {
    /// The name of its artifact: everything that decides the bytes, hashed.
    fn digest(&self, compiler: (i32, i32)) -> String {
        let mut hasher = blake3::Hasher::new();
        let version = format!("nvrtc {}.{}", compiler.0, compiler.1);
        let headers = self.headers.iter().flat_map(|(name, text)| [name, text]);
        for text in [&self.name, &self.text, &version].into_iter().chain(headers).chain(&self.options) {
            hasher.update(&(text.len() as u64).to_le_bytes());
            hasher.update(text.as_bytes());
        }
        hasher.finalize().to_hex().to_string()
    }

    fn compile(&self, compiler: &Compiler) -> Result<(Vec<u8>, String), CudaError> {
        let headers: Vec<(&str, &str)> = self.headers.iter().map(|(name, text)| (&name[..], &text[..])).collect();
        compiler.compile(&self.name, &self.text, &headers, &self.options, Instant::now() + COMPILE)
    }
}

/// Compiled bytes, and what the assembler said of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cubin {
    /// The image the driver loads.
    pub image: Vec<u8>,
    /// Registers, spills, warnings.
    pub report: Report,
}

impl Source {
    /// The compiler's options for an architecture.
    pub fn options(&self, arch: &str) -> Vec<String> {
        let mut options = ["-std=c++17", "-Xptxas", "-v"].map(String::from).to_vec();
        options.push(format!("-arch={arch}"));
        options.extend(self.defines.iter().map(|(name, value)| format!("-D{name}={value}")));
        options
    }

    /// The name of its artifact: everything that decides the bytes, hashed.
    pub fn digest(&self, arch: &str, compiler: (i32, i32)) -> String {
        let mut hasher = blake3::Hasher::new();
        let mut add = |text: &str| {
            hasher.update(&(text.len() as u64).to_le_bytes());
            hasher.update(text.as_bytes());
        };
        add(self.entry);
        add(self.text);
        for (name, text) in self.headers {
            add(name);
            add(text);
        }
        for option in self.options(arch) {
            add(&option);
        }
        add(&format!("nvrtc {}.{}", compiler.0, compiler.1));
        hasher.finalize().to_hex().to_string()
    }

    /// Compiles it, without looking at artifacts.
    pub fn compile(&self, compiler: &Compiler, arch: &str) -> Result<Cubin, CudaError> {
        let name = format!("{}.cu", self.entry);
        let (image, log) =
            compiler.compile(&name, self.text, self.headers, &self.options(arch), Instant::now() + COMPILE)?;
        Ok(Cubin { image, report: Report::parse(&log) })
    }
}

impl Source {
    fn order(&self, arch: &str) -> CompileOrder {
        CompileOrder {
            name: format!("{}.cu", self.entry),
            text: self.text.to_string(),
            headers: self.headers.iter().map(|(name, text)| (name.to_string(), text.to_string())).collect(),
            options: self.options(arch),
        }
    }
}

/// The compilers, found when first needed, and the artifacts before them.
#[derive(Default)]
pub(crate) struct Workshop {
    compiler: OnceLock<Result<Compiler, CudaError>>,
    pub(crate) artifacts: Option<Artifacts>,
    // Where nobody named a folder, one that goes with this object: it is how workers get what was compiled.
    passing: OnceLock<Option<Passing>>,
    pub(crate) pool: Pool,
}

impl Workshop {
    pub(crate) fn compiler(&self) -> Result<&Compiler, CudaError> {
        self.compiler.get_or_init(Compiler::find).as_ref().map_err(Clone::clone)
    }

    /// The folder of compiled kernels: the user's, or one that goes with this object.
    pub(crate) fn artifacts(&self) -> Option<&Artifacts> {
        let passing = || self.passing.get_or_init(|| Passing::make().ok()).as_ref().map(|p| &p.artifacts);
        self.artifacts.as_ref().or_else(passing)
    }

    /// The CUBIN of a source: kept, or compiled and kept. One that spills or serialises is refused.
    pub(crate) fn cubin(&self, source: &Source, arch: &str, crew: &Crew) -> Result<(String, Cubin), Rejection> {
        let compiler = self.compiler().map_err(|e| e.rejection())?;
        let digest = source.digest(arch, compiler.version());
        let cubin = self.kept(&digest, &source.order(arch), compiler, crew)?;
        match cubin.report.refusal() {
            Some(refusal) => Err(refusal),
            None => Ok((digest, cubin)),
        }
    }

    /// The CUBIN of a user's kernel. One that spills is the user's business: it is raced like any other.
    pub(crate) fn own_cubin(&self, source: &OwnSource, arch: &str, crew: &Crew) -> Result<(String, Cubin), Rejection> {
        let compiler = self.compiler().map_err(|e| e.rejection())?;
        let order = source.order(arch);
        let digest = order.digest(compiler.version());
        let cubin = self.kept(&digest, &order, compiler, crew)?;
        Ok((digest, cubin))
    }

    /// Kept, or compiled and kept.
    fn kept(&self, digest: &str, order: &CompileOrder, compiler: &Compiler, crew: &Crew) -> Result<Cubin, Rejection> {
        let artifacts = self.artifacts();
        if let Some(cubin) = artifacts.and_then(|a| a.get(digest)) {
            return Ok(cubin);
        }
        let compiled = self.pool.compile(crew, order).unwrap_or_else(|| order.compile(compiler));
        let (image, log) = compiled.map_err(|e| e.rejection())?;
        let cubin = Cubin { image, report: Report::parse(&log) };
        if let Some(Err(error)) = artifacts.map(|a| a.put(digest, &cubin)) {
            tracing::warn!("a compiled kernel was not kept: {error}");
        }
        Ok(cubin)
    }
}

/// Artifacts in a folder of their own that nobody else can open and that goes with this object.
struct Passing {
    artifacts: Artifacts,
    folder: PathBuf,
}

impl Passing {
    fn make() -> Result<Self, CudaError> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let nanos = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |d| d.subsec_nanos());
        let unique = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed), nanos);
        let folder = std::env::temp_dir().join(format!("warplap-{}-{}-{}", unique.0, unique.1, unique.2));
        let failed = |e: std::io::Error| CudaError::Artifact(format!("{}: {e}", folder.display()));
        let mut builder = std::fs::DirBuilder::new();
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        // Fails where the name is taken: nothing that somebody else made is ever used.
        builder.create(&folder).map_err(failed)?;
        Ok(Passing { artifacts: Artifacts::open(&folder)?, folder })
    }
}

impl Drop for Passing {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
