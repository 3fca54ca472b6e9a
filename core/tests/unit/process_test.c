/* process_test.c: the calls that are passed on reach the system as they were made, after the library has made way, and
 * return as the C library's do. (api/process tries them for real.) */
#include "../../src/sys.c"

static long answer, seen_number, seen[3];
static int calls;
static bool janitor_seen, rights_seen;
static void (*meanwhile)(void); /* NULL: nothing */

static bool a_janitor_runs(void);
static bool any_rights_are_left(void);
static long call_of_ours(long number, long a, long b, long c, long d, long e, long f) {
  (void)d, (void)e, (void)f;
  calls++;
  seen_number = number;
  seen[0] = a, seen[1] = b, seen[2] = c;
  janitor_seen = a_janitor_runs();
  rights_seen = any_rights_are_left();
  if (meanwhile != NULL) meanwhile();
  return answer;
}
#define sys_call call_of_ours

static uint64_t lock_limit_bytes = UINT64_MAX;
#define sys_lock_limit_bytes() (lock_limit_bytes)
#include "above_sys.h"
#include "unit.h"

static bool a_janitor_runs(void) { return janitor_is_running(); }
static bool any_rights_are_left(void) { return rights_have(RIGHT_ALL); }

TEST(limits_are_passed_on) {
  struct limit limit = {12345, 67890};
  answer = 0;
  calls = 0;
  CHECK(process_setrlimit(7, &limit) == 0 && calls == 1 && seen[0] == 0 && seen[1] == 7);
  CHECK(process_prlimit64(4711, 3, NULL, &limit) == 0 && calls == 2 && seen[0] == 4711 && seen[1] == 3);
}

TEST(errors_come_as_errno) {
  struct limit limit = {1, 1};
  answer = -EPERM;
  errno = 0;
  CHECK(process_setrlimit64(7, &limit) == -1 && errno == EPERM);
  answer = -EINVAL;
  CHECK(process_unshare(1) == -1 && errno == EINVAL && seen[0] == 1);
}

static void lock_all_beside_limits(void) {
  struct limit limit = {(uint64_t)1 << 26, (uint64_t)1 << 26};
  answer = 0;
  free(malloc(100));
  CHECK(process_setrlimit(LOCKED_MEMORY_LIMIT, &limit) == 0 && map.heap_reserved); /* nothing is locked yet */
  answer = -EPERM;
  CHECK(process_mlockall(1) == -1 && errno == EPERM && seen_number == SYS_mlockall && seen[0] == 1);
  CHECK(process_setrlimit(LOCKED_MEMORY_LIMIT, &limit) == -1 && map.heap_reserved); /* nor now */
  answer = 0;
  CHECK(process_mlockall(3) == 0 && seen[0] == 3 && map.heap_reserved); /* as much as it likes */
  CHECK(process_setrlimit(LOCKED_MEMORY_LIMIT, &limit) == 0 && !map.heap_reserved);
  snug_check();
}

static void lock_all_under_a_limit(void) {
  answer = 0;
  lock_limit_bytes = (uint64_t)1 << 26;
  CHECK(process_syscall(SYS_mlockall, 2, 0, 0, 0, 0, 0) == 0 && !map.heap_reserved);
  void *blocks[300]; /* the heap grows on */
  for (size_t i = 0; i < COUNT_OF(blocks); i++) blocks[i] = memset(malloc(100 * KIB), 1, 100 * KIB);
  for (size_t i = 0; i < COUNT_OF(blocks); i++) free(blocks[i]);
  snug_check();
}

static void lock_all_where_nobody_may_ask(void) {
  answer = 0;
  rights_end();
  CHECK(process_syscall(SYS_mlockall, 2, 0, 0, 0, 0, 0) == 0 && !map.heap_reserved);
}

TEST(locked_memory_with_a_limit_finds_reservations_released) {
  run_in_child(lock_all_beside_limits);
  run_in_child(lock_all_under_a_limit);
  run_in_child(lock_all_where_nobody_may_ask);
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
  CHECK(process_unshare(0x10000000) == 0 && seen[0] == 0x10000000 && !janitor_seen);
}

