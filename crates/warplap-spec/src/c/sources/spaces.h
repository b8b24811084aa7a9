/* Further walls of a cell, where the system has them: no rights, spaces of its own for network and IPC, no file that is
 * written (Landlock), a program that nobody changes (mseal). What is not there is gone without. */
#include <sched.h>
#include <stddef.h>
#include <sys/syscall.h>

/* Rights of root, and those that a new space gives. As root in the old one it may still read what its library needs. */
static void drop_rights(void) {
  struct { unsigned version; int process; } head = {0x20080522, 0};
  struct { unsigned effective, permitted, inheritable; } none[2] = {{0, 0, 0}, {0, 0, 0}};
  none[0].effective = none[0].permitted = 1u << 2; /* CAP_DAC_READ_SEARCH */
  if (syscall(SYS_capset, &head, none) == 0) return;
  none[0].effective = none[0].permitted = 0;
  syscall(SYS_capset, &head, none);
}

/* A network without a way out, and shared memory, queues and semaphores that are nobody else's. */
static void leave_spaces(void) {
  const int spaces = CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS;
  if (unshare(spaces)) syscall(SYS_unshare, CLONE_NEWUSER | spaces);
}

/* Landlock: files are read and nothing else; no signal and no socket reaches a process outside; nobody is debugged. */
static void lock_files(void) {
  struct { uint64_t files, network, scopes; } handled = {0, 0, 0};
  enum { CREATE_RULESET = 444, RESTRICT_SELF = 446, ASK_VERSION = 1 };
  long version = syscall(CREATE_RULESET, 0, 0, ASK_VERSION);
  if (version < 1) return;
  handled.files = 0x1ff3; /* executing, writing, removing, making; not reading files and folders (4 and 8) */
  if (version >= 2) handled.files |= 1u << 13; /* linking and renaming between folders */
  if (version >= 3) handled.files |= 1u << 14; /* cutting short */
  if (version >= 4) handled.network = 3;
  if (version >= 5) handled.files |= 1u << 15; /* orders to devices */
  if (version >= 6) handled.scopes = 3;
  size_t bytes = version >= 6 ? 24 : version >= 4 ? 16 : 8;
  int rules = (int)syscall(CREATE_RULESET, &handled, bytes, 0);
  if (rules < 0) return;
  syscall(RESTRICT_SELF, rules, 0);
  close(rules);
}

extern char __executable_start, _end;
/* The program's own memory stays where and as it is. */
static void seal_program(void) {
  uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), from = (uintptr_t)&__executable_start & ~(page - 1);
  uintptr_t to = ((uintptr_t)&_end + page - 1) & ~(page - 1);
  enum { MSEAL = 462 };
  syscall(MSEAL, from, to - from, 0);
}
