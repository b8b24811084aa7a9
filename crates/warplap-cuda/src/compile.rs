//! Compile: a source with its constants comes in; a CUBIN with the assembler's report goes out, from the artifacts where
//! they hold it.

use std::sync::OnceLock;

use warplap_core::rejection::Rejection;

use crate::artifact::Artifacts;
use crate::error::CudaError;
use crate::nvrtc::Compiler;
use crate::ptxas::Report;

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
        let (image, log) = compiler.compile(&name, self.text, self.headers, &self.options(arch))?;
        Ok(Cubin { image, report: Report::parse(&log) })
    }
}

/// The compiler, found when first needed, and the artifacts before it.
#[derive(Debug, Default)]
pub(crate) struct Workshop {
    compiler: OnceLock<Result<Compiler, CudaError>>,
    pub(crate) artifacts: Option<Artifacts>,
}

impl Workshop {
    pub(crate) fn compiler(&self) -> Result<&Compiler, CudaError> {
        self.compiler.get_or_init(Compiler::find).as_ref().map_err(Clone::clone)
    }

    /// The CUBIN of a source: kept, or compiled and kept. One that spills or serialises is refused.
    pub(crate) fn cubin(&self, source: &Source, arch: &str) -> Result<(String, Cubin), Rejection> {
        let compiler = self.compiler().map_err(|e| e.rejection())?;
        let digest = source.digest(arch, compiler.version());
        let kept = self.artifacts.as_ref().and_then(|a| a.get(&digest));
        let cubin = match kept {
            Some(cubin) => cubin,
            None => {
                let cubin = source.compile(compiler, arch).map_err(|e| e.rejection())?;
                if let Some(artifacts) = &self.artifacts
                    && let Err(error) = artifacts.put(&digest, &cubin)
                {
                    tracing::warn!("a compiled kernel was not kept: {error}");
                }
                cubin
            }
        };
        match cubin.report.refusal() {
            Some(refusal) => Err(refusal),
            None => Ok((digest, cubin)),
        }
    }
}