/* Free pages that a janitor is started for. */
static void start_a_janitor(void) {
  static void *blocks[200];
  options.purge_cpu_percent = 0;
  for (size_t i = 0; i < COUNT_OF(blocks); i++) blocks[i] = memset(malloc(100 * KIB), 1, 100 * KIB);
  for (size_t i = 0; i < COUNT_OF(blocks); i++) free(blocks[i]);
  janitor_start();
  CHECK(janitor_is_running());
}

static int credentials_change(void) { return (int)process_syscall(SYS_setuid, 0, 0, 0, 0, 0, 0); }
static int namespaces_change(void) { return process_setns(0, 0); }
static int privileges_change(void) { return process_prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); }

TEST(no_helper_thread_keeps_privileges_that_are_dropped) {
  answer = 0;
  start_a_janitor();
  CHECK(process_prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && !janitor_seen && rights_seen);
  CHECK(seen_number == SYS_prctl && seen[0] == PR_SET_NO_NEW_PRIVS && seen[1] == 1);
  start_a_janitor();
  CHECK(process_capset(NULL, NULL) == 0 && !janitor_seen && rights_seen && seen_number == SYS_capset);
  start_a_janitor();
  CHECK(process_syscall(SYS_setresuid, 1, 2, 3, 0, 0, 0) == 0 && !janitor_seen && rights_seen && seen[2] == 3);
  start_a_janitor();
  CHECK(process_prctl(PR_SET_NAME, (word) "test", 0, 0, 0) == 0 && janitor_seen); /* it has nothing to do with us */
}

/* One of the handlers that a server for files has: it takes its first ids back, and starts a program. */
static volatile int handled;
static void change_ids_and_fork(int signal) {
  (void)signal;
  meanwhile = NULL;
  process_syscall(SYS_setgid, 0, 0, 0, 0, 0, 0);
  CHECK(!janitor_seen);
  pid_t child = fork();
  if (child == 0) _exit(0);
  CHECK(child > 0 && waitpid(child, NULL, 0) == child);
  handled++;
}

static void interrupt_itself(void) { raise(SIGUSR1); }

static void change_ids_while_it_changes_ids(void) {
  signal(SIGUSR1, change_ids_and_fork);
  alarm(20);
  answer = 0;
  int (*const calls_made[])(void) = {credentials_change, namespaces_change, privileges_change};
  for (int i = 0; i < (int)COUNT_OF(calls_made); i++) {
    start_a_janitor();
    meanwhile = interrupt_itself;
    CHECK(calls_made[i]() == 0 && handled == i + 1);
    CHECK(!lock_passes_over() && !cache_thread_is_inside());
    sigset_t blocked;
    sigprocmask(SIG_BLOCK, NULL, &blocked);
    CHECK(sigismember(&blocked, SIGUSR1) == 0);
  }
}

TEST(a_handler_may_change_ids_and_fork_while_its_thread_changes_ids) { run_in_child(change_ids_while_it_changes_ids); }

/* The handler has interrupted its thread under a lock for which the helper thread waits. */
static void change_ids_in_the_janitors_way(void) {
  alarm(20);
  answer = 0;
  start_a_janitor();
  cache_slow_path_begins();
  lock_take(&pages.lock, RANK_PAGES);
  for (uint64_t waits = lock_waits; lock_waits == waits;) sleep_ms(10);
  CHECK(process_capset(NULL, NULL) == 0 && janitor_seen);
  CHECK(process_unshare(0) == 0 && !lock_passes_over());
  lock_give(&pages.lock, RANK_PAGES);
  cache_slow_path_ends();
  uint64_t starts = snug_counters.janitor_starts;
  for (int i = 0; i < 200 && janitor_is_running(); i++) sleep_ms(1);
  CHECK_THAT(!janitor_is_running(), "it goes on with what was dropped");
  CHECK(snug_counters.janitor_starts == starts);
  start_a_janitor(); /* as if nothing had been */
}

