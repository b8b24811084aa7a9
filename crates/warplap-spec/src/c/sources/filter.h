/* System calls of a cell: which go on, which are refused, and which end it. What is on no list ends it; what is newer
 * than this file is answered as an old system would. */
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

/* The last call that the lists were made for (file_setattr, 6.17); numbers are the same everywhere from 424 on. */
enum { LAST_KNOWN = 469 };
extern char __executable_start, _end;
enum { END = SECCOMP_RET_KILL_PROCESS, GO = SECCOMP_RET_ALLOW, PRETEND = SECCOMP_RET_ERRNO };
enum { REFUSE = SECCOMP_RET_ERRNO | EACCES, UNKNOWN = SECCOMP_RET_ERRNO | ENOSYS };

static struct sock_filter filter[BPF_MAXINSNS];
static unsigned short rules;

static void rule(unsigned short code, unsigned k, unsigned yes, unsigned no) {
  struct sock_filter one = {code, (unsigned char)yes, (unsigned char)no, k};
  if (rules == BPF_MAXINSNS || yes > 255 || no > 255) stop("too many rules for system calls");
  filter[rules++] = one;
}
static void load_field(size_t offset) { rule(BPF_LD | BPF_W | BPF_ABS, (unsigned)offset, 0, 0); }
static void load_argument(int which) { load_field(offsetof(struct seccomp_data, args) + 8 * (size_t)which); }
static void load_high(int which) { load_field(offsetof(struct seccomp_data, args) + 8 * (size_t)which + 4); }
static void answer(unsigned with) { rule(BPF_RET | BPF_K, with, 0, 0); }
static void jump(unsigned how, unsigned number, unsigned yes, unsigned no) {
  rule((unsigned short)(BPF_JMP | how | BPF_K), number, yes, no);
}

/* These calls get an answer. The accumulator holds the call's number, here and wherever a rule begins. */
static void on(const int *calls, size_t count, unsigned with) {
  for (size_t i = 0; i < count; i++) jump(BPF_JEQ, (unsigned)calls[i], 0, 1), answer(with);
}
/* This call gets an answer where an argument has one of these bits, else another. */
static void on_bits(int call, int which, unsigned bits, unsigned with, unsigned without) {
  jump(BPF_JEQ, (unsigned)call, 0, 4);
  load_argument(which);
  jump(BPF_JSET, bits, 0, 1);
  answer(with), answer(without);
}
/* This call goes on where an argument is one of these numbers; else it gets an answer. */
static void only(int call, int which, const unsigned *numbers, size_t count, unsigned otherwise) {
  jump(BPF_JEQ, (unsigned)call, 0, (unsigned)(2 * count + 2));
  load_argument(which);
  for (size_t i = 0; i < count; i++) jump(BPF_JEQ, numbers[i], 0, 1), answer(GO);
  answer(otherwise);
}
/* This call goes on where a pointer is null: the limits of whomever are read and not set. */
static void on_null(int call, int which, unsigned otherwise) {
  jump(BPF_JEQ, (unsigned)call, 0, 6);
  load_argument(which);
  jump(BPF_JEQ, 0, 0, 3);
  load_high(which);
  jump(BPF_JEQ, 0, 0, 1);
  answer(GO), answer(otherwise);
}
/* This call is refused where an address of it lies in the cell's own program: nobody else lives that low. */
static void keep_off(int call, int which) {
  unsigned first = (unsigned)((uintptr_t)&__executable_start >> 32), last = (unsigned)((uintptr_t)&_end >> 32);
  jump(BPF_JEQ, (unsigned)call, 0, 7);
  load_high(which);
  jump(BPF_JEQ, first, 1, 0);
  jump(BPF_JEQ, last, 0, 3);
  load_argument(which);
  jump(BPF_JEQ, 0, 1, 0); /* nowhere is no address */
  answer(REFUSE);
  load_field(offsetof(struct seccomp_data, nr));
}
/* Memory that is shared and no file's, or a stack's, counts against no limit: nobody gets it. */
static void on_memory(void) {
  jump(BPF_JEQ, SYS_mmap, 0, 6);
  load_argument(3);
  jump(BPF_JSET, MAP_GROWSDOWN, 2, 0);
  jump(BPF_JSET, MAP_ANONYMOUS, 0, 2);
  jump(BPF_JSET, MAP_SHARED, 0, 1);
  answer(REFUSE), answer(GO);
}
/* A thread, in the same spaces as the others: nothing else is started. */
static void on_clone(void) {
  jump(BPF_JEQ, SYS_clone, 0, 5);
  load_argument(0);
  jump(BPF_JSET, CLONE_THREAD, 0, 2);
  jump(BPF_JSET, 0x7e020080, 1, 0); /* CLONE_NEW… of every kind */
  answer(GO), answer(END);
}

