/* process_test.c: the calls that are passed on reach the system as they were made, after the library has made way, and
 * return as the C library's do. (api/process tries them for real.) */
#include "../../src/sys.c"

static int answer, calls, seen_process, seen_resource, seen_flags;
static bool janitor_seen;

static int prlimit_of_ours(int process_id, int resource, const void *new_limit, void *old_limit) {
  (void)new_limit, (void)old_limit;
  calls++;
  seen_process = process_id;
  seen_resource = resource;
  return answer;
}
static bool a_janitor_runs(void);
static int unshare_of_ours(int flags) {
  calls++;
  seen_flags = flags;
  janitor_seen = a_janitor_runs();
  return answer;
}
#define sys_prlimit prlimit_of_ours
#define sys_unshare unshare_of_ours
#include "above_sys.h"
#include "unit.h"

static bool a_janitor_runs(void) { return janitor_is_running(); }

TEST(limits_are_passed_on) {
  struct limit limit = {12345, 67890};
  answer = 0;
  calls = 0;
  CHECK(process_setrlimit(7, &limit) == 0 && calls == 1 && seen_process == 0 && seen_resource == 7);
  CHECK(process_prlimit64(4711, 3, NULL, &limit) == 0 && calls == 2 && seen_process == 4711 && seen_resource == 3);
}

TEST(errors_come_as_errno) {
  struct limit limit = {1, 1};
  answer = -EPERM;
  errno = 0;
  CHECK(process_setrlimit64(7, &limit) == -1 && errno == EPERM);
  answer = -EINVAL;
  CHECK(process_unshare(1) == -1 && errno == EINVAL && seen_flags == 1);
}

TEST(a_limit_on_address_space_finds_reservations_released) {
  struct limit limit = {(uint64_t)1 << 40, (uint64_t)1 << 40}, none = {UINT64_MAX, UINT64_MAX};
  answer = 0;
  free(malloc(100));
  CHECK(process_setrlimit(ADDRESS_SPACE_LIMIT, &none) == 0 && map.heap_reserved); /* no limit: nothing to release */
  CHECK(process_prlimit(1, ADDRESS_SPACE_LIMIT, &limit, NULL) == 0 && map.heap_reserved); /* another process's */
  CHECK(process_setrlimit(ADDRESS_SPACE_LIMIT, &limit) == 0);
  void *blocks[300]; /* the heap grows on */
  for (size_t i = 0; i < COUNT_OF(blocks); i++) blocks[i] = memset(malloc(100 * KIB), 1, 100 * KIB);
  for (size_t i = 0; i < COUNT_OF(blocks); i++) free(blocks[i]);
  snug_check();
}

TEST(no_helper_thread_runs_while_namespaces_change) {
  answer = 0;
  options.background = 1;
  janitor_seen = true;
  CHECK(process_unshare(0x10000000) == 0 && seen_flags == 0x10000000 && !janitor_seen);
}
