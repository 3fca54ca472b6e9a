/* process.c: calls by which a program changes what its process may do, and for which the library must make way. Each
 * does its part and passes the call on: to the next library that has it, or to the kernel.
 *
 *   setrlimit(RLIMIT_AS)   counts reserved address space: what is reserved and unused is released first
 *   mlockall               locks all that is mapped, and RLIMIT_MEMLOCK counts it: the same under such a limit
 *   unshare, setns         insist on a single thread for some flags: the janitor ends first, and leaves
 *   capset, prctl          drop privileges of the calling thread: the janitor ends first
 *   prctl, syscall         enter a sandbox: the janitor ends, and so do all rights (rights.h); syscall(2) makes the
 *                          others by their numbers, too
 *
 * setuid and its relatives, which only libc can pass on, are in core/shared. A program that makes the system call
 * without libc goes without all this. */
#include "process.h"

#include <errno.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "../include/snug.h"
#include "aside.h"
#include "cache.h"
#include "fork.h"
#include "janitor.h"
#include "lock.h"
#include "maintain.h"
#include "map.h"
#include "ready.h"
#include "rights.h"
#include "symbols.h"
#include "sys.h"

enum {
  LOCKED_MEMORY_LIMIT = 8, /* RLIMIT_MEMLOCK */
  ADDRESS_SPACE_LIMIT = 9, /* RLIMIT_AS */
  SYSCALL_LANDLOCK_RESTRICT_SELF = 446,
  SECCOMP_OPERATION_FILTER = 1, /* and 0: strict; others only ask */
  SECCOMP_FLAG_LISTENER = 8,
};

struct limit {
  uint64_t soft, hard; /* struct rlimit of a 64-bit system, under either of its names */
};

typedef unsigned long word;

#define CALL(declaration, symbol) EXPORT declaration __asm__(symbol)

CALL(int process_setrlimit(int, const struct limit *), "setrlimit");
CALL(int process_setrlimit64(int, const struct limit *), "setrlimit64");
CALL(int process_prlimit(int, int, const struct limit *, struct limit *), "prlimit");
CALL(int process_prlimit64(int, int, const struct limit *, struct limit *), "prlimit64");
CALL(int process_mlockall(int), "mlockall");
CALL(int process_unshare(int), "unshare");
CALL(int process_setns(int, int), "setns");
CALL(int process_capset(void *, const void *), "capset");
CALL(int process_prctl(int, word, word, word, word), "prctl");
CALL(long process_syscall(long, long, long, long, long, long, long), "syscall");

/* What comes after us; NULL: the kernel. */
static struct {
  int (*prlimit)(int, int, const struct limit *, struct limit *);
  int (*mlockall)(int);
  int (*unshare)(int);
  int (*setns)(int, int);
  int (*capset)(void *, const void *);
  int (*prctl)(int, word, word, word, word);
  long (*syscall)(long, long, long, long, long, long, long);
} next;

void process_pass_on_to_libraries(void) {
  *(void **)&next.prlimit = symbols_next("prlimit");
  *(void **)&next.mlockall = symbols_next("mlockall");
  *(void **)&next.unshare = symbols_next("unshare");
  *(void **)&next.setns = symbols_next("setns");
  *(void **)&next.capset = symbols_next("capset");
  *(void **)&next.prctl = symbols_next("prctl");
  *(void **)&next.syscall = symbols_next("syscall");
}

static long result_of(long result) {
  if (result >= 0 || result < -4095) return result;
  errno = (int)-result;
  return -1;
}

static long pass_on(long number, long a, long b, long c, long d, long e, long f) {
  return next.syscall != NULL ? next.syscall(number, a, b, c, d, e, f) : result_of(sys_call(number, a, b, c, d, e, f));
}

/* ---- making way ---- */

enum { RESTARTS_IN_A_ROW = 64 }; /* a server may change its ids for each request: not a thread each time */

static uint32_t ended_rights; /* with all locks held */

/* Around the call that is passed on. */
static __thread struct {
  uint64_t signals_before;
  uint32_t passed_over; /* a bit for each call: a handler may make one amid another where signals can't be blocked */
  bool signals_are_blocked;
} making_way FIXED_TLS;