#define COUNT(list) (sizeof list / sizeof list[0])
static void filter_calls(void) {
  static const int allowed[] = {
@ALLOWED@
  };
  static const int refused[] = {
@REFUSED@
  };
  /* clone3 and openat2, whose flags no filter can see, and ways that the C library tries first and can do without. */
  static const int unknown[] = {
@UNKNOWN@
  };
  const unsigned self = (unsigned)getpid(), me[] = {self}, mine[] = {0, self};
  const unsigned writes = O_WRONLY | O_RDWR | O_CREAT | O_TRUNC;
  static const unsigned handles[] = {F_DUPFD, F_DUPFD_CLOEXEC, F_GETFD, F_SETFD, F_GETFL, F_SETFL};
  static const unsigned asks[] = {TCGETS, 0x802c542a /* TCGETS2 */, TIOCGWINSZ, FIONREAD, FIOCLEX, FIONCLEX};
  /* Names of threads and of memory, what was set before, large pages, timers' slack, lengths of vectors. */
  static const unsigned own[] = {PR_SET_NAME, PR_GET_NAME, 0x53564d41, 0x41555856, 3, 21, 23, 25, 29, 30, 39, 41, 42,
                                 50, 51, 63, 64};
  static const unsigned query[] = {0xffffffff};
  load_field(offsetof(struct seccomp_data, arch));
  jump(BPF_JEQ, OUR_ARCH, 1, 0);
  answer(END);
  load_field(offsetof(struct seccomp_data, nr));
#ifdef __x86_64__
  jump(BPF_JGE, 0x40000000, 0, 1);
  answer(END);
#endif
  keep_off(SYS_mprotect, 0), keep_off(SYS_munmap, 0), keep_off(SYS_mmap, 0), keep_off(SYS_madvise, 0);
  keep_off(SYS_mremap, 0), keep_off(SYS_mremap, 4);
  on(allowed, COUNT(allowed), GO);
  on(refused, COUNT(refused), REFUSE);
  on(unknown, COUNT(unknown), UNKNOWN);
  on_memory();
  on_clone();
  on_bits(SYS_openat, 2, writes, REFUSE, GO);
#ifdef SYS_open
  on_bits(SYS_open, 1, writes, REFUSE, GO);
#endif
  /* 100 and above are poison for pages of the machine. */
  jump(BPF_JEQ, SYS_madvise, 0, 4);
  load_argument(2);
  jump(BPF_JGE, 100, 0, 1);
  answer(END), answer(GO);
  /* What others would be told with a signal is nobody's to set. */
  jump(BPF_JEQ, SYS_fcntl, 0, 6);
  load_argument(1);
  jump(BPF_JEQ, F_SETFL, 0, 3);
  load_argument(2);
  jump(BPF_JSET, O_ASYNC, 0, 1);
  answer(END);
  load_field(offsetof(struct seccomp_data, nr));
  only(SYS_fcntl, 1, handles, COUNT(handles), END);
  only(SYS_ioctl, 1, asks, COUNT(asks), END);
  only(SYS_prctl, 0, own, COUNT(own), END);
  only(SYS_personality, 0, query, 1, REFUSE);
  only(SYS_kill, 0, me, 1, END);
  only(SYS_tkill, 0, me, 1, END);
  only(SYS_tgkill, 0, me, 1, END);
  only(SYS_rt_sigqueueinfo, 0, me, 1, END);
  only(SYS_rt_tgsigqueueinfo, 0, me, 1, END);
  /* A thread's place is a hint. That of another thread, which no filter can tell from another process, is taken and
   * forgotten. */
  only(SYS_sched_setaffinity, 0, mine, 2, PRETEND);
  on_null(SYS_prlimit64, 2, REFUSE);
  jump(BPF_JGT, LAST_KNOWN, 0, 1);
  answer(UNKNOWN);
  answer(END);
  struct sock_fprog program = {rules, filter};
  /* Where the system knows no filters, limits and the process group are what is left. */
  prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0);
}
