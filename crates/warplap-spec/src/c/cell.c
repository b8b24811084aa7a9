/* The cell: a small program in which one user's kernel is called and timed. Orders come in on standard input, a socket;
 * a reply goes out for each. The caller gives the memory, looks at what was written, and ends this process when it does
 * not answer. Usage: cell BYTES, the memory it may take for itself. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include "wall.h"
#ifndef MAP_ANONYMOUS
#define MAP_ANONYMOUS MAP_ANON
#endif
#ifndef MAP_NORESERVE
#define MAP_NORESERVE 0
#endif
#ifdef MSG_CMSG_CLOEXEC
enum { PRIVATE = MSG_CMSG_CLOEXEC };
#else
enum { PRIVATE = 0 };
#endif

enum { LOAD = 1, MAP, CALL, TIME };
enum { LARGE = 2 << 20, FENCE = 16 << 20, REGIONS = 8192, WORDS = 1 << 20, MOST = 64 };
enum { STILL = 0, SWAP = 1, POISON = 2 };

typedef uint64_t word;
struct order { word op, words, number; };
struct reply { word number, failed, nanoseconds, stale, calls, mode; };

static int line;
static word words[WORDS];
static char *regions[REGIONS];
static word region_count;
static void (*door)(void *const *);

static void stop(const char *why) {
  fprintf(stderr, "%s\n", why);
  _exit(97);
}

static void take(void *to, size_t bytes) {
  for (char *at = to; bytes > 0;) {
    ssize_t got = read(line, at, bytes);
    if (got <= 0) _exit(0);
    at += got, bytes -= (size_t)got;
  }
}

/* An order's head, and the file that comes with it, or -1. */
static int take_order(struct order *order) {
  union { struct cmsghdr head; char room[CMSG_SPACE(sizeof(int))]; } beside;
  struct iovec part = {order, sizeof *order};
  struct msghdr message = {0};
  int file = -1;
  message.msg_iov = &part, message.msg_iovlen = 1;
  message.msg_control = &beside, message.msg_controllen = sizeof beside;
  ssize_t got = recvmsg(line, &message, PRIVATE);
  if (got <= 0) _exit(0);
  struct cmsghdr *head = CMSG_FIRSTHDR(&message);
  if (head && head->cmsg_type == SCM_RIGHTS) memcpy(&file, CMSG_DATA(head), sizeof file);
  take((char *)order + got, sizeof *order - (size_t)got);
  if (order->words >= WORDS) stop("an order too long to be one");
  take(words, order->words * sizeof(word));
  return file;
}

/* Shared memory between two forbidden stretches: whoever runs past an end dies here. */
static void map(int file, size_t bytes, int huge) {
  size_t all = bytes + 2 * (size_t)FENCE + LARGE;
  char *at = mmap(0, all, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (file < 0 || region_count == REGIONS || at == MAP_FAILED) stop("no memory");
  at += FENCE + (LARGE - (size_t)at % LARGE) % LARGE;
  if (mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) == MAP_FAILED) stop("no memory");
#ifdef MADV_COLLAPSE
  if (huge) madvise(at, bytes, MADV_COLLAPSE);
#endif
  (void)huge;
  close(file);
  regions[region_count++] = at;
}

static void *place(const word *pair) {
  if (pair[0] >= region_count) stop("a place that is not there");
  return regions[pair[0]] + pair[1];
}

static word now(void) {
  struct timespec at;
  clock_gettime(CLOCK_MONOTONIC, &at);
  return (word)at.tv_sec * 1000000000u + (word)at.tv_nsec;
}

/* What reading the clock twice takes: the shortest of many tries. */
static word overhead(void) {
  static word least = 0;
  for (int i = 0; !least && i < 2000; i++) {
    static word best = ~(word)0;
    word start = now(), took = now() - start;
    if (took < best) best = took;
    if (i == 1999) least = best + !best;
  }
  return least;
}

static word drawn(word *seed) {
  *seed ^= *seed << 13, *seed ^= *seed >> 7, *seed ^= *seed << 17;
  return *seed;
}

