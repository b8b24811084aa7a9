/* The clock of a cell: nothing that a kernel could change stands between it and the processor. It is read by the
 * processor's own counter where that runs evenly, else by a bare system call. */
#include <stdint.h>
#include <time.h>
#include <unistd.h>

#if defined(__linux__) && defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
static inline uint64_t system_time(void) {
  struct timespec at;
  long result;
  __asm__ volatile("syscall" : "=a"(result) : "a"((long)SYS_clock_gettime), "D"((long)CLOCK_MONOTONIC), "S"(&at)
                   : "rcx", "r11", "memory");
  return (uint64_t)at.tv_sec * 1000000000u + (uint64_t)at.tv_nsec;
}
static inline uint64_t counter(void) {
  uint32_t low, high;
  __asm__ volatile("lfence\n\trdtsc\n\tlfence" : "=a"(low), "=d"(high) : : "memory");
  return (uint64_t)high << 32 | low;
}
/* Whether the counter runs at one speed whatever the processor does. */
static int counter_is_even(void) {
  unsigned a, b, c, d;
  return __get_cpuid(0x80000007, &a, &b, &c, &d) && d & 0x100;
}
#elif defined(__linux__) && defined(__aarch64__)
#include <sys/syscall.h>
static inline uint64_t system_time(void) {
  struct timespec at;
  register long x8 __asm__("x8") = SYS_clock_gettime, x0 __asm__("x0") = CLOCK_MONOTONIC;
  register struct timespec *x1 __asm__("x1") = &at;
  __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1) : "memory");
  return (uint64_t)at.tv_sec * 1000000000u + (uint64_t)at.tv_nsec;
}
static inline uint64_t counter(void) {
  uint64_t ticks;
  __asm__ volatile("isb\n\tmrs %0, cntvct_el0\n\tisb" : "=r"(ticks) : : "memory");
  return ticks;
}
/* It may be as slow as one tick in 40 ns; the system's clock reads the same one. */
static int counter_is_even(void) {
  uint64_t hertz;
  __asm__ volatile("mrs %0, cntfrq_el0" : "=r"(hertz));
  return hertz >= 20000000;
}
#else
static inline uint64_t system_time(void) {
  struct timespec at;
  clock_gettime(CLOCK_MONOTONIC, &at);
  return (uint64_t)at.tv_sec * 1000000000u + (uint64_t)at.tv_nsec;
}
static inline uint64_t counter(void) { return 0; }
static int counter_is_even(void) { return 0; }
#endif

/* What is known of the clock before a library comes, on pages that are then locked. */
static union {
  struct { uint64_t counts, ticks, nanoseconds, overhead; } is;
  char pages[65536];
} clock_facts __attribute__((aligned(65536)));

static inline uint64_t now(void) { return clock_facts.is.counts ? counter() : system_time(); }

/* What reading the clock twice takes: the shortest of many tries, in ticks. */
static void set_clock(void) {
  clock_facts.is.counts = (uint64_t)counter_is_even();
  uint64_t least = ~(uint64_t)0;
  for (int i = 0; i < 2000; i++) {
    uint64_t start = now(), took = now() - start;
    if (took < least) least = took;
  }
  clock_facts.is.overhead = least;
  clock_facts.is.ticks = counter(), clock_facts.is.nanoseconds = system_time();
}

/* Nanoseconds of one tick, from the whole life of the process: two milliseconds at the least. */
static double nanoseconds_of_a_tick(void) {
  if (!clock_facts.is.counts) return 1;
  for (;;) {
    uint64_t ticks = counter() - clock_facts.is.ticks, passed = system_time() - clock_facts.is.nanoseconds;
    if (passed > 2000000 && ticks > 0) return (double)passed / (double)ticks;
  }
}
