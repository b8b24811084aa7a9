//! Hostile kernels, one a row. Each does y = a·x as it should, but for what its row adds before or after that.

/// One hostile kernel.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    /// Outside of the function.
    pub(crate) top: &'static str,
    pub(crate) before: &'static str,
    pub(crate) after: &'static str,
    /// What becomes of it: words of Rejections, `measured` where it does no harm and may race, `any`.
    pub(crate) fate: &'static str,
    /// A part of the reason.
    pub(crate) says: &'static str,
    /// Whether it is among those that every run of the tests takes.
    pub(crate) short: bool,
}

pub(crate) const fn row(name: &'static str, before: &'static str, fate: &'static str, says: &'static str) -> Row {
    Row { name, top: "", before, after: "", fate, says, short: false }
}

impl Row {
    pub(crate) const fn top(self, top: &'static str) -> Row {
        Row { top, ..self }
    }
    pub(crate) const fn after(self, after: &'static str) -> Row {
        Row { after, ..self }
    }
    pub(crate) const fn short(self) -> Row {
        Row { short: true, ..self }
    }
}

const FAULT: &str = "signal 11 (segmentation fault)";
pub(crate) const CALL: &str = "signal 31 (a system call that kernels have no business with)";

/// Looks for clock_gettime in the tables of the program that has loaded it.
const SLOW_CLOCK: &str = r#"
#include <link.h>
static int slow(clockid_t c, struct timespec *t) {
  int failed = clock_gettime(c, t);
  unsigned long ns = (t->tv_sec * 1000000000ul + t->tv_nsec) / 10;
  t->tv_sec = ns / 1000000000ul, t->tv_nsec = ns % 1000000000ul;
  return failed;
}
static void turn(void) {
  struct link_map *map = dlopen(0, RTLD_NOW);
  const ElfW(Rela) *at = 0, *tables[2] = {0}; unsigned long sizes[2] = {0};
  const ElfW(Sym) *symbols = 0; const char *names = 0;
  for (const ElfW(Dyn) *d = map->l_ld; d->d_tag; d++) {
    if (d->d_tag == DT_JMPREL) tables[0] = (void *)d->d_un.d_ptr;
    if (d->d_tag == DT_PLTRELSZ) sizes[0] = d->d_un.d_val;
    if (d->d_tag == DT_RELA) tables[1] = (void *)d->d_un.d_ptr;
    if (d->d_tag == DT_RELASZ) sizes[1] = d->d_un.d_val;
    if (d->d_tag == DT_SYMTAB) symbols = (void *)d->d_un.d_ptr;
    if (d->d_tag == DT_STRTAB) names = (void *)d->d_un.d_ptr;
  }
  for (int k = 0; k < 2; k++)
    for (at = tables[k]; at && (char *)at < (char *)tables[k] + sizes[k]; at++)
      if (!strcmp(names + symbols[ELF64_R_SYM(at->r_info)].st_name, "clock_gettime")) {
        void **place = (void **)(map->l_addr + at->r_offset);
        mprotect(PAGE(place), 4096, PROT_READ | PROT_WRITE);
        *place = (void *)slow;
      }
}
"#;

