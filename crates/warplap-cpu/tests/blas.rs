//! Real BLAS libraries: right whatever the width of their integers, held to one thread a call, whole after a fork.
#![cfg(target_os = "linux")]

mod installed;

use std::ffi::c_int;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use warplap_cpu::blas::{Blas, BlasLibraries, Matrix, Places};

/// A fork leaves locks of the library's locked that other threads hold: one test at a time calls it.
static CALLS: Mutex<()> = Mutex::new(());

fn named(path: &Path) -> BlasLibraries {
    Places { named: Some(path.into()), ..Places::default() }.look()
}

/// Products of whole numbers, which are exact in every order of summing, with every operand both ways and columns apart.
fn is_right(blas: &Blas, what: &str) {
    for (m, n, k) in [(1, 1, 1), (1, 37, 19), (29, 1, 33), (7, 13, 1), (65, 97, 130), (256, 250, 300)] {
        for turned in [[false, false], [true, false], [false, true], [true, true]] {
            let (a_rows, a_columns) = if turned[0] { (k, m) } else { (m, k) };
            let (b_rows, b_columns) = if turned[1] { (n, k) } else { (k, n) };
            let [lda, ldb, ldc] = [a_rows + 3, b_rows, m + 5];
            let numbers = |len: usize, step: usize| (0..len).map(|i| (i * step % 7) as f32 - 3.0).collect::<Vec<_>>();
            let (a, b) = (numbers(lda * a_columns, 5), numbers(ldb * b_columns, 3));
            let mut c = vec![f32::NAN; ldc * n];
            // SAFETY: the vectors hold what the numbers say.
            unsafe {
                blas.sgemm(
                    (m, n, k),
                    Matrix { first: a.as_ptr(), ld: lda, turned: turned[0] },
                    Matrix { first: b.as_ptr(), ld: ldb, turned: turned[1] },
                    Matrix { first: c.as_mut_ptr(), ld: ldc, turned: false },
                );
            }
            let at = |x: &[f32], ld: usize, turned: bool, i: usize, j: usize| {
                x[if turned { i * ld + j } else { j * ld + i }]
            };
            for (j, column) in c.chunks(ldc).enumerate() {
                for (i, result) in column.iter().enumerate() {
                    let product = |l| at(&a, lda, turned[0], i, l) * at(&b, ldb, turned[1], l, j);
                    let right = if i < m { (0..k).map(product).sum() } else { f32::NAN };
                    let same = *result == right || result.is_nan() && right.is_nan();
                    assert!(same, "{what}: {m}x{n}x{k} {turned:?} at {i}, {j}: {result}, not {right}");
                }
            }
        }
    }
}

#[test]
fn integers_of_either_width_are_understood_and_the_process_keeps_its_threads() {
    let Some(paths) = installed::libraries() else { return };
    let _alone = CALLS.lock().unwrap_or_else(PoisonError::into_inner);
    for (path, suffix) in paths.iter().zip(["64_", ""]) {
        let result = named(path);
        let seen = result.library("openblas").unwrap_or_else(|| panic!("{}", result.none()));
        let blas = seen.open().unwrap_or_else(|why| panic!("{why}"));
        assert!(blas.version().contains("OpenBLAS"), "{}", blas.version());
        assert_eq!(blas.version().contains("USE64BITINT"), suffix == "64_", "{}", blas.version());
        // SAFETY: it is loaded, and the functions have these types.
        let (threads, set) = unsafe {
            let library = std::mem::ManuallyDrop::new(libloading::Library::new(path).unwrap());
            let symbol = |name: &str| format!("scipy_openblas_{name}_num_threads{suffix}\0");
            let get = *library.get::<unsafe extern "C" fn() -> c_int>(symbol("get").as_bytes()).unwrap();
            let set = *library.get::<unsafe extern "C" fn(c_int)>(symbol("set").as_bytes()).unwrap();
            (move || get(), move |threads| set(threads))
        };
        set(3);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| is_right(blas, suffix));
            }
        });
        assert_eq!(threads(), 3);
    }
}

#[test]
fn what_is_in_the_process_is_found_there_before_anything_else() {
    let Some([numpy, other]) = installed::libraries() else { return };
    let _alone = CALLS.lock().unwrap_or_else(PoisonError::into_inner);
    // As a Python package brings it in.
    // SAFETY: its initialisers ask nothing of their loader.
    let _loaded = std::mem::ManuallyDrop::new(unsafe { libloading::Library::new(&numpy) }.unwrap());
    let folder = other.parent().unwrap().to_path_buf();
    let places = Places { named: None, environments: Vec::new(), folders: vec![folder], ..Places::here() };
    assert!(places.loaded.contains(&numpy.canonicalize().unwrap()), "{:?}", places.loaded);
    let result = Places { loaded: vec![numpy.clone()], ..places.clone() }.look();
    assert_eq!(result.library("openblas").unwrap().path(), numpy);
    let result = Places { loaded: Vec::new(), ..places }.look();
    assert_eq!(result.library("openblas").unwrap().path(), other.canonicalize().unwrap());
}

#[test]
fn a_child_that_was_forked_after_a_call_multiplies_too() {
    let Some([numpy, _]) = installed::libraries() else { return };
    let _alone = CALLS.lock().unwrap_or_else(PoisonError::into_inner);
    let result = named(&numpy);
    let blas = result.libraries()[0].open().unwrap_or_else(|why| panic!("{why}"));
    is_right(blas, "the parent");
    // SAFETY: the child multiplies, which takes locks of the library's alone, and ends without unwinding.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let whole = std::panic::catch_unwind(|| is_right(blas, "the child")).is_ok();
        // SAFETY: ends this process.
        unsafe { libc::_exit(if whole { 0 } else { 1 }) };
    }
    let ended = (0..300).find_map(|_| {
        std::thread::sleep(std::time::Duration::from_millis(100));
        let mut status = 0;
        // SAFETY: asks for a child of ours.
        (unsafe { libc::waitpid(child, &mut status, libc::WNOHANG) } == child).then_some(status)
    });
    if ended.is_none() {
        // SAFETY: a child of ours.
        unsafe { libc::kill(child, libc::SIGKILL) };
    }
    assert_eq!(ended, Some(0), "it hangs, or it was wrong");
    is_right(blas, "the parent afterwards");
}

#[test]
fn a_library_without_products_is_refused_with_its_reason() {
    let c = Path::new("/proc/self/maps");
    let maps = std::fs::read_to_string(c).unwrap();
    let libc = maps.lines().find_map(|l| l.find('/').map(|at| &l[at..]).filter(|f| f.contains("libc.so"))).unwrap();
    let result = named(Path::new(libc));
    let why = result.library("named").unwrap_or_else(|| panic!("{}", result.none())).open().unwrap_err();
    assert!(why.contains("it has none of") && why.contains("sgemm_"), "{why}");
}
