/* The walls of a cell: what it may take, which system calls end it, and what its floating-point mode is. */
#include <errno.h>

/* ---- The floating-point mode: rounding, flush to zero, traps. */
#if defined(__x86_64__) || defined(__i386__)
struct mode { unsigned vector; unsigned short x87; };
static struct mode mode_now(void) {
  struct mode mode = {0, 0};
  __asm__ volatile("stmxcsr %0\n\tfnstcw %1" : "=m"(mode.vector), "=m"(mode.x87));
  mode.vector &= 0xffc0; /* without what happened so far */
  return mode;
}
static void mode_set(const struct mode *mode) {
  __asm__ volatile("fnclex\n\tldmxcsr %0\n\tfldcw %1" : : "m"(mode->vector), "m"(mode->x87));
}
/* 1 rounding, 2 flush to zero, 4 traps, 8 the precision of the old unit. */
static uint64_t mode_changed(const struct mode *usual) {
  struct mode mode = mode_now();
  unsigned vector = mode.vector ^ usual->vector, x87 = (unsigned)(mode.x87 ^ usual->x87);
  return (vector & 0x6000 || x87 & 0x0c00 ? 1 : 0) | (vector & 0x8040 ? 2 : 0) |
         (vector & 0x1f80 || x87 & 0x003f ? 4 : 0) | (x87 & 0x0300 ? 8 : 0);
}
#elif defined(__aarch64__)
struct mode { uint64_t control; };
static struct mode mode_now(void) {
  struct mode mode;
  __asm__ volatile("mrs %0, fpcr" : "=r"(mode.control));
  return mode;
}
static void mode_set(const struct mode *mode) { __asm__ volatile("msr fpcr, %0" : : "r"(mode->control)); }
static uint64_t mode_changed(const struct mode *usual) {
  uint64_t changed = mode_now().control ^ usual->control;
  return (changed & 0xc00000 ? 1 : 0) | (changed & 0x1080000 ? 2 : 0) | (changed & 0x9f00 ? 4 : 0);
}
#else
#include <fenv.h>
struct mode { int rounding; };
static struct mode mode_now(void) { struct mode mode = {fegetround()}; return mode; }
static void mode_set(const struct mode *mode) { fesetround(mode->rounding); }
static uint64_t mode_changed(const struct mode *usual) { return fegetround() != usual->rounding; }
#endif

/* ---- System calls. */
#if defined(__linux__) && (defined(__x86_64__) || defined(__aarch64__))
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#ifdef __x86_64__
#define OUR_ARCH AUDIT_ARCH_X86_64
#else
#define OUR_ARCH AUDIT_ARCH_AARCH64
#endif
#ifndef SECCOMP_RET_KILL_PROCESS
#define SECCOMP_RET_KILL_PROCESS 0x80000000U
#endif

static struct sock_filter filter[400];
static unsigned short rules;
static void rule(unsigned short code, unsigned k, unsigned char yes, unsigned char no) {
  struct sock_filter one = {code, yes, no, k};
  if (rules < sizeof filter / sizeof filter[0]) filter[rules++] = one;
}
static void load_field(size_t offset) { rule(BPF_LD | BPF_W | BPF_ABS, (unsigned)offset, 0, 0); }
static void load_argument(int which) { load_field(offsetof(struct seccomp_data, args) + 8 * (size_t)which); }
static void answer(unsigned with) { rule(BPF_RET | BPF_K, with, 0, 0); }
/* This call gets an answer. The accumulator holds the call's number. */
static void on(int call, unsigned with) {
  rule(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)call, 0, 1);
  answer(with);
}
/* This call gets an answer where an argument compares with a number (BPF_JEQ: is it, BPF_JSET: has one of its bits), else
 * another. */
static void on_argument(int call, int which, unsigned how, unsigned number, unsigned with, unsigned without) {
  rule(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)call, 0, 4);
  load_argument(which);
  rule((unsigned short)(BPF_JMP | how | BPF_K), number, 0, 1);
  answer(with);
  answer(without);
}
static void on_bits(int call, int which, unsigned bits, unsigned with, unsigned without) {
  on_argument(call, which, BPF_JSET, bits, with, without);
}
static void on_number(int call, int which, unsigned number, unsigned with, unsigned without) {
  on_argument(call, which, BPF_JEQ, number, with, without);
}

