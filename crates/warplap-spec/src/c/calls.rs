//! System calls that a cell's walls know: which kernels may make, which are refused, and which are answered as an old
//! system would. Any other one ends the process (`filter.h`). A number stands for what old headers have no name for.

/// What kernels with memory, threads, clocks, files that are read and words that are printed need. Some more calls are
/// allowed for some of their arguments: see `filter.h`.
const ALLOWED: &str = "\
    read readv pread64 preadv preadv2 write writev pwrite64 pwritev pwritev2 lseek close close_range dup dup2 \
    dup3 stat lstat fstat newfstatat statx statfs fstatfs access faccessat 439 readlink readlinkat getdents \
    getdents64 getcwd chdir fchdir umask fsync fdatasync fadvise64 readahead poll ppoll select pselect6 pipe \
    pipe2 eventfd eventfd2 recvmsg brk mprotect munmap mremap mincore msync mlock mlock2 munlock mlockall \
    munlockall membarrier mbind set_mempolicy get_mempolicy futex 449 454 455 456 set_robust_list rseq \
    set_tid_address arch_prctl exit exit_group rt_sigaction rt_sigprocmask rt_sigreturn rt_sigpending \
    rt_sigsuspend rt_sigtimedwait sigaltstack restart_syscall pause wait4 waitid nanosleep clock_nanosleep \
    clock_gettime clock_getres gettimeofday time times alarm getitimer setitimer timer_create timer_settime \
    timer_gettime timer_getoverrun timer_delete getrusage getrlimit sysinfo uname getcpu getrandom sched_yield \
    sched_getaffinity sched_getparam sched_getscheduler sched_getattr sched_get_priority_max \
    sched_get_priority_min sched_rr_get_interval getpriority ioprio_get getpid getppid gettid getuid geteuid \
    getgid getegid getgroups getresuid getresgid getpgid getpgrp getsid capget";

/// Changing files, limits and priorities, watching files: libraries try some of these and can do without.
const REFUSED: &str = "\
    creat truncate ftruncate unlink unlinkat rename renameat renameat2 mkdir mkdirat rmdir link linkat symlink \
    symlinkat chmod fchmod fchmodat 452 chown fchown lchown fchownat mknod mknodat utime utimes utimensat \
    futimesat setxattr lsetxattr fsetxattr 463 removexattr lremovexattr fremovexattr 466 469 setrlimit \
    setpriority sched_setscheduler sched_setparam sched_setattr ioprio_set fallocate memfd_create 447 sync \
    syncfs inotify_init inotify_init1 inotify_add_watch name_to_handle_at get_robust_list";

/// clone3 and openat2, whose flags no filter can see: the C library asks again with clone and openat. Then newer ways
/// for which every library has an older one.
const UNKNOWN: &str = "\
    435 437 epoll_create epoll_create1 signalfd signalfd4 timerfd_create sendfile splice tee vmsplice \
    copy_file_range pkey_mprotect pkey_alloc pkey_free getxattr lgetxattr fgetxattr listxattr llistxattr \
    flistxattr 441 450 451 453 457 458 459 460 461 462 464 465 467 468";

/// The cell's program as one text.
pub(crate) fn cell() -> String {
    let one = |name: &str| match name.bytes().all(|byte| byte.is_ascii_digit()) {
        true => format!("{name},\n"),
        false => format!("#ifdef SYS_{name}\nSYS_{name},\n#endif\n"),
    };
    let listed = |names: &str| -> String { names.split_whitespace().map(one).collect() };
    let lists = [("@ALLOWED@", ALLOWED), ("@REFUSED@", REFUSED), ("@UNKNOWN@", UNKNOWN)];
    let filter = lists
        .iter()
        .fold(include_str!("sources/filter.h").to_string(), |text, (at, names)| text.replace(at, &listed(names)));
    let parts = [
        ("wall.h", include_str!("sources/wall.h")),
        ("mode.h", include_str!("sources/mode.h")),
        ("clock.h", include_str!("sources/clock.h")),
        ("filter.h", &filter),
        ("spaces.h", include_str!("sources/spaces.h")),
    ];
    parts.iter().fold(include_str!("sources/cell.c").to_string(), |text, (name, part)| {
        text.replace(&format!("#include \"{name}\"\n"), part)
    })
}