/* For every argument four words: what is done to it between two calls, its elements, their bytes, and its poison. */
static void perturb(void *const *at, const word *plan, size_t count, word *seed, char **poisoned) {
  for (size_t i = 0; i < count; i++, plan += 4) {
    size_t bytes = plan[2];
    poisoned[i] = 0;
    if (plan[0] == SWAP) {
      char kept[8], *a = (char *)at[i] + drawn(seed) % plan[1] * bytes;
      char *b = (char *)at[i] + drawn(seed) % plan[1] * bytes;
      memcpy(kept, a, bytes), memcpy(a, b, bytes), memcpy(b, kept, bytes);
    } else if (plan[0] == POISON) {
      poisoned[i] = (char *)at[i] + drawn(seed) % plan[1] * bytes;
      memcpy(poisoned[i], &plan[3], bytes);
    }
  }
}

/* How many of the poisoned elements nobody has written since. */
static word left(const word *plan, size_t count, char **poisoned) {
  word stale = 0;
  for (size_t i = 0; i < count; i++, plan += 4) stale += poisoned[i] && !memcmp(poisoned[i], &plan[3], plan[2]);
  return stale;
}

/* Launches that do not count, launches that do, nanoseconds after which it is enough, the set to begin with, sets,
 * arguments, a seed; the plan of every argument; then the places of every set. */
static void measure(struct reply *reply) {
  word lead = words[0], batch = words[1], enough = words[2], begun = now();
  word set = words[3], sets = words[4], count = words[5], seed = words[6] | 1;
  const word *plan = words + 7, *places = plan + 4 * count;
  char *poisoned[MOST];
  void *at[MOST];
  if (count > MOST || sets == 0) stop("an order that makes no sense");
  for (word i = 0; i < lead + batch; i++) {
    for (size_t a = 0; a < count; a++) at[a] = place(places + 2 * (set * count + a));
    perturb(at, plan, count, &seed, poisoned);
    word start = now();
    /* Somebody else has the processor: fewer launches are a sample as well. */
    if (reply->calls > 0 && start - begun > enough) break;
    door(at);
    word took = now() - start;
    if (i >= lead) reply->calls++, reply->nanoseconds += took > overhead() ? took - overhead() : 0;
    reply->stale += left(plan, count, poisoned) > 0;
    if (++set == sets) set = 0;
  }
}

static void call(struct reply *reply, word count) {
  void *at[MOST];
  if (count > MOST) stop("an order that makes no sense");
  for (size_t a = 0; a < count; a++) at[a] = place(words + 2 * a);
  word start = now();
  door(at);
  reply->nanoseconds = now() - start;
}

/* Its initialisers run now. What they do to the floating-point mode (gcc's -ffast-math does) is undone. */
static word load(const char *path) {
  struct mode mode = mode_now();
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL), *function = library ? dlsym(library, "warplap_call") : 0;
  mode_set(&mode);
  if (!function) fprintf(stderr, "%s\n", library ? "it has no door" : dlerror());
  memcpy(&door, &function, sizeof door);
  return !function;
}

int main(int count, char **arguments) {
  if (count != 2) stop("usage: cell BYTES");
  line = fcntl(0, F_DUPFD_CLOEXEC, 512);
  int nothing = open("/dev/null", O_RDONLY);
  if (line < 0 || nothing < 0 || dup2(nothing, 0) < 0) stop("no descriptors");
  close(nothing);
  overhead();
  wall_in(strtoull(arguments[1], 0, 10));
  const struct mode usual = mode_now();
  for (struct order order;;) {
    int file = take_order(&order);
    struct reply reply = {order.number, 0, 0, 0, 0, 0};
    if (order.op == LOAD) words[order.words] = 0, reply.failed = load((const char *)words);
    else if (order.op == MAP) map(file, words[0], words[1] != 0);
    else if (!door) stop("nothing to call");
    else if (order.op == CALL) call(&reply, order.words / 2);
    else if (order.op == TIME) measure(&reply);
    reply.mode = mode_changed(&usual);
    mode_set(&usual);
    fflush(0);
    for (size_t sent = 0; sent < sizeof reply;) {
      ssize_t put = write(line, (char *)&reply + sent, sizeof reply - sent);
      if (put <= 0) _exit(0);
      sent += (size_t)put;
    }
  }
}
