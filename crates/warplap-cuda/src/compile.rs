//! Compile: a source with its constants comes in; a CUBIN with the assembler's report goes out, from the artifacts where
//! they hold it.

use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use warplap_core::rejection::Rejection;

use crate::artifact::Artifacts;
use crate::error::CudaError;
use crate::finder::toolkit_headers;
use crate::nvrtc::Compiler;
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

/// A kernel that came with a user's spec: its text and options are known only at run time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnSource {
    /// The entry's name.
    pub entry: String,
    /// The text.
    pub text: String,
    /// What it may include by name, besides the toolkit's own headers.
    pub headers: Vec<(String, String)>,
    /// The user's options and the axes as `-D`.
    pub options: Vec<String>,
}

impl OwnSource {
    fn order(&self, arch: &str) -> CompileOrder {
        let mut options = ["-Xptxas", "-v"].map(String::from).to_vec();
        options.push(format!("-arch={arch}"));
        let defines = |option: &&String| define(option).is_some();
        options.extend(self.options.iter().filter(|o| !defines(o)).cloned());
        options.extend(toolkit_headers().iter().map(|folder| format!("-I{}", folder.display())));
        let defines: String = self.options.iter().filter_map(|o| define(o)).collect();
        let text = format!("{defines}#line 1\n{}", self.named());
        CompileOrder { name: format!("{}.cu", self.entry), text, headers: self.headers.clone(), options }
    }

    /// The text, with the entry under its plain name: C++ would add the parameters' types to it. What is included stays C++.
    fn named(&self) -> String {
        if self.text.contains("extern \"C\"") {
            return self.text.clone();
        }
        let (included, lines) = included(&self.text);
        let (head, rest) = self.text.split_at(included);
        format!("{head}extern \"C\" {{\n#line {}\n{rest}\n}}\n", lines + 1)
    }
}

/// Bytes and lines up to the end of the last `#include` that stands under no condition.
fn included(text: &str) -> (usize, usize) {
    let (mut depth, mut at, mut last) = (0usize, 0, (0, 0));
    for (number, line) in text.split_inclusive('\n').enumerate() {
        at += line.len();
        let Some(word) = line.trim_start().strip_prefix('#').map(str::trim_start) else { continue };
        if word.starts_with("if") {
            depth += 1;
        } else if word.starts_with("endif") {
            depth = depth.saturating_sub(1);
        } else if word.starts_with("include") && depth == 0 && line.ends_with('\n') {
            last = (at, number + 1);
        }
    }
    last
}

/// The line that says what an option `-DNAME=VALUE` says. Given as an option it would reach the declarations that the
/// compiler has of its own, and a constant may well be called `kind` or `size` as members of structures there are.
fn define(option: &str) -> Option<String> {
    let (name, value) = option.strip_prefix("-D").map(|said| said.split_once('=').unwrap_or((said, "1")))?;
    let plain = !name.is_empty() && !value.contains('\n');
    plain.then(|| format!("#define {name} {value}\n"))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_users_constants_are_defined_in_the_text_and_its_lines_keep_their_numbers() {
        let options = ["-DKIND=a + b", "-DFAST", "--use_fast_math", "-D"].map(String::from).to_vec();
        let (entry, text) = ("k".into(), "extern \"C\" __global__ void k() {}".into());
        let source = OwnSource { entry, text, headers: Vec::new(), options };
        let order = source.order("sm_90");
        let head = "#define KIND a + b\n#define FAST 1\n#line 1\n";
        assert_eq!(order.text, format!("{head}{}", source.text));
        assert_eq!(order.options[..5], ["-Xptxas", "-v", "-arch=sm_90", "--use_fast_math", "-D"]);
        let bare = OwnSource { text: "__global__ void k() {}".into(), ..source };
        assert!(
            bare.order("sm_90").text.contains("extern \"C\" {\n#line 1\n__global__"),
            "{}",
            bare.order("sm_90").text
        );
    }

    #[test]
    fn what_a_user_includes_stays_outside_of_the_plain_names() {
        let head = "#include <cub/cub.cuh>\n#if FAST\n#include \"fast.h\"\n#endif\n#include \"tile.h\"\n";
        assert_eq!(
            included(&format!("{head}\n__global__ void k() {{}}\n#if 1\n#include \"x.h\"\n#endif\n")),
            (head.len(), 5)
        );
        assert_eq!(included("__global__ void k() {}"), (0, 0));
        let headers = vec![("tile.h".to_string(), "#define TILE 4\n".to_string())];
        let source = OwnSource { entry: "k".into(), text: format!("{head}int x;"), headers, options: Vec::new() };
        let order = source.order("sm_90");
        assert_eq!(order.text, format!("#line 1\n{head}extern \"C\" {{\n#line 6\nint x;\n}}\n"));
        assert_eq!(order.headers, source.headers);
    }
}
