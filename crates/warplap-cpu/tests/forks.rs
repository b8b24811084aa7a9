//! A child of a fork has none of its parent's threads: its loops must run all the same.
#![cfg(unix)]

use std::sync::atomic::{AtomicUsize, Ordering};

use warplap_cpu::pool::Pool;

fn works(pool: &Pool) -> bool {
    let ran = AtomicUsize::new(0);
    pool.each(4, 200, |_| {
        ran.fetch_add(1, Ordering::Relaxed);
    });
    let inside = pool.install(|| ran.load(Ordering::Relaxed));
    inside == 200
}

/// Whether a child's loops end within some seconds and do all their tasks, and those of its own child too.
fn works_in_a_child(pool: &Pool, generations: u32) -> bool {
    // SAFETY: the child runs loops, forks again, and leaves without coming back here.
    unsafe {
        match libc::fork() {
            0 => {
                libc::alarm(20);
                let done = works(pool) && (generations <= 1 || works_in_a_child(pool, generations - 1));
                libc::_exit(i32::from(!done));
            }
            child => {
                let mut status = -1;
                libc::waitpid(child, &mut status, 0);
                libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
            }
        }
    }
}

#[test]
fn loops_run_in_a_child_whose_parent_had_threads() {
    let pool = Pool::new(4);
    assert!(works(&pool) && works_in_a_child(&pool, 2));
    assert!(works(&pool), "the parent's threads are as they were");
    // And where the parent's threads were those of an OpenMP runtime, which cannot make them anew.
    // SAFETY: the runtime's initialisers read the environment alone.
    let runtime = unsafe { libloading::Library::new("libgomp.so.1") };
    if runtime.is_ok() {
        let pool = Pool::new(4);
        assert!(pool.rouse(), "the runtime was found");
        assert!(works(&pool) && works_in_a_child(&pool, 2) && works(&pool));
    }
}
