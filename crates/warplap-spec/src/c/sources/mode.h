/* The floating-point mode of a cell: rounding, flush to zero, traps. */
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
