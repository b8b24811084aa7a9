//! NVRTC: found at run time in the toolkit, the loader's path or a Python environment; source text comes in, a CUBIN
//! and the compiler's log go out.

use std::ffi::{CString, c_char, c_void};
use std::path::Path;
use std::time::Instant;

use libloading::Library;

use crate::error::CudaError;
use crate::libraries::finder::{Wanted, newest};

type Program = *mut c_void;
type Texts = *const *const c_char;

const NVRTC: Wanted = Wanted {
    stem: "libnvrtc.so",
    variable: "WARPLAP_NVRTC",
    folder: "cuda_nvrtc",
    package: "nvidia-cuda-nvrtc",
    majors: &["13", "12"],
};

/// The compiler library.
pub struct Compiler {
    _builtins: Option<Library>,
    _library: Library,
    version: (i32, i32),
    create: unsafe extern "C" fn(*mut Program, *const c_char, *const c_char, i32, Texts, Texts) -> i32,
    destroy: unsafe extern "C" fn(*mut Program) -> i32,
    compile: unsafe extern "C" fn(Program, i32, Texts) -> i32,
    log_size: unsafe extern "C" fn(Program, *mut usize) -> i32,
    log: unsafe extern "C" fn(Program, *mut c_char) -> i32,
    cubin_size: unsafe extern "C" fn(Program, *mut usize) -> i32,
    cubin: unsafe extern "C" fn(Program, *mut c_char) -> i32,
    /// Since 12.8: asked now and then while it compiles whether to go on.
    set_flow: Option<unsafe extern "C" fn(Program, Flow, *mut c_void) -> i32>,
}

type Flow = unsafe extern "C" fn(*mut c_void, *mut c_void) -> i32;

/// Says 1 (stop) once the deadline has passed.
unsafe extern "C" fn flow(deadline: *mut c_void, _: *mut c_void) -> i32 {
    // SAFETY: `compile` hands over a pointer to an Instant that outlives the compilation.
    let deadline = unsafe { &*deadline.cast::<Instant>() };
    i32::from(Instant::now() >= *deadline)
}

impl Compiler {
    /// The first that loads: `WARPLAP_NVRTC` (a file or folder), the active Python environment, the toolkit, the
    /// loader.
    pub fn find() -> Result<Self, CudaError> {
        NVRTC.first(Self::open).map_err(CudaError::NoCompiler)
    }

    /// The one in a folder.
    pub fn within(folder: &Path) -> Result<Self, CudaError> {
        let missing = || CudaError::NoCompiler(format!("{} holds no libnvrtc.so", folder.display()));
        let path = newest(folder, NVRTC.stem).ok_or_else(missing)?;
        Self::open(&path).map_err(|e| CudaError::NoCompiler(format!("{}: {e}", path.display())))
    }

    fn open(path: &Path) -> Result<Self, libloading::Error> {
        // The library looks for its builtins by name alone and does not look beside itself: opened by full path first,
        // the loader finds them already there.
        let builtins = path.parent().and_then(|folder| newest(folder, "libnvrtc-builtins.so"));
        // SAFETY: NVIDIA's libraries, whose initialisers ask nothing of their loader.
        let builtins = builtins.and_then(|b| unsafe { Library::new(b) }.ok());
        // SAFETY: as above; the signatures are those of nvrtc.h.
        unsafe {
            let library = Library::new(path)?;
            let version: unsafe extern "C" fn(*mut i32, *mut i32) -> i32 = *library.get(b"nvrtcVersion\0")?;
            let (mut major, mut minor) = (0, 0);
            version(&mut major, &mut minor);
            Ok(Compiler {
                version: (major, minor),
                create: *library.get(b"nvrtcCreateProgram\0")?,
                destroy: *library.get(b"nvrtcDestroyProgram\0")?,
                compile: *library.get(b"nvrtcCompileProgram\0")?,
                log_size: *library.get(b"nvrtcGetProgramLogSize\0")?,
                log: *library.get(b"nvrtcGetProgramLog\0")?,
                cubin_size: *library.get(b"nvrtcGetCUBINSize\0")?,
                cubin: *library.get(b"nvrtcGetCUBIN\0")?,
                set_flow: library.get(b"nvrtcSetFlowCallback\0").ok().map(|f| *f),
                _builtins: builtins,
                _library: library,
            })
        }
    }

