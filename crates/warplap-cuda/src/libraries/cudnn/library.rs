//! The library: opened once per process, its functions by name, its answers as Results.

use std::ffi::{CStr, c_char, c_void};
use std::path::Path;
use std::sync::OnceLock;

use libloading::Library;
use warplap_core::environment;

use crate::error::CudaError;
use crate::libraries::finder::Wanted;

const CUDNN: Wanted = Wanted {
    stem: "libcudnn.so",
    variable: "WARPLAP_CUDNN",
    folder: "cudnn",
    package: "nvidia-cudnn-cu13",
    majors: &["9"],
};

/// The major version whose numbers these rooms know.
const MAJOR: usize = 9;

pub(super) type DnnOpaque = *mut c_void;

macro_rules! table {
    ($($name:ident = $symbol:literal ($($ty:ty),*);)*) => {
        /// The library's functions, loaded once per process.
        pub struct Dnn {
            _library: Library,
            version: usize,
            runtime: usize,
            last_error: Option<unsafe extern "C" fn(*mut c_char, usize)>,
            $(pub(super) $name: unsafe extern "C" fn($($ty),*) -> i32,)*
        }

        impl Dnn {
            fn of(library: Library) -> Result<Self, String> {
                // SAFETY: the signatures are those of cudnn_graph.h.
                unsafe {
                    let missing = |e: libloading::Error| e.to_string();
                    let version: unsafe extern "C" fn() -> usize =
                        *library.get(b"cudnnGetVersion\0").map_err(missing)?;
                    let result = version();
                    if major(result) != MAJOR {
                        return Err(format!("it is version {result}: expected one of cuDNN {MAJOR}"));
                    }
                    let runtime: unsafe extern "C" fn() -> usize =
                        *library.get(b"cudnnGetCudartVersion\0").map_err(missing)?;
                    Ok(Dnn {
                        version: result,
                        runtime: runtime(),
                        last_error: library.get(b"cudnnGetLastErrorString\0").ok().map(|f| *f),
                        $($name: *library.get(concat!($symbol, "\0").as_bytes()).map_err(missing)?,)*
                        _library: library,
                    })
                }
            }
        }
    };
}

table! {
    create = "cudnnCreate" (*mut DnnOpaque);
    destroy = "cudnnDestroy" (DnnOpaque);
    set_stream = "cudnnSetStream" (DnnOpaque, usize);
    make = "cudnnBackendCreateDescriptor" (i32, *mut DnnOpaque);
    unmake = "cudnnBackendDestroyDescriptor" (DnnOpaque);
    finalize = "cudnnBackendFinalize" (DnnOpaque);
    set = "cudnnBackendSetAttribute" (DnnOpaque, i32, i32, i64, *const c_void);
    get_attribute = "cudnnBackendGetAttribute" (DnnOpaque, i32, i32, i64, *mut i64, *mut c_void);
    execute = "cudnnBackendExecute" (DnnOpaque, DnnOpaque, DnnOpaque);
}

/// The major of a version as the library says it: 91900 is 9.19.
fn major(version: usize) -> usize {
    version / 10_000
}

/// The one that somebody in this process has open (PyTorch): its parts find each other by name, so that two versions
/// side by side would be mixed.
#[cfg(target_os = "linux")]
fn opened() -> Option<Library> {
    use libloading::os::unix::{Library as Open, RTLD_LAZY};
    const NOLOAD: std::ffi::c_int = 4;
    // SAFETY: nothing is loaded, so that no initialiser runs.
    unsafe { Open::open(Some("libcudnn.so.9"), RTLD_LAZY | NOLOAD) }.ok().map(Library::from)
}

#[cfg(not(target_os = "linux"))]
fn opened() -> Option<Library> {
    None
}

impl Dnn {
    fn open(path: &Path) -> Result<Self, String> {
        // SAFETY: NVIDIA's library, whose initialisers ask nothing of their loader.
        let library = unsafe { Library::new(path) }.map_err(|e| e.to_string())?;
        Self::of(library)
    }

    /// The process's library: `WARPLAP_CUDNN` (a file or folder), the one that is open already, the active Python
    /// environment, the toolkit, the loader.
    pub fn get() -> Result<&'static Dnn, CudaError> {
        static DNN: OnceLock<Result<Dnn, CudaError>> = OnceLock::new();
        let result = || {
            let named = environment::var(CUDNN.variable).is_some();
            let open = if named { None } else { opened().and_then(|library| Self::of(library).ok()) };
            open.map_or_else(|| CUDNN.first(Self::open), Ok)
        };
        let made = || result().map_err(|said| CudaError::NoLibrary(format!("cuDNN: {said}")));
        DNN.get_or_init(made).as_ref().map_err(Clone::clone)
    }

    /// Its version as one number, as its header writes it.
    pub fn version(&self) -> usize {
        self.version
    }

    /// Its version and the CUDA it was built for: what a plan's text is for.
    pub(super) fn build(&self) -> String {
        format!("{} for CUDA {}", self.version, self.runtime)
    }

    /// An answer of the library as a Result; what it says beside its code goes to the log.
    pub(super) fn checked(&self, status: i32, call: &'static str) -> Result<(), CudaError> {
        if status == 0 {
            return Ok(());
        }
        if let Some(last_error) = self.last_error {
            let mut said = [0 as c_char; 2048];
            // SAFETY: the library writes at most so many bytes, and the last one stays zero.
            let said = unsafe {
                last_error(said.as_mut_ptr(), said.len() - 1);
                CStr::from_ptr(said.as_ptr())
            };
            tracing::debug!("{call}: {status}: {}", said.to_string_lossy().trim());
        }
        Err(CudaError::Library { status, call, said: meaning(status) })
    }
}

fn meaning(status: i32) -> &'static str {
    match status {
        1001 => " (not initialised)",
        1002 => " (parts of different versions)",
        1008 => " (a part is missing)",
        2000..3000 => " (bad parameter)",
        3000..4000 => " (not supported)",
        4001 => " (does not compile)",
        4003 | 4004 => " (out of memory)",
        4000..5000 => " (internal error)",
        5000..6000 => " (execution failed)",
        _ => "",
    }
}

impl std::fmt::Debug for Dnn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Dnn").field("version", &self.version).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_the_library_is_found_it_has_every_function_and_a_version_that_is_known() {
        match Dnn::get() {
            Ok(result) => assert_eq!(major(result.version()), MAJOR, "{result:?}"),
            Err(why) => assert!(why.to_string().contains("WARPLAP_CUDNN"), "{why}"),
        }
    }

    #[test]
    fn a_status_is_said_with_its_meaning() {
        let said = |status| CudaError::Library { status, call: "cudnnBackendFinalize", said: meaning(status) };
        assert_eq!(said(3001).to_string(), "cudnnBackendFinalize gave status 3001 (not supported)");
        assert_eq!(
            [1001, 2003, 4001, 4002, 5003, 9].map(meaning),
            [
                " (not initialised)",
                " (bad parameter)",
                " (does not compile)",
                " (internal error)",
                " (execution failed)",
                "",
            ]
        );
    }
}