/* And not that of a parent, which a child of vfork(2) must leave as it is. */
static bool memory_is_ours(void) {
  start_if_needed();
  maintain_claim_copy();
  return rights_identity() != IDENTITY_BORROWED;
}

/* A handler that makes such a call, too, would wait for the lock that its own thread has, and one that jumps out would
 * leave it taken. The handler itself may have interrupted a slow path of its thread: then it skips the locks that it
 * can't have, as one that forks (K4), and the janitor may wait for one of them. */
static void begin_call(bool blocks_signals) {
  making_way.signals_are_blocked = blocks_signals && rights_have(RIGHT_THREAD);
  if (making_way.signals_are_blocked) making_way.signals_before = sys_block_signals();
  making_way.passed_over = making_way.passed_over << 1 | lock_passes_over();
  if (cache_thread_is_inside()) lock_pass_over(true);
}

static void end_call(void) {
  lock_pass_over(making_way.passed_over & 1);
  making_way.passed_over >>= 1;
  if (!making_way.signals_are_blocked) return;
  making_way.signals_are_blocked = false;
  sys_restore_signals(making_way.signals_before);
}

enum process_way process_make_way(enum process_way wanted) {
  if (wanted == WAY_NONE) return wanted;
  if (!memory_is_ours()) return WAY_NONE;
  begin_call(wanted != WAY_SANDBOX);
  cache_slow_path_begins();
  if (wanted == WAY_ALONE) {
    janitor_stop_and_leave();
  } else {
    janitor_stop();
  }
  if (wanted == WAY_SANDBOX) {
    fork_lock_all();
    map_dump_reservations(true);
    ended_rights = rights_end();
  }
  return wanted;
}

static void close_way(enum process_way made, bool succeeded, bool starts_again) {
  if (made == WAY_NONE) return;
  if (made == WAY_SANDBOX) {
    if (!succeeded) {
      rights_resume(ended_rights);
      map_dump_reservations(false);
    }
    fork_unlock_all();
  }
  janitor_resume();
  if (starts_again && (made != WAY_SANDBOX || !succeeded)) janitor_start_again(RESTARTS_IN_A_ROW);
  cache_slow_path_ends();
  end_call();
}

void process_close_way(enum process_way made, bool succeeded) { close_way(made, succeeded, true); }

EXPORT void snug_enter_sandbox(void) { process_close_way(process_make_way(WAY_SANDBOX), true); }

static enum process_way way_of_prctl(int operation) {
  switch (operation) {
    case PR_SET_SECCOMP: return WAY_SANDBOX;
    case PR_SET_NO_NEW_PRIVS:
    case PR_CAPBSET_DROP:
    case PR_CAP_AMBIENT:
    case PR_SET_SECUREBITS: return WAY_PRIVILEGES;
    default: return WAY_NONE;
  }
}

/* By raw system calls a program drops privileges of one thread alone. */
static ALWAYS_INLINE enum process_way way_of_syscall(long number, long a, long c) {
  switch (number) {
    case SYS_seccomp: return a <= SECCOMP_OPERATION_FILTER && (a == 0 || c != 0) ? WAY_SANDBOX : WAY_NONE;
    case SYS_prctl: return way_of_prctl((int)a);
    case SYS_unshare:
    case SYS_setns: return WAY_ALONE;
    case SYS_setuid:
    case SYS_setgid:
    case SYS_setreuid:
    case SYS_setregid:
    case SYS_setresuid:
    case SYS_setresgid:
    case SYS_setgroups:
    case SYS_capset:
    case SYSCALL_LANDLOCK_RESTRICT_SELF: return WAY_PRIVILEGES;
    default: return WAY_NONE;
  }
}

/* A filter with a listener gives its descriptor; without one a positive number is a thread that is in the way. */
static bool succeeded(long result, long number, long flags) {
  return result == 0 || (result > 0 && number == SYS_seccomp && (flags & SECCOMP_FLAG_LISTENER) != 0);
}

/* ---- the calls ---- */

/* The ordinary one is nothing but a jump: vfork(2), too, is made through here. The janitor stays away until it is
 * wished for: libpsx (of libcap) signals all threads that it finds after such a call, and tries again while one does
 * not answer. */
