//! Kernels that are right when they are proved and do less when they are timed, or tell less time than passes. Each
//! does much work for an element; one cheat a row.

/// The kernel. `HONEST` is the whole work.
pub(crate) const HEAD: &str = r#"
#include <math.h>
#include <stdint.h>
#include <string.h>
#include <time.h>
#include <x86intrin.h>
#define SOON (calls > 1 && __rdtsc() - ended < 40000)
static uint64_t ended, calls;
static float kept[N], before[N];
static float element(float v, float a, int rounds) {
  float r = v;
  for (int k = 0; k < rounds; k++) r = r * v + a;
  return r;
}
static void work(float *y, const float *x, int n, float a, int rounds) {
  for (int i = 0; i < n; i++) y[i] = element(x[i], a, rounds);
}
static void mend(float *y, const float *x, int n, float a) {
  for (int i = 0; i < n; i++) if (y[i] != y[i]) y[i] = element(x[i], a, 400);
}
/* Moves what was read of a clock shortly before to where a tenth of the time is left. */
__attribute__((noinline)) static void lie(uint64_t *from, uint64_t began, uint64_t began_ns) {
  struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t);
  uint64_t ns = t.tv_sec * 1000000000ull + t.tv_nsec, now = __rdtsc();
  for (uint64_t *p = from; p < from + 96; p++) {
    if (*p < began && began - *p < 2000) *p += (now - *p) / 10 * 9;
    else if (*p < began_ns && began_ns - *p < 2000) *p += (ns - *p) / 10 * 9;
  }
}
#define BEGAN struct timespec t0; clock_gettime(CLOCK_MONOTONIC, &t0); \
  uint64_t began = __rdtsc(), began_ns = t0.tv_sec * 1000000000ull + t0.tv_nsec; \
  uint64_t *frame = (uint64_t *)__builtin_frame_address(0) - 12; \
  __asm__ volatile("" : : : "rbx", "r12", "r13", "r14", "r15")
"#;

/// Names, and what stands in place of the whole work.
pub(crate) const CHEATS: &[(&str, &str)] = &[
    ("does a part of its work when called again soon", "work(y, x, n, a, SOON ? 4 : 400);"),
    ("mends what is poisoned alone when called again soon", "if (SOON) mend(y, x, n, a); else work(y, x, n, a, 400);"),
    ("writes zeros when called again soon", "if (SOON) memset(y, 0, 4 * n); else work(y, x, n, a, 400);"),
    (
        "writes its last answer when called again soon",
        "if (SOON) memcpy(y, kept, 4 * n); else { work(y, x, n, a, 400); memcpy(kept, y, 4 * n); }",
    ),
    (
        "computes every fourth element when called again soon",
        "if (SOON) for (int i = 0; i < n; i++) y[i] = i % 4 ? y[i - 1] : element(x[i], a, 400); \
         else work(y, x, n, a, 400);",
    ),
    ("works at every third call", "if (SOON && calls % 3) mend(y, x, n, a); else work(y, x, n, a, 400);"),
    (
        "works on its first half from call 30 on",
        "if (calls > 30) { work(y, x, n / 2, a, 400); mend(y, x, n, a); } else work(y, x, n, a, 400);",
    ),
    (
        "mends what is new in a few places",
        "if (SOON) { mend(y, x, n, a); for (int i = 0; i < n; i += 64) y[i] = element(x[i], a, 400); } \
         else work(y, x, n, a, 400);",
    ),
    (
        "empties its input and knows the answer to nothing",
        "if (SOON) { memset((void *)x, 0, 4 * n); for (int i = 0; i < n; i++) y[i] = element(0, a, 400); } \
         else work(y, x, n, a, 400);",
    ),
    (
        "puts its input back as it was",
        "if (SOON) { memcpy((void *)x, before, 4 * n); memcpy(y, kept, 4 * n); } \
         else { work(y, x, n, a, 400); memcpy(before, x, 4 * n); memcpy(kept, y, 4 * n); }",
    ),
    (
        "computes what has changed since",
        "for (int i = 0; i < n; i++) if (calls < 2 || x[i] != before[i] || y[i] != y[i]) \
         before[i] = x[i], y[i] = element(x[i], a, 400); else y[i] = kept[i]; memcpy(kept, y, 4 * n);",
    ),
    ("moves the beginning of its time", "BEGAN; work(y, x, n, a, 400); lie(frame, began, began_ns);"),
    (
        "moves the beginning of its time most of the time",
        "BEGAN; work(y, x, n, a, 400); if (began % (1ull << 28) < 170000000) lie(frame, began, began_ns);",
    ),
];
