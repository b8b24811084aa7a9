//! One library, loaded: its product, held to one thread a call, and what it says of itself.

use std::ffi::{CStr, c_char, c_int};
use std::mem::ManuallyDrop;
use std::path::Path;

use super::Maker;
use super::limit::{Get, Limit, Set, Swap};

#[cfg(unix)]
use libloading::os::unix::Library;
#[cfg(windows)]
use libloading::os::windows::Library;

/// Fortran's product: every argument by its address, then the lengths of both words.
type Gemm = unsafe extern "C" fn(
    *const c_char,
    *const c_char,
    *const i64,
    *const i64,
    *const i64,
    *const f32,
    *const f32,
    *const i64,
    *const f32,
    *const i64,
    *const f32,
    *mut f32,
    *const i64,
    usize,
    usize,
);

/// What builders put before and behind a library's names, and how its product is then spelled: NumPy's and SciPy's
/// builds first, plain names last. Builds for 64-bit integers end in `64_`.
const SPELLINGS: [(&str, &str, &str); 5] = [
    ("scipy_", "64_", "scipy_sgemm_64_"),
    ("scipy_", "", "scipy_sgemm_"),
    ("", "64_", "sgemm_64_"),
    ("", "", "sgemm_"),
    ("", "", "sgemm"),
];

/// A matrix in memory as BLAS sees it: columns are contiguous and `ld` elements apart.
#[derive(Clone, Copy, Debug)]
pub struct Matrix<P> {
    /// Its first element.
    pub first: P,
    /// Elements from one column to the next.
    pub ld: usize,
    /// Whether the product takes it transposed.
    pub turned: bool,
}

/// A loaded library.
#[derive(Debug)]
pub struct Blas {
    gemm: Gemm,
    limit: Limit,
    version: String,
    /// Never closed: its threads stay in its code for as long as the process lives.
    _library: ManuallyDrop<Library>,
}

impl Blas {
    pub(super) fn open(maker: Maker, path: &Path) -> Result<Blas, String> {
        // Numbers go in as 64 bits by address. A library that reads 32 of them finds the same number there, whichever
        // its build, where the low half comes first.
        if cfg!(target_endian = "big") {
            return Err("on machines with the high byte first the width of its integers would have to be known".into());
        }
        let (library, is_ours) = load(path)?;
        let spelled = SPELLINGS.iter().find_map(|&(before, behind, name)| Some((before, behind, get(&library, name)?)));
        let Some((before, behind, gemm)) = spelled else {
            let names: Vec<&str> = SPELLINGS.iter().map(|s| s.2).collect();
            return Err(format!("it has none of {}", names.join(", ")));
        };
        let spell = |name: &str| format!("{before}{name}{behind}");
        let (limit, version) = match maker {
            Maker::Mkl => mkl(&library, is_ours)?,
            Maker::OpenBlas => openblas(&library, spell)?,
            Maker::Blis => (Limit::None, c_text(get(&library, "bli_info_get_version_str"))),
            Maker::Accelerate | Maker::Named => (Limit::None, None),
        };
        let version = version.unwrap_or_else(|| maker.word().to_string());
        Ok(Blas { gemm, limit, version, _library: ManuallyDrop::new(library) })
    }

    /// What it says of itself.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// C (m×n) = A (m×k) · B (k×n), columns contiguous, on the calling thread. What was in C is not read.
    ///
    /// # Safety
    /// The three lie where their numbers say, nobody else touches C, and no number is larger than an `i32` holds.
    #[inline]
    pub unsafe fn sgemm(
        &self,
        (m, n, k): (usize, usize, usize),
        a: Matrix<*const f32>,
        b: Matrix<*const f32>,
        c: Matrix<*mut f32>,
    ) {
        let word = |turned: bool| if turned { c"T".as_ptr() } else { c"N".as_ptr() };
        let [m, n, k, lda, ldb, ldc] = [m, n, k, a.ld, b.ld, c.ld].map(|x| x as i64);
        let _held = self.limit.hold();
        // SAFETY: the caller's word; the numbers and words outlive the call.
        unsafe {
            (self.gemm)(
                word(a.turned),
                word(b.turned),
                &m,
                &n,
                &k,
                &1.0,
                a.first,
                &lda,
                b.first,
                &ldb,
                &0.0,
                c.first,
                &ldc,
                1,
                1,
            );
        }
    }
}