TEST(a_handler_does_not_wait_for_a_janitor_that_waits_for_its_thread) { run_in_child(change_ids_in_the_janitors_way); }

/* The handler has interrupted its thread while that has all locks, as in snug_check. */
static void make_calls_amid_all_locks(void) {
  struct limit limit = {(uint64_t)1 << 40, (uint64_t)1 << 40};
  alarm(20);
  answer = 0;
  start_a_janitor();
  cache_slow_path_begins();
  fork_lock_all();
  CHECK(process_setrlimit(ADDRESS_SPACE_LIMIT, &limit) == 0);
  CHECK_THAT(lock_held_by_fork() && pages.lock.state != 0 && map.lock.state != 0, "locks were given away");
  for (uint64_t waits = lock_waits; lock_waits == waits && janitor_is_running();) sleep_ms(10);
  CHECK(process_capset(NULL, NULL) == 0);
  CHECK(lock_held_by_fork() && pages.lock.state != 0 && !lock_passes_over());
  fork_unlock_all();
  cache_slow_path_ends();
  CHECK(pages.lock.state == 0);
}

TEST(a_handler_gives_no_locks_away_that_its_thread_has) { run_in_child(make_calls_amid_all_locks); }

/* Where signals can't be blocked, a handler amid a call, and one amid the call of that. */
TEST(calls_nest) {
  cache_slow_path_begins();
  begin_call(false);
  CHECK(lock_passes_over());
  lock_pass_over(false);
  begin_call(false);
  CHECK(lock_passes_over());
  end_call();
  CHECK(!lock_passes_over());
  end_call();
  CHECK(!lock_passes_over() && making_way.passed_over == 0);
  cache_slow_path_ends();
}

/* libpsx signals all threads that it finds after it has made such a call by its number. */
TEST(a_call_by_its_number_brings_no_janitor_back) {
  answer = 0;
  start_a_janitor();
  CHECK(process_syscall(SYS_capset, 0, 0, 0, 0, 0, 0) == 0 && !janitor_is_running());
  process_capset(NULL, NULL);
  CHECK(janitor_is_running());
}

TEST(a_sandbox_ends_all_rights_if_it_is_entered) {
  answer = 0;
  start_a_janitor();
  CHECK(process_syscall(SYS_seccomp, 1, 0, 0, 0, 0, 0) == 0 && janitor_seen && rights_seen); /* only asks: no filter */
  answer = -EFAULT;
  CHECK(process_syscall(SYS_seccomp, 1, 0, 4711, 0, 0, 0) == -1 && errno == EFAULT && !janitor_seen && !rights_seen);
  CHECK(rights_have(RIGHT_ALL));
  answer = 12; /* a thread that could not be synchronized: not entered */
  CHECK(process_syscall(SYS_seccomp, 1, 1, 4711, 0, 0, 0) == 12 && rights_have(RIGHT_ALL));
  uint32_t had = rights.had;
  answer = 12; /* the descriptor of its listener */
  CHECK(process_syscall(SYS_seccomp, 1, 8, 4711, 0, 0, 0) == 12 && !rights_have(RIGHT_ALL));
  rights_resume(had);
  answer = 0;
  start_a_janitor();
  CHECK(process_prctl(PR_SET_SECCOMP, 2, 4711, 0, 0) == 0 && !janitor_seen && !rights_seen && !rights_have(RIGHT_ALL));
  rights_saw_thread();
  janitor_start();
  CHECK(!rights_have(RIGHT_ALL) && !janitor_is_running());
  answer = -EFAULT; /* a second one is not: the first stays */
  CHECK(process_prctl(PR_SET_SECCOMP, 2, 4711, 0, 0) == -1);
  rights_saw_thread();
  janitor_start();
  CHECK(!rights_have(RIGHT_THREAD) && !janitor_is_running());
  CHECK(snug_purge() != 0); /* what needs no right goes on */
  snug_check();
  rights.had_entered = false;
  rights_resume(had);
}
