//! Compile: a source with its constants comes in; a CUBIN with the assembler's report goes out, from the artifacts
//! where they hold it.

pub(crate) mod cuh;
pub(crate) mod nvrtc;
pub(crate) mod own;
pub(crate) mod ptxas;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::OnceLock;
use std::time::Instant;

use warplap_core::rejection::Rejection;
use warplap_worker::artifact::{Artifact, Artifacts, digest};
use warplap_worker::{COMPILE, Compile, CompileOrder, Pool, WorkerSetup};

use crate::chip::KIND;
use crate::compile::nvrtc::Compiler;
use crate::compile::own::OwnSource;
use crate::compile::ptxas::Report;
use crate::error::CudaError;

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

/// Compiled bytes, and what the assembler said of them: registers, spills, warnings.
pub type Cubin = Artifact<Report>;

/// Who compiles, as the names of artifacts say it.
fn who((major, minor): (i32, i32)) -> String {
    format!("nvrtc {major}.{minor}")
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
        let (options, compiler) = (self.options(arch), who(compiler));
        let headers = self.headers.iter().flat_map(|(name, text)| [*name, *text]);
        let options = options.iter().map(String::as_str).chain([&compiler[..]]);
        digest([self.entry, self.text].into_iter().chain(headers).chain(options))
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
pub(crate) struct Workshop {
    compiler: OnceLock<Result<Compiler, CudaError>>,
    pub(crate) artifacts: Option<Artifacts>,
    // Where nobody named a folder, one that goes with this object: it is how workers get what was compiled.
    passing: OnceLock<Option<Artifacts>>,
    pub(crate) pool: Pool,
}

impl Default for Workshop {
    fn default() -> Self {
        let (compiler, passing) = (OnceLock::new(), OnceLock::new());
        Workshop { compiler, artifacts: None, passing, pool: Pool::new(KIND) }
    }
}

thread_local! {
    /// The digests of what this thread takes, while somebody asks.
    static TAKEN: RefCell<Option<BTreeSet<String>>> = const { RefCell::new(None) };
}

/// Builds something, and says what was taken for it.
pub(crate) fn built_from(build: &mut dyn FnMut()) -> BTreeSet<String> {
    let before = TAKEN.replace(Some(BTreeSet::new()));
    build();
    TAKEN.replace(before).unwrap_or_default()
}

fn taken(digest: String) -> String {
    TAKEN.with_borrow_mut(|taken| taken.as_mut().map(|taken| taken.insert(digest.clone())));
    digest
}

impl Workshop {
    pub(crate) fn compiler(&self) -> Result<&Compiler, CudaError> {
        self.compiler.get_or_init(Compiler::find).as_ref().map_err(Clone::clone)
    }

    /// The folder of compiled kernels: the user's, or one that goes with this object.
    pub(crate) fn artifacts(&self) -> Option<&Artifacts> {
        let passing = || self.passing.get_or_init(|| Artifacts::passing().ok()).as_ref();
        self.artifacts.as_ref().or_else(passing)
    }

    /// The CUBIN of a source: kept, or compiled and kept. One that spills or serialises is refused.
    pub(crate) fn cubin(
        &self,
        source: &Source,
        arch: &str,
        workers: &WorkerSetup,
    ) -> Result<(String, Cubin), Rejection> {
        let compiler = self.compiler().map_err(|e| e.rejection())?;
        let digest = source.digest(arch, compiler.version());
        let cubin = self.kept(&digest, &source.order(arch), compiler, workers)?;
        match cubin.report.refusal() {
            Some(refusal) => Err(refusal),
            None => Ok((taken(digest), cubin)),
        }
    }

    /// What a source's CUBIN is kept under, for somebody who has it loaded already.
    pub(crate) fn digest(&self, source: &Source, arch: &str) -> Result<String, Rejection> {
        let compiler = self.compiler().map_err(|e| e.rejection())?;
        Ok(taken(source.digest(arch, compiler.version())))
    }

    /// The CUBIN of a user's kernel. One that spills is the user's business: it is raced like any other.
    pub(crate) fn own_cubin(
        &self,
        source: &OwnSource,
        arch: &str,
        workers: &WorkerSetup,
    ) -> Result<(String, Cubin), Rejection> {
        let compiler = self.compiler().map_err(|e| e.rejection())?;
        let order = source.order(arch);
        let digest = order.digest(&who(compiler.version()));
        let cubin = self.kept(&digest, &order, compiler, workers)?;
        Ok((taken(digest), cubin))
    }

    /// A library's plan that was kept under a digest, as the library wrote it.
    pub(crate) fn kept_plan(&self, digest: &str) -> Option<Vec<u8>> {
        let kept: Artifact<()> = self.artifacts()?.get(digest)?;
        taken(digest.to_string());
        Some(kept.image)
    }

    /// Keeps a library's plan.
    pub(crate) fn keep_plan(&self, digest: &str, text: Vec<u8>) {
        let plan = Artifact { image: text, report: () };
        match self.artifacts().map(|artifacts| artifacts.put(digest, &plan)) {
            Some(Ok(())) => _ = taken(digest.to_string()),
            Some(Err(error)) => tracing::warn!("a library's plan was not kept: {error}"),
            None => {}
        }
    }

    /// Kept, or compiled and kept.
    fn kept(
        &self,
        digest: &str,
        order: &CompileOrder,
        compiler: &Compiler,
        workers: &WorkerSetup,
    ) -> Result<Cubin, Rejection> {
        let artifacts = self.artifacts();
        if let Some(cubin) = artifacts.and_then(|a| a.get(digest)) {
            return Ok(cubin);
        }
        let here = || Compile::compile(compiler, order, Instant::now() + COMPILE);
        let compiled = self.pool.compile(workers, order).unwrap_or_else(here);
        let (image, log) = compiled.map_err(|why| CudaError::Compile(why).rejection())?;
        let cubin = Cubin { image, report: Report::parse(&log) };
        if let Some(Err(error)) = artifacts.map(|a| a.put(digest, &cubin)) {
            tracing::warn!("a compiled kernel was not kept: {error}");
        }
        Ok(cubin)
    }
}
