//! A fork before a pool is first used, in a process whose OpenMP runtime others have used already.
#![cfg(target_os = "linux")]

use std::ffi::{c_uint, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

use warplap_cpu::pool::Pool;

extern "C" fn nothing(_: *mut c_void) {}

#[test]
fn a_pool_that_was_never_used_works_in_a_child() {
    type Parallel = unsafe extern "C" fn(extern "C" fn(*mut c_void), *mut c_void, c_uint, c_uint);
    let pool = Pool::new(4);
    // SAFETY: the runtime's initialisers read the environment alone; the symbol is its documented entry, and the library
    // is never closed. The child runs a loop and leaves.
    unsafe {
        let Ok(runtime) = libloading::Library::new("libgomp.so.1") else { return };
        let runtime = std::mem::ManuallyDrop::new(runtime);
        let parallel = runtime.get::<Parallel>(b"GOMP_parallel\0").expect("the runtime's entry");
        parallel(nothing, std::ptr::null_mut(), 2, 0);
        let child = libc::fork();
        if child == 0 {
            libc::alarm(20);
            let ran = AtomicUsize::new(0);
            pool.each(4, 200, |_| {
                ran.fetch_add(1, Ordering::Relaxed);
            });
            libc::_exit(i32::from(ran.load(Ordering::Relaxed) != 200));
        }
        let mut status = -1;
        libc::waitpid(child, &mut status, 0);
        assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "status {status}");
    }
}
