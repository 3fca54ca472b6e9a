/* process.c: calls by which a program changes what its process may do, and for which the library must make way. Each
 * does its part and passes the call on; a program that makes the system call itself goes without.
 *
 *   setrlimit(RLIMIT_AS)   counts reserved address space: what is reserved and unused is released first
 *   unshare, setns         insist on a single thread for some flags: the janitor ends first
 */
#include <errno.h>
#include <stdint.h>

#include "base.h"
#include "cache.h"
#include "fork.h"
#include "janitor.h"
#include "map.h"
#include "ready.h"
#include "sys.h"

enum { ADDRESS_SPACE_LIMIT = 9 }; /* RLIMIT_AS */

struct limit {
  uint64_t soft, hard; /* struct rlimit of a 64-bit system, under either of its names */
};

#define CALL(declaration, symbol) EXPORT declaration __asm__(symbol)

CALL(int process_setrlimit(int, const struct limit *), "setrlimit");
CALL(int process_setrlimit64(int, const struct limit *), "setrlimit64");
CALL(int process_prlimit(int, int, const struct limit *, struct limit *), "prlimit");
CALL(int process_prlimit64(int, int, const struct limit *, struct limit *), "prlimit64");
CALL(int process_unshare(int), "unshare");
CALL(int process_setns(int, int), "setns");

static int result_of(int result) {
  if (result >= 0) return result;
  errno = -result;
  return -1;
}

static void release_reservations(void) {
  if (sys_process_id() != snug_counters.pid) return; /* after vfork(2): they are the parent's, who gets no limit */
  cache_slow_path_begins();
  fork_lock_all();
  map_release_reservations();
  fork_unlock_all();
  cache_slow_path_ends();
}

int process_prlimit(int process_id, int resource, const struct limit *new_limit, struct limit *old_limit) {
  bool own = process_id == 0 || (uint32_t)process_id == sys_process_id();
  if (own && resource == ADDRESS_SPACE_LIMIT && new_limit != NULL && new_limit->soft != UINT64_MAX) {
    start_if_needed();
    release_reservations();
  }
  return result_of(sys_prlimit(process_id, resource, new_limit, old_limit));
}

int process_prlimit64(int process_id, int resource, const struct limit *new_limit, struct limit *old_limit) {
  return process_prlimit(process_id, resource, new_limit, old_limit);
}

int process_setrlimit(int resource, const struct limit *limit) { return process_prlimit(0, resource, limit, NULL); }

int process_setrlimit64(int resource, const struct limit *limit) { return process_prlimit(0, resource, limit, NULL); }

int process_unshare(int flags) {
  cache_slow_path_begins();
  janitor_stop();
  int result = sys_unshare(flags);
  janitor_after_fork(false);
  cache_slow_path_ends();
  return result_of(result);
}

int process_setns(int fd, int type) {
  cache_slow_path_begins();
  janitor_stop();
  int result = sys_setns(fd, type);
  janitor_after_fork(false);
  cache_slow_path_ends();
  return result_of(result);
}
