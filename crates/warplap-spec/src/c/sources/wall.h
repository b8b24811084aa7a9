/* The walls of a cell: what it may take, and what it may ask the system for. */
#include <errno.h>
#include <sys/resource.h>

#if defined(__linux__) && (defined(__x86_64__) || defined(__aarch64__))
#include "spaces.h"
#include "filter.h"
static void walls_of_this_system(void) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  /* When memory runs out it is this process that goes. */
  int score = open("/proc/self/oom_score_adj", O_WRONLY);
  if (score >= 0 && write(score, "1000", 4) < 4) errno = 0;
  if (score >= 0) close(score);
  leave_spaces();
  drop_rights();
  seal_program();
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) return;
  lock_files();
  /* New rights may have taken it away. */
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  filter_calls();
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
