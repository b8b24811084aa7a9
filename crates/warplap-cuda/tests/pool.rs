//! The memory pool on the stand-in driver: what comes from it, what goes back when, and what happens without one.

use std::ffi::{CStr, CString};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use libloading::Library;
use warplap_core::array::Array;
use warplap_core::device::Device;
use warplap_core::dtype::DType;
use warplap_cuda::{Class, CudaError};

#[allow(dead_code, unreachable_pub, reason = "the tests of the sandbox use the rest")]
mod standin;
use standin::{opened, scenario};

/// The stand-in's memory and counters are one for the process.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn call<T: Copy>(name: &CStr) -> T {
    static LIBRARY: OnceLock<Library> = OnceLock::new();
    // SAFETY: the stand-in library, which stays open; the signatures are those of its functions.
    unsafe {
        let library = LIBRARY.get_or_init(|| Library::new(standin::library()).unwrap());
        *library.get(name.to_bytes_with_nul()).unwrap()
    }
}

/// How often the driver was called so.
fn calls(name: &str) -> u64 {
    let count: unsafe extern "C" fn(*const std::ffi::c_char) -> u64 = call(c"standin_calls");
    let name = CString::new(name).unwrap();
    // SAFETY: the name ends in zero.
    unsafe { count(name.as_ptr()) }
}

fn counts() -> [u64; 4] {
    ["cuMemAllocFromPoolAsync", "cuMemFreeAsync", "cuMemAlloc_v2", "cuMemFree_v2"].map(calls)
}

fn since(before: [u64; 4]) -> [u64; 4] {
    let now = counts();
    std::array::from_fn(|i| now[i] - before[i])
}

#[test]
fn memory_of_the_queue_comes_from_the_pool_and_other_memory_does_not() {
    let _alone = alone();
    let cuda = opened();
    let (ones, before) = (Array::filled(DType::F32, 1000, 1.0), counts());
    let (own, other) = (cuda.upload_queued(&ones).unwrap(), cuda.upload(&ones).unwrap());
    assert_eq!(since(before), [1, 0, 1, 0]);
    assert_eq!((cuda.download(&own).unwrap(), cuda.download(&other).unwrap()), (ones.clone(), ones));
    drop((own, other));
    assert_eq!(since(before), [1, 1, 1, 1]);
}

#[test]
fn a_buffer_may_outlive_its_device() {
    let _alone = alone();
    let before = counts();
    let buffer = opened().alloc_queued(DType::F32, 10).unwrap();
    drop(buffer);
    assert_eq!(since(before), [1, 1, 0, 0]);
}

#[test]
fn while_the_queue_is_captured_the_pool_is_left_alone_and_the_capture_lives() {
    let _alone = alone();
    let cuda = opened();
    let begin: unsafe extern "C" fn(usize, i32) -> i32 = call(c"cuStreamBeginCapture_v2");
    let end: unsafe extern "C" fn(usize, *mut usize) -> i32 = call(c"cuStreamEndCapture");
    let (early, before, mut graph) = (cuda.alloc_queued(DType::F32, 10).unwrap(), counts(), 0);
    // SAFETY: begins a capture of the device's own stream.
    assert_eq!(unsafe { begin(cuda.stream().handle(), 0) }, 0);
    let late = cuda.alloc_queued(DType::F32, 10).unwrap();
    assert_eq!(since(before), [0, 0, 1, 0], "plain memory instead");
    drop(early);
    assert_eq!(since(before), [0, 0, 1, 0], "it waits for the end of the capture");
    // SAFETY: the pointer is to a local.
    assert_eq!(unsafe { end(cuda.stream().handle(), &mut graph) }, 0, "the capture was spoiled");
    drop(late);
    drop(cuda.alloc_queued(DType::F32, 10).unwrap());
    assert_eq!(since(before), [1, 2, 1, 1]);
}

/// Elements of more than half of the stand-in's memory.
const MOST: usize = 40 << 20;

#[test]
fn running_out_of_memory_is_a_clean_error_and_what_is_kept_is_given_up_before() {
    let _alone = alone();
    let cuda = opened();
    drop(cuda.alloc_queued(DType::F32, MOST).unwrap());
    // The pool keeps it, and plain memory of that size is there all the same.
    let plain = cuda.alloc(DType::F32, MOST).unwrap();
    for refused in [cuda.alloc_queued(DType::F32, MOST), cuda.alloc(DType::F32, MOST)] {
        let error = refused.unwrap_err();
        assert!(matches!(error, CudaError::Driver { code: 2, .. }) && error.class() == Class::Clean, "{error}");
        assert_eq!(error.rejection().word(), "over_limits");
    }
    drop(plain);
    drop((0..3).map(|_| cuda.alloc_queued(DType::F32, MOST / 4).unwrap()).collect::<Vec<_>>());
    drop(cuda.alloc_queued(DType::F32, MOST).unwrap());
    assert!(cuda.broken().is_none());
}

#[test]
fn a_device_without_pools_takes_plain_memory() {
    let output = scenario("plain_memory_serves", &[("WARPLAP_STANDIN", "cuMemPoolCreate:0:801")]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
#[ignore = "run by a_device_without_pools_takes_plain_memory"]
fn plain_memory_serves() {
    let (cuda, ones) = (opened(), Array::filled(DType::F32, 10, 1.0));
    let before = counts();
    let buffer = cuda.upload_queued(&ones).unwrap();
    assert_eq!(cuda.download(&buffer).unwrap(), ones);
    drop(buffer);
    assert_eq!(since(before), [0, 0, 1, 1]);
}
