//! Kernels that reach out of their cell: for other processes, other files, the system, the walls and the clock. One a
//! row. `BYSTANDER` is a process of the same user, `CANARY` a file of his.

use super::table::{CALL, Row, row};

/// A pipe whose events are told to a process.
const EVENTS: &str = "static int p[2], one = 1; static char c;";

pub(crate) const ROWS: &[Row] = &[
    // Signals by other ways than kill.
    row(
        "kills by the owner of a pipe",
        "sink = pipe(p); fcntl(p[0], F_SETOWN, BYSTANDER); fcntl(p[0], F_SETSIG, SIGKILL); \
         fcntl(p[0], F_SETFL, O_ASYNC); sink = write(p[1], &c, 1);",
        "crashed",
        CALL,
    )
    .top(EVENTS)
    .short(),
    row(
        "kills by the owner of a pipe, said at length",
        "struct f_owner_ex o = {F_OWNER_PID, BYSTANDER}; sink = pipe(p); fcntl(p[0], F_SETOWN_EX, &o); \
         fcntl(p[0], F_SETSIG, SIGKILL); fcntl(p[0], F_SETFL, O_ASYNC); sink = write(p[1], &c, 1);",
        "crashed",
        CALL,
    )
    .top(EVENTS),
    row("asks for a signal of its own", "sink = pipe(p); fcntl(p[0], F_SETSIG, SIGSTOP);", "crashed", CALL).top(EVENTS),
    row("makes its line a place of events", "fcntl(512, F_SETFL, O_ASYNC);", "crashed", CALL),
    row(
        "stops the owner of its line",
        "int pid = BYSTANDER; ioctl(512, 0x8901, &pid); fcntl(512, F_SETFL, O_ASYNC);",
        "crashed",
        CALL,
    )
    .short(),
    row("gives its line to a group", "int pid = -BYSTANDER; ioctl(512, 0x8902, &pid);", "crashed", CALL),
    row("wants events of its line", "ioctl(512, 0x5452, &one);", "crashed", CALL).top(EVENTS),
    row("signals a thread of another", "syscall(SYS_tgkill, BYSTANDER, BYSTANDER, SIGKILL);", "crashed", CALL),
    row("signals a thread by its number", "syscall(SYS_tkill, BYSTANDER, SIGKILL);", "crashed", CALL),
    row(
        "queues a signal",
        "siginfo_t i = {0}; i.si_code = SI_QUEUE; syscall(SYS_rt_sigqueueinfo, BYSTANDER, SIGKILL, &i);",
        "crashed",
        CALL,
    ),
    row("opens a process", "int f = syscall(434, BYSTANDER, 0); syscall(424, f, SIGKILL, 0, 0);", "crashed", CALL),
    row("watches a folder", "int f = open(\"/tmp\", O_RDONLY); fcntl(f, F_NOTIFY, 4);", "crashed", CALL),
    row("types for another", "ioctl(0, TIOCSTI, &c);", "crashed", CALL).top(EVENTS),
    // Others' places, priorities and limits.
    row(
        "moves another to one processor",
        "cpu_set_t s; CPU_ZERO(&s); CPU_SET(0, &s); sink = sched_setaffinity(BYSTANDER, sizeof s, &s);",
        "measured outpaced",
        "",
    )
    .short(),
    row(
        "moves its parent to one processor",
        "cpu_set_t s; CPU_ZERO(&s); CPU_SET(0, &s); sink = sched_setaffinity(getppid(), sizeof s, &s);",
        "measured outpaced",
        "",
    ),
    row(
        "makes another idle",
        "struct sched_param p = {0}; sink = sched_setscheduler(BYSTANDER, SCHED_IDLE, &p);",
        "measured outpaced",
        "",
    ),
    row("makes another wait", "sink = setpriority(PRIO_PROCESS, BYSTANDER, 19);", "measured outpaced", "").short(),
    row("makes everybody wait", "sink = setpriority(PRIO_USER, 0, 19);", "measured outpaced", ""),
    row("makes its group wait", "sink = setpriority(PRIO_PGRP, 0, 19) + nice(5);", "measured outpaced", ""),
    row("makes another's files wait", "syscall(SYS_ioprio_set, 1, BYSTANDER, 3 << 13);", "measured outpaced", ""),
    row(
        "takes another's files away",
        "struct rlimit l = {0, 0}; sink = prlimit(BYSTANDER, RLIMIT_NOFILE, &l, 0);",
        "measured outpaced",
        "",
    ),
    row(
        "takes another's time away through a pointer of which half is zero",
        "unsigned long *l = mmap((void *)(5ul << 32), 4096, 3, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0); \
         l[0] = l[1] = 1; sink = syscall(SYS_prlimit64, BYSTANDER, RLIMIT_CPU, l, 0);",
        "measured outpaced crashed",
        "",
    )
    .short(),
    row("moves another's pages", "syscall(SYS_move_pages, BYSTANDER, 0, 0, 0, 0, 0);", "crashed", CALL),
    row("takes another's pages back", "syscall(440, 0, 0, 0, 4, 0);", "crashed", CALL),
    row("compares processes", "syscall(SYS_kcmp, BYSTANDER, getpid(), 0, 0, 0);", "crashed", CALL),
    row(
        "reads another's memory",
        "char b[64]; snprintf(b, 64, \"/proc/%d/mem\", BYSTANDER); if (open(b, O_RDONLY) >= 0) n = 0;",
        "measured outpaced",
        "",
    ),
    // Files.
    row("changes rights by a new call", "sink = syscall(452, -100, CANARY, 0777, 0);", "measured outpaced", "").short(),
    row("sets attributes by a new call", "syscall(463, -100, CANARY, 0, \"user.a\", 0, 0);", "measured outpaced", ""),
    row("makes a file stay", "int f = open(CANARY, O_RDONLY), v = 16; ioctl(f, 0x40086602, &v);", "crashed", CALL)
        .short(),
    row("marks a file", "char v[28] = {0}; ioctl(open(CANARY, O_RDONLY), 0x401c5820, v);", "crashed", CALL),
    row("locks a file", "flock(open(CANARY, O_RDONLY), LOCK_EX);", "crashed", CALL).short(),
    row(
        "locks a part of a file",
        "struct flock l = {.l_type = F_RDLCK}; fcntl(open(CANARY, O_RDONLY), F_SETLK, &l);",
        "crashed",
        CALL,
    ),
    row("holds a lease", "fcntl(open(CANARY, O_RDONLY), F_SETLEASE, F_RDLCK);", "crashed", CALL),
    row("writes back every file", "sync();", "measured outpaced", ""),
    row("fills memory with a secret file", "sink = syscall(447, 0);", "measured outpaced", ""),
    row("makes its pipe large", "fcntl(1, F_SETPIPE_SZ, 1 << 20);", "crashed", CALL),
    // Mounts, shared memory, queues, semaphores.
    row("opens a file system", "syscall(430, \"tmpfs\", 0);", "crashed", CALL).short(),
    row("sets a file system up", "syscall(431, 0, 6, 0, 0, 0);", "crashed", CALL),
    row("mounts a file system", "syscall(432, 0, 0, 0);", "crashed", CALL),
    row("picks a mount", "syscall(433, -100, \"/\", 0);", "crashed", CALL),
    row("copies a mount", "syscall(428, -100, \"/\", 1);", "crashed", CALL),
    row("moves a mount", "syscall(429, -100, \"/\", -100, \"/tmp\", 0);", "crashed", CALL),
    row("changes a mount", "syscall(442, -100, \"/\", 0, 0, 0);", "crashed", CALL),
    row("takes a shared segment", "sink = shmget(IPC_PRIVATE, 1 << 20, 0600);", "crashed", CALL).short(),
    row("joins a shared segment", "sink = shmat(0, 0, 0) != 0;", "crashed", CALL),
    row("removes a shared segment", "shmctl(0, IPC_RMID, 0);", "crashed", CALL),
    row("takes semaphores", "sink = semget(IPC_PRIVATE, 250, 0600);", "crashed", CALL),
    row("removes semaphores", "semctl(0, 0, IPC_RMID);", "crashed", CALL),
    row("waits for a semaphore", "struct sembuf b = {0, -1, 0}; semop(0, &b, 1);", "crashed", CALL),
    row("takes a queue", "sink = msgget(IPC_PRIVATE, 0600);", "crashed", CALL),
    row("removes a queue", "msgctl(0, IPC_RMID, 0);", "crashed", CALL),
    row("opens a queue", "syscall(SYS_mq_open, \"q\", O_CREAT | O_RDWR, 0600, 0);", "crashed", CALL),
    // Rights and spaces.
    row("becomes another user", "sink = setuid(65534);", "crashed", CALL),
    row("takes rights", "syscall(SYS_capset, 0, 0);", "crashed", CALL),
    row("makes a space of its own", "unshare(CLONE_NEWUSER | CLONE_NEWNS);", "crashed", CALL),
    row(
        "starts a thread in a space of its own",
        "syscall(SYS_clone, CLONE_VM | CLONE_SIGHAND | CLONE_THREAD | CLONE_NEWNET, 0, 0, 0, 0);",
        "crashed",
        CALL,
    ),
    row("listens to programs", "syscall(SYS_perf_event_open, 0, 0, -1, -1, 0);", "crashed", CALL),
    row("sends a file away", "struct msghdr m = {0}; sink = sendmsg(512, &m, 0);", "crashed", CALL),
    // Other doors into the system.
    row("asks by the 32-bit door", "__asm__ volatile(\"int $0x80\" : : \"a\"(20));", "crashed", CALL).short(),
    row("asks with 32-bit pointers", "syscall(0x40000000 | SYS_getpid);", "crashed", CALL).short(),
    row("asks what nobody knows yet", "if (syscall(600) != -1 || errno != ENOSYS) n = 0;", "measured outpaced", "")
        .short(),
    row("poisons the machine's memory", "madvise(PAGE(&calls), 4096, 100);", "crashed", CALL),
    row(
        "takes memory as a stack",
        "mmap(0, 1ul << 30, 3, MAP_PRIVATE | MAP_ANONYMOUS | MAP_GROWSDOWN, -1, 0) == MAP_FAILED ? abort() : (void)0;",
        "crashed",
        "signal 6 (abort)",
    ),
    // The walls and the clock.
    row("forbids to read the counter", "prctl(PR_SET_TSC, PR_TSC_SIGSEGV);", "crashed", CALL).short(),
    row("filters the clock's calls", "prctl(PR_SET_SECCOMP, 2, 0);", "crashed", CALL).short(),
    row("filters calls by the other door", "syscall(SYS_seccomp, 1, 0, 0);", "crashed", CALL),
    row("changes what programs are", "if (syscall(SYS_personality, 0x0400000) == 0) n = 0;", "measured outpaced", ""),
    row("changes the segments", "syscall(SYS_modify_ldt, 1, 0, 0);", "crashed", CALL),
    row(
        "writes into the cell's program",
        "char *p = 0; FILE *f = fopen(\"/proc/self/maps\", \"r\"); sink = fscanf(f, \"%p\", (void **)&p); \
         mprotect(p, 4096, PROT_READ | PROT_WRITE | PROT_EXEC); *(volatile char *)p = 0;",
        "crashed",
        "signal 11",
    )
    .short(),
    row(
        "maps over the cell's program",
        "char *p = 0; FILE *f = fopen(\"/proc/self/maps\", \"r\"); sink = fscanf(f, \"%p\", (void **)&p); \
         if (mmap(p, 4096, 3, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED) abort();",
        "crashed",
        "signal 6 (abort)",
    ),
    row(
        "moves memory over the cell's program",
        "char *p = 0; FILE *f = fopen(\"/proc/self/maps\", \"r\"); sink = fscanf(f, \"%p\", (void **)&p); \
         char *q = mmap(0, 4096, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); \
         if (mremap(q, 4096, 4096, MREMAP_MAYMOVE | MREMAP_FIXED, p) == MAP_FAILED) abort();",
        "crashed",
        "signal 6 (abort)",
    ),
    // What kernels may do.
    row(
        "reads a file and the clock and prints",
        "char b[99]; FILE *f = fopen(\"/proc/cpuinfo\", \"r\"); struct timespec t; clock_gettime(CLOCK_REALTIME, &t); \
         if (!f || fread(b, 1, 99, f) != 99) abort(); fclose(f); if (calls < 9) printf(\"%.9s %ld\\n\", b, t.tv_sec);",
        "measured outpaced",
        "",
    ),
    row(
        "has threads with places of their own",
        "pthread_t t; pthread_attr_t w; cpu_set_t s; CPU_ZERO(&s); CPU_SET(0, &s); pthread_attr_init(&w); \
         pthread_attr_setaffinity_np(&w, sizeof s, &s); if (calls < 9 && pthread_create(&t, &w, last, 0)) abort(); \
         if (calls < 9) pthread_join(t, 0);",
        "measured outpaced",
        "",
    )
    .top("static void *last(void *a) { return a; }")
    .short(),
    row(
        "takes and gives back much memory",
        "char *p = malloc(1 << 26), *q = calloc(1, 999); p = realloc(p, 1 << 27); p[9] = q[9]; sink = p[9]; \
         free(p); free(q);",
        "measured outpaced",
        "",
    ),
];
