//! The OpenMP runtime of the process, where there is one: work comes in; its threads do it.
//!
//! torch and most numerical libraries bring an OpenMP runtime whose threads spin on every core for some milliseconds
//! after each parallel loop. A second pool shares the cores with them: on two cores a product of 200³ takes 107 µs alone
//! and 180 µs behind a parallel operation of torch. On the runtime's own threads it takes the same in both places. So
//! where a runtime is loaded already, its threads are used. It is found by its symbols and never linked.

use std::any::Any;
use std::ffi::{c_int, c_uint, c_void};
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use libloading::os::unix::{Library, RTLD_LAZY};

/// Open what is loaded already, and nothing else.
const RTLD_NOLOAD: c_int = if cfg!(target_os = "macos") { 0x10 } else { 4 };

/// GNU's runtime, Intel's and LLVM's.
const RUNTIMES: [&str; 3] = ["libgomp", "libiomp5", "libomp"];

/// What runs on each thread of a team.
type Body = extern "C" fn(*mut c_void);
/// GNU's way to run a team, which Intel's and LLVM's runtimes offer too on most systems.
type Gomp = unsafe extern "C" fn(Body, *mut c_void, c_uint, c_uint);
/// LLVM's own way.
type Kmpc = unsafe extern "C" fn(*const Ident, c_int, Micro, ...);
type Micro = extern "C" fn(*mut c_int, *mut c_int, *mut c_void);

/// Where a parallel loop stands in a source file, for tools that ask LLVM's runtime.
#[repr(C)]
struct Ident {
    reserved: c_int,
    flags: c_int,
    reserved_too: [c_int; 2],
    place: *const std::ffi::c_char,
}

/// The loop was made by a compiler of LLVM's kind.
const KMP_IDENT_KMPC: c_int = 2;

#[derive(Clone, Copy)]
enum Start {
    Gomp(Gomp),
    Kmpc(Kmpc),
}

/// A runtime that was found.
pub(super) struct OpenMp {
    start: Start,
    threads: Option<unsafe extern "C" fn() -> c_int>,
    /// Never closed: the runtime's threads stay in its code for as long as the process lives.
    _library: ManuallyDrop<Library>,
}

impl OpenMp {
    /// The runtime of this process: torch's, where there are several.
    pub(super) fn find() -> Option<OpenMp> {
        loaded().into_iter().find_map(|path| OpenMp::open(&path))
    }

    fn open(path: &std::path::Path) -> Option<OpenMp> {
        // SAFETY: the library is in the process already: its initialisers have run.
        let library = unsafe { Library::open(Some(path), RTLD_LAZY | RTLD_NOLOAD) }.ok()?;
        // SAFETY: these names are the runtimes' documented interface, and stand for functions of these types.
        let (gomp, kmpc, threads) = unsafe {
            (
                library.get::<Gomp>(b"GOMP_parallel\0").map(|s| *s).ok(),
                library.get::<Kmpc>(b"__kmpc_fork_call\0").map(|s| *s).ok(),
                library.get::<unsafe extern "C" fn() -> c_int>(b"omp_get_max_threads\0").map(|s| *s).ok(),
            )
        };
        let start = gomp.map(Start::Gomp).or(kmpc.map(Start::Kmpc))?;
        Some(OpenMp { start, threads, _library: ManuallyDrop::new(library) })
    }

    /// Threads that the runtime grants to the calling thread.
    pub(super) fn threads(&self) -> usize {
        // SAFETY: reads a setting of the calling thread.
        self.threads.and_then(|ask| usize::try_from(unsafe { ask() }).ok()).unwrap_or(1).max(1)
    }