    /// Major and minor version.
    pub fn version(&self) -> (i32, i32) {
        self.version
    }

    /// Compiles a source with named headers to a CUBIN; gives it and the log. It stops at the deadline where the
    /// library can be told to.
    pub fn compile(
        &self,
        name: &str,
        text: &str,
        headers: &[(&str, &str)],
        options: &[String],
        mut deadline: Instant,
    ) -> Result<(Vec<u8>, String), CudaError> {
        let c = |text: &str| CString::new(text).map_err(|_| CudaError::Compile("a text holds a zero byte".into()));
        let (name, text) = (c(name)?, c(text)?);
        let names = headers.iter().map(|h| c(h.0)).collect::<Result<Vec<_>, _>>()?;
        let texts = headers.iter().map(|h| c(h.1)).collect::<Result<Vec<_>, _>>()?;
        let options = options.iter().map(|o| c(o)).collect::<Result<Vec<_>, _>>()?;
        let pointers = |list: &[CString]| list.iter().map(|t| t.as_ptr()).collect::<Vec<_>>();
        let (names_at, texts_at, options_at) = (pointers(&names), pointers(&texts), pointers(&options));
        let mut program: Program = std::ptr::null_mut();
        // SAFETY: all texts end in zero and live to the end of this function; lengths are those of the lists; buffers
        // are as long as the library said.
        unsafe {
            let created = (self.create)(
                &mut program,
                text.as_ptr(),
                name.as_ptr(),
                names.len() as i32,
                texts_at.as_ptr(),
                names_at.as_ptr(),
            );
            if created != 0 {
                return Err(CudaError::Compile(format!("nvrtcCreateProgram gave {created}")));
            }
            if let Some(set_flow) = self.set_flow {
                set_flow(program, flow, (&raw mut deadline).cast());
            }
            let code = (self.compile)(program, options.len() as i32, options_at.as_ptr());
            let log =
                String::from_utf8_lossy(&taken(program, self.log_size, self.log)).trim_end_matches('\0').to_string();
            let cubin = if code == 0 { taken(program, self.cubin_size, self.cubin) } else { Vec::new() };
            (self.destroy)(&mut program);
            if code != 0 && Instant::now() >= deadline {
                return Err(CudaError::Compile("NVRTC was stopped at its deadline".into()));
            }
            if code != 0 || cubin.is_empty() {
                return Err(CudaError::Compile(format!("NVRTC gave {code}: {}", from_first_error(&log))));
            }
            Ok((cubin, log))
        }
    }
}

/// # Safety
/// The program is alive and the functions are a pair of NVRTC's size and content calls.
unsafe fn taken(
    program: Program,
    size: unsafe extern "C" fn(Program, *mut usize) -> i32,
    content: unsafe extern "C" fn(Program, *mut c_char) -> i32,
) -> Vec<u8> {
    let mut len = 0;
    // SAFETY: the caller's word; the buffer is as long as the library said.
    unsafe {
        if size(program, &mut len) != 0 {
            return Vec::new();
        }
        let mut bytes = vec![0u8; len];
        if content(program, bytes.as_mut_ptr().cast()) == 0 { bytes } else { Vec::new() }
    }
}

impl std::fmt::Debug for Compiler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Compiler").field("version", &self.version).finish_non_exhaustive()
    }
}

/// A log from its first error on, as much of it as anybody reads: what follows is mostly what that one led to.
fn from_first_error(log: &str) -> &str {
    let mut lines = log.split_inclusive('\n').scan(0, |at, line| {
        *at += line.len();
        Some((*at - line.len(), line))
    });
    let first = lines.find(|(_, line)| line.contains("error")).map_or(0, |(at, _)| at);
    let end = log[first..].char_indices().nth(1500).map_or(log.len(), |(i, _)| first + i);
    log[first..end].trim_end()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_told_from_its_first_error_on() {
        let log = format!("k.cu(1): warning: x\n{}k.cu(9): error: µ\n{}", " ^\n".repeat(900), "more\n".repeat(900));
        let said = from_first_error(&log);
        assert!(said.starts_with("k.cu(9): error: µ\nmore") && said.chars().count() <= 1500, "{said}");
        assert_eq!(from_first_error("no word of it\n"), "no word of it");
        assert_eq!(from_first_error(""), "");
    }
}
