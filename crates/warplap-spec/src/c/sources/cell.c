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
#include <sys/socket.h>
#include <unistd.h>
#include "mode.h"
#include "clock.h"
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
enum { STILL = 0, SWAP = 1, POISON = 2, TOUCH_TWO = 3, TOUCH = 4 };
/* After the launches that count one more, which must write every element; or all new for every launch. */
enum { ONE_MORE = 1, ALL_NEW = 2 };

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

#include "wall.h"

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

/* One element. Nothing in here may be a call of a library: kernels can change those. */
typedef uint16_t __attribute__((may_alias)) two;
typedef uint32_t __attribute__((may_alias)) four;
typedef uint64_t __attribute__((may_alias)) eight;
static inline word get(const char *at, size_t bytes) {
  switch (bytes) {
    case 8: return *(const volatile eight *)at;
    case 4: return *(const volatile four *)at;
    case 2: return *(const volatile two *)at;
    default: return *(const volatile unsigned char *)at;
  }
}
static inline void put(char *at, word value, size_t bytes) {
  switch (bytes) {
    case 8: *(volatile eight *)at = value; break;
    case 4: *(volatile four *)at = (four)value; break;
    case 2: *(volatile two *)at = (two)value; break;
    default: *(volatile unsigned char *)at = (unsigned char)value;
  }
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
      char *a = (char *)at[i] + drawn(seed) % plan[1] * bytes, *b = (char *)at[i] + drawn(seed) % plan[1] * bytes;
      word kept = get(a, bytes);
      put(a, get(b, bytes), bytes), put(b, kept, bytes);
    } else if (plan[0] == POISON) {
      poisoned[i] = (char *)at[i] + drawn(seed) % plan[1] * bytes;
      put(poisoned[i], plan[3], bytes);
    } else if (plan[0] == TOUCH_TWO || plan[0] == TOUCH) {
      for (word k = plan[0]; k <= TOUCH; k++) {
        char *a = (char *)at[i] + drawn(seed) % plan[1] * bytes;
        put(a, get(a, bytes), bytes);
      }
    }
  }
}

static void poison_all(void *const *at, const word *plan, size_t count) {
  for (size_t i = 0; i < count; i++, plan += 4) {
    char *from = at[i];
    for (word e = 0; plan[0] == POISON && e < plan[1]; e++) put(from + e * plan[2], plan[3], plan[2]);
  }
}

/* Every element of what is swapped changes places with one that lies a drawn distance away. */
static void move_all(void *const *at, const word *plan, size_t count, word *seed) {
  for (size_t i = 0; i < count; i++, plan += 4) {
    size_t bytes = plan[2], far = 1 + drawn(seed) % (plan[1] / 2 + 1);
    for (size_t block = 0; plan[0] == SWAP && block + far < plan[1]; block += 2 * far) {
      for (size_t e = block; e < block + far && e + far < plan[1]; e++) {
        char *a = (char *)at[i] + e * bytes, *b = a + far * bytes;
        word kept = get(a, bytes);
        put(a, get(b, bytes), bytes), put(b, kept, bytes);
      }
    }
  }
}

/* How many of the poisoned elements nobody has written since. */
static word left(const word *plan, size_t count, char **poisoned) {
  word stale = 0;
  for (size_t i = 0; i < count; i++, plan += 4) {
    if (!poisoned[i]) continue;
    word mask = plan[2] < 8 ? ((word)1 << 8 * plan[2]) - 1 : ~(word)0;
    stale += get(poisoned[i], plan[2]) == (plan[3] & mask);
  }
  return stale;
}

/* Launches that do not count, launches that do, nanoseconds after which it is enough, the set to begin with, sets,
 * arguments, a seed, what else; the plan of every argument; then the places of every set. */
static void measure(struct reply *reply) {
  word lead = words[0], batch = words[1], more = words[7], begun = now(), ticks = 0;
  word set = words[3], sets = words[4], count = words[5], seed = words[6] | 1;
  const double tick = nanoseconds_of_a_tick();
  const word enough = (word)((double)words[2] / tick), overhead = clock_facts.is.overhead;
  const word *plan = words + 8, *places = plan + 4 * count;
  char *poisoned[MOST];
  void *at[MOST];
  if (count > MOST || sets == 0) stop("an order that makes no sense");
  for (word i = 0; i < lead + batch; i++) {
    for (size_t a = 0; a < count; a++) at[a] = place(places + 2 * (set * count + a));
    perturb(at, plan, count, &seed, poisoned);
    if (more & ALL_NEW) move_all(at, plan, count, &seed), poison_all(at, plan, count);
    word start = now();
    door(at);
    word ended = now(), took = ended - start;
    if (i >= lead) reply->calls++, ticks += took > overhead ? took - overhead : 0;
    reply->stale += left(plan, count, poisoned) > 0;
    if (++set == sets) set = 0;
    /* Somebody else has the processor: fewer launches are a sample as well. */
    if (reply->calls > 0 && ended - begun > enough) break;
  }
  if (more & ONE_MORE) {
    for (size_t a = 0; a < count; a++) at[a] = place(places + 2 * (set * count + a));
    poison_all(at, plan, count);
    door(at);
  }
  /* The longer the process has lived, the better it knows. */
  reply->nanoseconds = (word)((double)ticks * nanoseconds_of_a_tick());
}

static void call(struct reply *reply, word count) {
  void *at[MOST];
  if (count > MOST) stop("an order that makes no sense");
  for (size_t a = 0; a < count; a++) at[a] = place(words + 2 * a);
  word start = now();
  door(at);
  word took = now() - start;
  reply->nanoseconds = (word)((double)took * nanoseconds_of_a_tick());
}

static void nothing(void *const *at) { (void)at; }

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
  int empty = open("/dev/null", O_RDONLY);
  if (line < 0 || empty < 0 || dup2(empty, 0) < 0) stop("no descriptors");
  close(empty);
  set_clock();
  mprotect(&clock_facts, sizeof clock_facts, PROT_READ);
  wall_in(strtoull(arguments[1], 0, 10));
  const struct mode usual = mode_now();
  for (struct order order;;) {
    int file = take_order(&order);
    struct reply reply = {order.number, 0, 0, 0, 0, 0};
    if (order.op == LOAD && order.words == 0) door = nothing;
    else if (order.op == LOAD) words[order.words] = 0, reply.failed = load((const char *)words);
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
