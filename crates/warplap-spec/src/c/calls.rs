//! System calls that a cell's walls know: which end the process, and which are refused. What is not named is allowed: a
//! kernel takes memory and threads and reads files.

/// Processes, signals to others, the network, and other ways into the system.
const ENDS: &str = "\
    execve execveat fork vfork setsid setpgid ptrace process_vm_readv process_vm_writev socket mount umount2 \
    pivot_root chroot unshare setns reboot swapon swapoff init_module finit_module delete_module kexec_load \
    kexec_file_load bpf perf_event_open userfaultfd keyctl add_key request_key acct settimeofday clock_settime \
    adjtimex clock_adjtime sethostname setdomainname io_uring_setup io_uring_enter io_uring_register pidfd_open \
    pidfd_getfd pidfd_send_signal open_by_handle_at quotactl iopl ioperm vhangup syslog fanotify_init kcmp";

/// Changing files, limits and priorities: libraries try some of these and can do without.
const REFUSED: &str = "\
    creat truncate unlink unlinkat rename renameat renameat2 mkdir mkdirat rmdir link linkat symlink symlinkat \
    chmod fchmod fchmodat chown fchown lchown fchownat mknod mknodat utime utimes utimensat futimesat setxattr \
    lsetxattr fsetxattr removexattr lremovexattr fremovexattr setrlimit setpriority sched_setscheduler \
    sched_setparam sched_setattr ioprio_set fallocate memfd_create mq_open mq_unlink shmget msgget semget";

/// The cell's program as one text.
pub(crate) fn cell() -> String {
    let listed = |names: &str| -> String {
        names.split_whitespace().map(|name| format!("#ifdef SYS_{name}\nSYS_{name},\n#endif\n")).collect()
    };
    let walls = include_str!("wall.h").replace("@ENDS@", &listed(ENDS)).replace("@REFUSED@", &listed(REFUSED));
    include_str!("cell.c").replace("#include \"wall.h\"", &walls)
}