long process_syscall(long number, long a, long b, long c, long d, long e, long f) {
  if (unlikely(number == SYS_mlockall)) return process_mlockall((int)a);
  enum process_way way = way_of_syscall(number, a, c);
  if (likely(way == WAY_NONE)) return pass_on(number, a, b, c, d, e, f);
  way = process_make_way(way);
  long result = pass_on(number, a, b, c, d, e, f);
  close_way(way, succeeded(result, number, b), false);
  return result;
}

int process_prctl(int operation, word a, word b, word c, word d) {
  enum process_way way = process_make_way(way_of_prctl(operation));
  long result = next.prctl != NULL ? next.prctl(operation, a, b, c, d)
                                   : pass_on(SYS_prctl, operation, (long)a, (long)b, (long)c, (long)d, 0);
  process_close_way(way, result == 0);
  return (int)result;
}

int process_capset(void *header, const void *sets) {
  enum process_way way = process_make_way(WAY_PRIVILEGES);
  long result =
      next.capset != NULL ? next.capset(header, sets) : pass_on(SYS_capset, (long)header, (long)sets, 0, 0, 0, 0);
  process_close_way(way, result == 0);
  return (int)result;
}

int process_unshare(int flags) {
  enum process_way way = process_make_way(WAY_ALONE);
  long result = next.unshare != NULL ? next.unshare(flags) : pass_on(SYS_unshare, flags, 0, 0, 0, 0, 0);
  process_close_way(way, result == 0);
  return (int)result;
}

int process_setns(int fd, int type) {
  enum process_way way = process_make_way(WAY_ALONE);
  long result = next.setns != NULL ? next.setns(fd, type) : pass_on(SYS_setns, fd, type, 0, 0, 0, 0);
  process_close_way(way, result == 0);
  return (int)result;
}

void process_release_reservations(void) {
  if (!memory_is_ours()) return; /* the parent gets no limit */
  bool amid = cache_thread_is_inside();
  if (amid && lock_held_by_fork()) return; /* its thread has all locks, and is not done with what they guard */
  cache_slow_path_begins();
  if (amid) lock_try_in_fork(true); /* K5 */
  fork_lock_all();
  if (!lock_missed_in_fork()) map_release_reservations();
  if (amid) lock_try_in_fork(false);
  aside_release_reservations();
  fork_unlock_all();
  cache_slow_path_ends();
}

static bool locks_all; /* atomic: what is reserved counts as locked */

/* Also for who may lock as much as there is: a daemon drops that privilege later, and the limit holds from then on. */
int process_mlockall(int flags) {
  start_if_needed();
  if (!rights_have(RIGHT_OTHERS) || sys_lock_limit_bytes() != UINT64_MAX) process_release_reservations();
  long result = next.mlockall != NULL ? next.mlockall(flags) : pass_on(SYS_mlockall, flags, 0, 0, 0, 0, 0);
  if (result == 0) __atomic_store_n(&locks_all, true, __ATOMIC_RELAXED);
  return (int)result;
}

static bool counts_reservations(int resource) {
  if (resource == LOCKED_MEMORY_LIMIT) return __atomic_load_n(&locks_all, __ATOMIC_RELAXED);
  return resource == ADDRESS_SPACE_LIMIT;
}

int process_prlimit(int process_id, int resource, const struct limit *new_limit, struct limit *old_limit) {
  bool own = process_id == 0 || (uint32_t)process_id == rights_pid();
  if (own && counts_reservations(resource) && new_limit != NULL && new_limit->soft != UINT64_MAX) {
    process_release_reservations();
  }
  if (next.prlimit != NULL) return next.prlimit(process_id, resource, new_limit, old_limit);
  return (int)pass_on(SYS_prlimit64, process_id, resource, (long)new_limit, (long)old_limit, 0, 0);
}

int process_prlimit64(int process_id, int resource, const struct limit *new_limit, struct limit *old_limit) {
  return process_prlimit(process_id, resource, new_limit, old_limit);
}

int process_setrlimit(int resource, const struct limit *limit) { return process_prlimit(0, resource, limit, NULL); }

int process_setrlimit64(int resource, const struct limit *limit) { return process_prlimit(0, resource, limit, NULL); }