/// MKL is told its threads by the calling thread. Its runtime keeps for the whole process which threading it was first
/// told to load; where we brought it in nobody else calls it, and it needs none.
fn mkl(library: &Library, is_ours: bool) -> Result<(Limit, Option<String>), String> {
    const SEQUENTIAL: c_int = 1;
    let layer: Option<Swap> = get(library, "MKL_Set_Threading_Layer");
    if let Some(layer) = layer.filter(|_| is_ours && !in_python()) {
        // SAFETY: documented to be called before everything else of it, with this number.
        unsafe { layer(SEQUENTIAL) };
    }
    let swap: Swap = get(library, "MKL_Set_Num_Threads_Local").ok_or("it has no MKL_Set_Num_Threads_Local")?;
    let ask: Option<unsafe extern "C" fn(*mut c_char, c_int)> = get(library, "MKL_Get_Version_String");
    let version = ask.map(|ask| {
        let mut text = [0u8; 200];
        // SAFETY: it writes at most so many bytes.
        unsafe { ask(text.as_mut_ptr().cast(), text.len() as c_int - 1) };
        CStr::from_bytes_until_nul(&text).map(|t| t.to_string_lossy().trim().to_string()).unwrap_or_default()
    });
    Ok((Limit::Swap(swap), version))
}

/// OpenBLAS says how it was built: with threads of its own, or with OpenMP's.
fn openblas(library: &Library, spell: impl Fn(&str) -> String) -> Result<(Limit, Option<String>), String> {
    let parallel: Get = get(library, &spell("openblas_get_parallel")).ok_or("it does not say how it was built")?;
    // SAFETY: documented functions of these types, which read a number.
    let limit = match unsafe { parallel() } {
        1 => {
            let (getter, setter) = (spell("openblas_get_num_threads"), spell("openblas_set_num_threads"));
            get(library, &getter).zip(get(library, &setter)).map(|(get, set): (Get, Set)| Limit::process(get, set))
        }
        // The runtime it was linked with is found through the library itself.
        2 => {
            let runtime = get(library, "omp_get_max_threads").zip(get(library, "omp_set_num_threads"));
            runtime.map(|(get, set): (Get, Set)| Limit::Thread(get, set))
        }
        _ => return Err("it was built for programs of one thread".into()),
    };
    let limit = limit.ok_or("it cannot be told how many threads to take")?;
    Ok((limit, c_text(get(library, &spell("openblas_get_config")))))
}

/// What a function says that takes nothing and gives a text.
fn c_text(ask: Option<unsafe extern "C" fn() -> *const c_char>) -> Option<String> {
    // SAFETY: documented to give a text that stays.
    let text = ask.map(|ask| unsafe { ask() }).filter(|text| !text.is_null())?;
    // SAFETY: as above.
    Some(unsafe { CStr::from_ptr(text) }.to_string_lossy().trim().to_string())
}

/// A function by its name. Each caller names the type that the library documents.
fn get<F: Copy>(library: &Library, name: &str) -> Option<F> {
    // SAFETY: the address is copied out as it is; whoever calls it vouches for the type.
    unsafe { library.get::<F>(format!("{name}\0").as_bytes()) }.ok().map(|f| *f)
}

/// Why a library was not loaded: the loader's own words lie below.
fn said(error: libloading::Error) -> String {
    std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string)
}

/// The library, and whether it was brought into the process now.
#[cfg(unix)]
fn load(path: &Path) -> Result<(Library, bool), String> {
    use libloading::os::unix::{RTLD_LOCAL, RTLD_NOW};
    const RTLD_NOLOAD: c_int = if cfg!(target_os = "macos") { 0x10 } else { 4 };
    // SAFETY: one that is here already has run its initialisers; those of BLAS libraries ask nothing of their loader,
    // and their files are the user's or the system's alone (`finder`).
    unsafe {
        if let Ok(here) = Library::open(Some(path), RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD) {
            return Ok((here, false));
        }
        Library::open(Some(path), RTLD_NOW | RTLD_LOCAL).map(|l| (l, true)).map_err(said)
    }
}

/// The library, and whether it was brought into the process now.
#[cfg(windows)]
fn load(path: &Path) -> Result<(Library, bool), String> {
    // SAFETY: as on other systems.
    unsafe { Library::new(path) }.map(|l| (l, true)).map_err(said)
}

/// Whether a Python interpreter lives in this process.
#[cfg(unix)]
pub(super) fn in_python() -> bool {
    get::<Get>(&Library::this(), "Py_IsInitialized").is_some()
}

/// Whether a Python interpreter lives in this process: not asked, and so not excluded.
#[cfg(windows)]
pub(super) fn in_python() -> bool {
    true
}