/* Memory that is shared and no file's counts against no limit: nobody gets it. */
static void on_shared_memory(unsigned with, unsigned without) {
  rule(BPF_JMP | BPF_JEQ | BPF_K, SYS_mmap, 0, 5);
  load_argument(3);
  rule(BPF_JMP | BPF_JSET | BPF_K, MAP_ANONYMOUS, 0, 2);
  rule(BPF_JMP | BPF_JSET | BPF_K, MAP_SHARED, 0, 1);
  answer(with);
  answer(without);
}

static void forbid_calls(void) {
  const unsigned end = SECCOMP_RET_KILL_PROCESS, go = SECCOMP_RET_ALLOW;
  const unsigned refuse = SECCOMP_RET_ERRNO | EACCES, unknown = SECCOMP_RET_ERRNO | ENOSYS;
  const unsigned self = (unsigned)getpid();
  /* Processes, signals to others, the network, other ways into the system: nothing a kernel has any business with. */
  static const int ends[] = {
@ENDS@
  };
  /* Changing files and limits. */
  static const int refused[] = {
@REFUSED@
  };
  load_field(offsetof(struct seccomp_data, arch));
  rule(BPF_JMP | BPF_JEQ | BPF_K, OUR_ARCH, 1, 0);
  answer(end);
  load_field(offsetof(struct seccomp_data, nr));
#ifdef __x86_64__
  rule(BPF_JMP | BPF_JGE | BPF_K, 0x40000000, 0, 1);
  answer(end);
#endif
  for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) on(ends[i], end);
  for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) on(refused[i], refuse);
  on(435, unknown); /* clone3, whose flags no filter can see: the C library asks again with clone */
  on(437, unknown); /* openat2, likewise */
  on_bits(SYS_clone, 0, CLONE_THREAD, go, end);
  on_bits(SYS_openat, 2, O_WRONLY | O_RDWR | O_CREAT | O_TRUNC, refuse, go);
#ifdef SYS_open
  on_bits(SYS_open, 1, O_WRONLY | O_RDWR | O_CREAT | O_TRUNC, refuse, go);
#endif
  on_shared_memory(refuse, go);
  on_number(SYS_kill, 0, self, go, end);
  on_number(SYS_tkill, 0, self, go, end);
  on_number(SYS_tgkill, 0, self, go, end);
  on_number(SYS_rt_sigqueueinfo, 0, self, go, end);
  on_number(SYS_rt_tgsigqueueinfo, 0, self, go, end);
  on_number(SYS_prctl, 0, PR_SET_PDEATHSIG, end, go);
  on_number(SYS_prlimit64, 2, 0, go, refuse);
  on_number(SYS_ioctl, 1, TIOCSTI, end, go);
  answer(go);
  struct sock_fprog program = {rules, filter};
  /* Where the system knows no filters, limits and the process group are what is left. */
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0) prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0);
}

static void walls_of_this_system(void) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  /* When memory runs out it is this process that goes. */
  int score = open("/proc/self/oom_score_adj", O_WRONLY);
  if (score >= 0 && write(score, "1000", 4) < 4) errno = 0;
  if (score >= 0) close(score);
  forbid_calls();
}
#else
static void walls_of_this_system(void) {}
#endif

static void limit(int what, uint64_t most) {
  struct rlimit now;
  if (getrlimit(what, &now)) return;
  if (now.rlim_max == RLIM_INFINITY || now.rlim_max > most) now.rlim_max = (rlim_t)most;
  now.rlim_cur = now.rlim_max;
  setrlimit(what, &now);
}

static void wall_in(uint64_t memory) {
  limit(RLIMIT_CORE, 0);
  limit(RLIMIT_FSIZE, 0);
  limit(RLIMIT_CPU, 3600);
  limit(RLIMIT_NOFILE, 1024);
  limit(RLIMIT_DATA, memory);
  walls_of_this_system();
}