pub(crate) const ROWS: &[Row] = &[
    // Faults, hangs and exits, at whichever call.
    row("faults at once", "*(volatile int *)0 = 1;", "crashed", FAULT),
    row("faults at call 4", "if (calls == 4) *(volatile int *)0 = 1;", "crashed", FAULT).short(),
    row("faults at call 40", "if (calls == 40) *(volatile int *)0 = 1;", "crashed", FAULT),
    row("faults at call 400", "if (calls == 400) *(volatile int *)0 = 1;", "crashed", FAULT),
    row("faults at call 40000", "if (calls == 40000) *(volatile int *)0 = 1;", "crashed measured outpaced", ""),
    row("hangs at once", "HANG;", "timed_out", ""),
    row("hangs at call 4", "if (calls == 4) HANG;", "crashed", "hung").short(),
    row("hangs at call 40", "if (calls == 40) HANG;", "crashed", "hung"),
    row("hangs at call 400", "if (calls == 400) HANG;", "crashed", "hung"),
    row("exits at once", "exit(0);", "crashed", "exit code 0"),
    row("exits at call 4", "if (calls == 4) exit(0);", "crashed", "exit code 0").short(),
    row("exits at call 40", "if (calls == 40) exit(0);", "crashed", "exit code 0"),
    row("exits at call 400", "if (calls == 400) exit(0);", "crashed", "exit code 0"),
    row("_exits with 42", "if (calls == 4) _exit(42);", "crashed", "exit code 42"),
    row("aborts", "if (calls == 40) abort();", "crashed", "signal 6 (abort)"),
    row("traps", "__builtin_trap();", "crashed", "signal 4"),
    row("divides by zero", "volatile int zero = 0; sink = 100 / zero;", "crashed", "signal 8"),
    row("overflows its stack", "sink = deep(n);", "crashed", FAULT)
        .top("static int deep(int n) { volatile char room[4096]; room[n % 4096] = 1; return deep(n + 1) + room[0]; }"),
    row(
        "smashes its stack",
        "volatile char room[8], *at = room; for (int i = 0; i < 9000000; i++) at[i] = 1;",
        "crashed",
        "",
    ),
    row("frees twice", "char *volatile p = malloc(99); free(p); free(p);", "crashed", "signal 6 (abort)"),
    row("frees its output", "free(y);", "crashed", ""),
    row("calls nowhere", "void (*volatile nowhere)(void) = 0; nowhere();", "crashed", FAULT),
    row("faults at a tenth of its calls", "if (rand() % 10 == 0) *(volatile int *)0 = 1;", "crashed", FAULT),
    row("fails an assertion", "assert(calls < 30);", "crashed", "calls < 30"),
    row("faults when loaded", "", "crashed", "when it was loaded")
        .top("static int *volatile at; __attribute__((constructor)) static void first(void) { *at = 1; }"),
    row("exits when loaded", "", "crashed", "when it was loaded")
        .top("__attribute__((constructor)) static void first(void) { exit(0); }"),
    row("hangs when loaded", "", "timed_out", "").top("__attribute__((constructor)) static void first(void) { HANG; }"),
    row("hangs when unloaded", "", "measured", "").top("__attribute__((destructor)) static void last(void) { HANG; }"),
    row("is slow", "usleep(60000);", "measured outpaced", ""),
    // Signals and processes.
    row("kills its parent", "kill(getppid(), SIGKILL);", "crashed", CALL).short(),
    row("ends its parent", "if (calls == 40) kill(getppid(), SIGTERM);", "crashed", CALL),
    row("stops its parent", "kill(getppid(), SIGSTOP);", "crashed", CALL),
    row("kills its group", "kill(0, SIGKILL);", "crashed", CALL).short(),
    row("signals everybody", "kill(-1, 0);", "crashed", CALL),
    row("stops itself", "if (calls == 4) raise(SIGSTOP);", "timed_out crashed", "").short(),
    row("kills itself", "raise(SIGKILL);", "crashed", "signal 9 (killed)"),
    row("ends itself", "raise(SIGTERM);", "crashed", "signal 15"),
    row("forks", "if (fork() == 0) for (;;) pause();", "crashed", CALL).short(),
    row("forks many", "for (int i = 0; i < 64; i++) fork();", "crashed", CALL),
    row("becomes a daemon", "if (fork() == 0) { setsid(); if (fork() == 0) HANG; exit(0); }", "crashed", CALL),
    row("leaves its group", "setpgid(0, 0); setsid();", "crashed", CALL),
    row("starts a program", "execl(\"/bin/sh\", \"sh\", \"-c\", \"sleep 99\", (char *)0);", "crashed", CALL),
    row("asks the shell", "sink = system(\"sleep 99 &\");", "crashed", CALL),
    row("opens a pipe to a program", "sink = popen(\"yes\", \"r\") != 0;", "crashed", CALL),
    row("opens a connection", "sink = socket(AF_INET, SOCK_STREAM, 0);", "crashed", CALL),
    row("debugs itself", "ptrace(PTRACE_TRACEME, 0, 0, 0);", "crashed", CALL),
    row(
        "writes into its parent",
        "struct iovec v = {(void *)x, 4}; process_vm_writev(getppid(), &v, 1, &v, 1, 0);",
        "crashed",
        CALL,
    ),
    row("outlives its parent", "prctl(PR_SET_PDEATHSIG, 0);", "crashed", CALL),
    row("ignores faults", "signal(SIGSEGV, SIG_IGN); *(volatile int *)0 = 1;", "crashed", FAULT),
    row("hangs in a handler", "signal(SIGSEGV, hang); *(volatile int *)0 = 1;", "timed_out", "")
        .top("static void hang(int s) { (void)s; HANG; }"),
    row(
        "ignores every signal",
        "for (int s = 1; s < 64 && calls == 1; s++) signal(s, SIG_IGN); if (calls == 40) HANG;",
        "crashed timed_out",
        "",
    ),
    row("sets an alarm", "if (calls == 1) ualarm(20000, 0);", "any", ""),
    row("is interrupted often", "if (calls == 1) { signal(SIGALRM, nothing); ualarm(500, 500); }", "any", "")
        .top("static void nothing(int s) { (void)s; }"),
    row("jumps out", "if (calls == 1) setjmp(there); else longjmp(there, 1);", "any", "").top("static jmp_buf there;"),
    // What it prints and what it closes.
    row(
        "prints megabytes",
        "if (calls < 20) for (int i = 0; i < 10000; i++) printf(\"%0999d\\n\", i);",
        "measured outpaced",
        "",
    )
    .short(),
    row(
        "complains",
        "if (calls < 20) for (int i = 0; i < 1000; i++) fprintf(stderr, \"%0999d\\n\", i);",
        "measured outpaced",
        "",
    ),
    row("prints for ever", "for (;;) puts(\"{}\");", "timed_out", ""),
    row("closes descriptors", "for (int i = 0; i < 256; i++) close(i);", "measured outpaced", "").short(),
    row("closes all descriptors", "for (int i = 0; i < 1024; i++) close(i);", "crashed", ""),
    row("answers itself", "char lie[40] = {1}; sink = write(512, lie, 40);", "crashed", "out of turn"),
    row("hangs up", "shutdown(512, SHUT_RDWR);", "crashed", ""),
    row("cuts files short", "for (int i = 0; i < 1024; i++) sink = ftruncate(i, 0);", "any", ""),
    // The floating-point mode.
    row("rounds up", "fesetround(FE_UPWARD);", "wrong_answer", "floating-point mode changed: rounding").short(),
    row(
        "rounds down at call 40",
        "if (calls == 40) fesetround(FE_DOWNWARD);",
        "wrong_answer",
        "mode changed: rounding",
    ),
    row("flushes to zero", "_mm_setcsr(_mm_getcsr() | 0x8000);", "wrong_answer", "flush to zero").short(),
    row("takes small numbers for zero", "_mm_setcsr(_mm_getcsr() | 0x0040);", "wrong_answer", "flush to zero"),
    row("traps on what is inexact", "", "wrong_answer crashed", "").after("feenableexcept(FE_DIVBYZERO | FE_INVALID);"),
    row(
        "sets the old unit's precision",
        "short w = 0x007f; __asm__ volatile(\"fldcw %0\" : : \"m\"(w));",
        "wrong_answer",
        "precision",
    ),
    // Writes and reads beside its arguments.
    row("writes before its output", "y[-1] = 1;", "wrong_answer", "outside of its output").short(),
    row("writes behind its output", "y[n] = 1;", "wrong_answer", "outside of its output"),
    row("writes before its input", "((float *)x)[-1] = 1;", "wrong_answer", "outside of 'x'").short(),
    row("writes behind its input", "((float *)x)[n] = 1;", "wrong_answer", "outside of 'x'").short(),
    row(
        "writes before its input at call 40",
        "if (calls == 40) ((float *)x)[-1] = 1;",
        "wrong_answer",
        "outside of 'x'",
    ),
    row("writes into its input", "", "wrong_answer", "input 'x'").after("((float *)x)[n / 2] = 1;").short(),
    row("zeroes its input", "", "wrong_answer", "input 'x'").after("memset((void *)x, 0, 4 * n);"),
    row("writes far behind its output", "y[n + 65536] = 1;", "crashed", FAULT),
    row("writes far before its input", "((float *)x)[-65536] = 1;", "crashed", FAULT),
    row("reads far behind its input", "sink = x[n + 65536];", "crashed", FAULT),
    row(
        "maps over its output",
        "mmap(PAGE(y), 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);",
        "wrong_answer",
        "",
    ),
    row("unmaps its input", "munmap(PAGE(x), 4096);", "crashed", FAULT),
    row("locks its output", "mprotect(PAGE(y), 4096, PROT_READ);", "crashed", FAULT),
    row("gives its input's memory back", "", "wrong_answer", "").after("madvise(PAGE(x), 4096, MADV_REMOVE);"),
    row("gives no number", "", "wrong_answer", "").after("y[n - 1] = 0.0f / 0.0f;"),
    row("is a little off", "", "wrong_answer", "").after("y[7] *= 1.001f;"),
    // Answers that are remembered, and work that is left out.
    row("keeps its last answer", "if (last == x && first == x[0]) return; last = x; first = x[0];", "wrong_answer", "")
        .top("static const float *last; static float first;")
        .short(),
    row(
        "copies its last answer",
        "if (last == x && first == x[0]) { memcpy(y, kept, 4 * n); return; }",
        "wrong_answer",
        "",
    )
    .top("static const float *last; static float first, kept[1003];")
    .after("last = x; first = x[0]; memcpy(kept, y, 4 * n);"),
    row(
        "looks at four elements",
        "float s = x[0] + x[9] + x[99] + x[n - 1]; if (s == sum) return; sum = s;",
        "wrong_answer",
        "",
    )
    .top("static float sum;"),
    row("works every second time", "if (calls % 2 == 0) return;", "wrong_answer", ""),
    row("stops working at call 100", "if (calls > 100) return;", "wrong_answer", "unwritten").short(),
    row("does half of it from call 300 on", "if (calls > 300) n /= 2;", "wrong_answer", "unwritten"),
    // Memory, threads and the rest of the system.
    row(
        "takes 100 GB",
        "char *p = malloc(100ul << 30); for (long i = 0; i < 100l << 30; i += 4096) p[i] = 1;",
        "crashed",
        FAULT,
    )
    .short(),
    row("takes a gigabyte a call", "*(volatile char *)malloc(1ul << 30) = 1;", "crashed", FAULT),
    row(
        "takes memory that no limit counts",
        "*(volatile char *)mmap(0, 1l << 30, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0) = 1;",
        "crashed",
        FAULT,
    ),
    row(
        "leaves a thread running",
        "pthread_t t; if (calls == 1) pthread_create(&t, 0, spin, 0);",
        "measured outpaced",
        "",
    )
    .top("static void *spin(void *a) { (void)a; HANG; return 0; }")
    .short(),
    row(
        "starts threads without end",
        "pthread_t t; for (int i = 0; i < 3000 && !pthread_create(&t, 0, nap, 0); i++) ;",
        "any",
        "",
    )
    .top("static void *nap(void *a) { (void)a; pause(); return 0; }"),
    row("changes its directory", "sink = chdir(\"/\"); umask(0);", "measured outpaced", ""),
    row("changes its environment", "setenv(\"WARPLAP_STORE\", \"/\", 1); unsetenv(\"HOME\");", "measured outpaced", ""),
    row("makes a file", "sink = open(CANARY \".new\", O_CREAT | O_WRONLY, 0600);", "measured outpaced", "").short(),
    row("removes a file", "sink = unlink(CANARY) + rename(CANARY, CANARY \".new\");", "measured outpaced", "").short(),
    row("empties a file", "sink = truncate(CANARY, 0) + open(CANARY, O_WRONLY | O_TRUNC);", "measured outpaced", ""),
    row(
        "raises its limits",
        "struct rlimit l = {1ul << 40, 1ul << 40}; sink = setrlimit(RLIMIT_DATA, &l);",
        "measured outpaced",
        "",
    ),
    row(
        "wants to be first",
        "struct sched_param p = {50}; sink = sched_setscheduler(0, SCHED_FIFO, &p);",
        "measured outpaced",
        "",
    ),
    // It turns its process's calls of the clock to one that goes ten times as slowly.
    row("slows the clock down", "if (calls == 1) turn();", "measured outpaced wrong_answer crashed", "")
        .top(SLOW_CLOCK),
    row("has a clock of its own", "", "measured outpaced", "")
        .top("int clock_gettime(clockid_t c, struct timespec *t) { t->tv_sec = t->tv_nsec = c * 0; return 0; }"),
];