    /// Runs `work` once on every thread of a team, the caller's included, and waits for all of them. The team has the
    /// size the program has chosen: a runtime lets threads go when it is asked for fewer, and has to make them again.
    pub(super) fn run(&self, work: &(dyn Fn() + Sync)) {
        let call = Call { work, panic: Mutex::new(None) };
        let inputs = (&raw const call).cast_mut().cast::<c_void>();
        // SAFETY: both ways run the body on every thread of the team with the pointer as it is, and return when all
        // have ended: the call outlives them.
        unsafe {
            match self.start {
                Start::Gomp(parallel) => parallel(body, inputs, 0, 0),
                Start::Kmpc(fork) => {
                    let place = c";unknown;unknown;0;0;;".as_ptr();
                    let ident = Ident { reserved: 0, flags: KMP_IDENT_KMPC, reserved_too: [0; 2], place };
                    fork(&ident, 1, micro, inputs);
                }
            }
        }
        if let Some(panic) = call.panic.into_inner().unwrap_or_else(PoisonError::into_inner) {
            resume_unwind(panic);
        }
    }
}

impl std::fmt::Debug for OpenMp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "OpenMp({} threads)", self.threads())
    }
}

/// One parallel loop: what to do, and the first panic. A panic must not run through the runtime's frames.
struct Call<'w> {
    work: &'w (dyn Fn() + Sync),
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

extern "C" fn body(inputs: *mut c_void) {
    // SAFETY: `run` gave the address of a call that lives until every thread has ended.
    let call = unsafe { &*inputs.cast::<Call<'_>>() };
    if let Err(panic) = catch_unwind(AssertUnwindSafe(call.work)) {
        call.panic.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(panic);
    }
}

extern "C" fn micro(_: *mut c_int, _: *mut c_int, inputs: *mut c_void) {
    body(inputs);
}

/// The runtimes that are loaded, torch's first.
fn loaded() -> Vec<PathBuf> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let mut result: Vec<PathBuf> = Vec::new();
    for path in maps.lines().filter_map(|line| line.find('/').map(|at| PathBuf::from(&line[at..]))) {
        if is_runtime(&path) && !result.contains(&path) {
            result.push(path);
        }
    }
    result.sort_by_key(|path| !path.to_string_lossy().contains("torch"));
    result
}

fn is_runtime(path: &std::path::Path) -> bool {
    let name = path.file_name().map(|n| n.to_string_lossy()).unwrap_or_default();
    // libompd and libomptarget are no runtimes; wheels put a hash behind a dash into the names of theirs.
    RUNTIMES.iter().any(|r| name.strip_prefix(r).is_some_and(|rest| rest.starts_with(['.', '-'])))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn runtimes_are_known_by_their_files() {
        for name in ["libgomp.so.1", "libgomp-24e2ab19.so.1.0.0", "libiomp5.so", "libomp.so.5"] {
            assert!(is_runtime(&Path::new("/usr/lib").join(name)), "{name}");
        }
        for name in ["libompd.so", "libomptarget.so.18", "libgompertz.so", "libtorch_cpu.so"] {
            assert!(!is_runtime(&Path::new("/usr/lib").join(name)), "{name}");
        }
    }

    /// GNU's runtime comes with every C compiler that links Rust programs here.
    #[test]
    #[cfg(target_os = "linux")]
    fn a_loaded_runtime_runs_work_on_its_team_and_gives_panics_back() {
        // SAFETY: the runtime's initialisers read the environment alone.
        let Ok(_loaded) = (unsafe { Library::open(Some("libgomp.so.1"), RTLD_LAZY) }) else { return };
        let openmp = OpenMp::find().expect("it is loaded");
        let ran = AtomicUsize::new(0);
        openmp.run(&|| {
            ran.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(ran.load(Ordering::Relaxed), openmp.threads());
        let panicked = catch_unwind(AssertUnwindSafe(|| openmp.run(&|| panic!("in a team"))));
        assert_eq!(panicked.unwrap_err().downcast_ref::<&str>(), Some(&"in a team"));
        openmp.run(&|| {
            ran.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(ran.load(Ordering::Relaxed), 2 * openmp.threads(), "a panic leaves the team whole");
    }
}
