/* Calls by which a program limits itself or moves into a namespace: they must work as without us, although address
 * space is reserved and a helper thread may run. Each in a forked child. And children that share their parent's memory
 * until they exec, which many programs use although POSIX allows them nothing. */
#include "../support/test.h"

#include "../../include/snug.h"

#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>

static void *touch_some(void *argument) {
  char *block = (char *)hidden(malloc(100 * KIB));
  if (block != NULL) memset(block, 1, 100 * KIB);
  free(block);
  return argument;
}

static void limit_to_two_gib(void) {
  struct rlimit limit = {2 * GIB, 2 * GIB};
  REQUIRE(setrlimit(RLIMIT_AS, &limit) == 0);
  char *large = (char *)hidden(malloc(2 * MIB));
  REQUIRE(large != NULL);
  memset(large, 1, 2 * MIB);
  pthread_t thread;
  REQUIRE(pthread_create(&thread, NULL, touch_some, NULL) == 0);
  pthread_join(thread, NULL);
  /* The heap and its tables go on growing behind what they had. */
  enum { BLOCKS = 3000 };
  static char *blocks[BLOCKS];
  for (size_t i = 0; i < BLOCKS; i++) {
    blocks[i] = (char *)hidden(malloc(200 * KIB / (i % 40 + 1)));
    REQUIRE(blocks[i] != NULL);
    fill_pattern((unsigned char *)blocks[i], 64, i);
  }
  for (size_t i = 0; i < BLOCKS; i++) {
    CHECK(pattern_mismatch((unsigned char *)blocks[i], 64, i) == 64);
    free(blocks[i]);
  }
  free(large);
}

TEST(a_program_that_limits_its_address_space_goes_on) { run_in_child(limit_to_two_gib); }

static void limit_is_read_back(void) {
  struct rlimit wanted = {64 * GIB, 128 * GIB}, seen;
  REQUIRE(setrlimit(RLIMIT_AS, &wanted) == 0 && getrlimit(RLIMIT_AS, &seen) == 0);
  CHECK(seen.rlim_cur == wanted.rlim_cur && seen.rlim_max == wanted.rlim_max);
  struct rlimit wrong = {2, 1};
  errno = 0;
  CHECK(setrlimit(RLIMIT_NOFILE, &wrong) == -1 && errno == EINVAL);
}

TEST(setrlimit_sets_and_reports_errors) {
  if (getenv("TEST_EMULATED")) SKIP("the emulator does not pass this limit on");
  run_in_child(limit_is_read_back);
}

static void move_into_namespace(void) {
  enum { BLOCKS = 10000 };
  static char *blocks[BLOCKS];
  for (size_t i = 0; i < BLOCKS; i++) {
    blocks[i] = (char *)hidden(malloc(3000));
    REQUIRE(blocks[i] != NULL);
    memset(blocks[i], 1, 3000);
  }
  for (size_t i = 0; i < BLOCKS; i++) free(blocks[i]);
  sleep_ms(50); /* a helper thread would be at work now */
  CHECK_THAT(unshare(CLONE_NEWUSER) == 0, "unshare: errno %d", errno);
}

static bool namespaces_are_allowed(void) {
  pid_t child = fork();
  if (child == 0) _exit(unshare(CLONE_NEWUSER) == 0 ? 0 : 1);
  int status = 1;
  return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

TEST(a_program_moves_into_a_user_namespace_after_a_burst) {
  if (getenv("TEST_EMULATED")) SKIP("the emulator has threads of its own");
  if (!namespaces_are_allowed()) SKIP("no user namespaces here");
  run_in_child(move_into_namespace);
}

/* ---- vfork ---- */

#pragma weak snug_stats
#pragma weak snug_check

enum { KEEPERS = 4, KEPT = 500, VFORK_MS = 600 };

static pthread_barrier_t keepers_wait;

/* Has freed blocks in its cache, rests while the child works, and goes on. */
static void *keep_blocks(void *argument) {
  static unsigned char *kept[KEEPERS][KEPT];
  unsigned char **own = kept[(uintptr_t)argument];
  for (int round = 0; round < 2; round++) {
    for (size_t i = 0; i < KEPT; i++) REQUIRE((own[i] = (unsigned char *)hidden(malloc(40))) != NULL);
    for (size_t i = 0; i < KEPT; i++) fill_pattern(own[i], 40, (uintptr_t)argument * KEPT + i);
    pthread_barrier_wait(&keepers_wait);
    for (size_t i = 0; i < KEPT; i++) CHECK(pattern_mismatch(own[i], 40, (uintptr_t)argument * KEPT + i) == 40);
    for (size_t i = 0; i < KEPT; i++) free(own[i]);
    pthread_barrier_wait(&keepers_wait);
    pthread_barrier_wait(&keepers_wait);
  }
  return NULL;
}

static size_t caches_in_use(void) {
  struct snug_stats stats = {0};
  if (snug_stats != NULL) snug_stats(&stats, sizeof stats);
  return stats.caches;
}

/* Long enough for housekeeping to look at the caches of the parent's threads, which are not threads of the child. */
static void work_as_child(void) {
  for (double end_s = now_s() + VFORK_MS * 1e-3; now_s() < end_s;) {
    for (size_t i = 0; i < 100; i++) free(hidden(malloc(100 * KIB)));
    sleep_ms(1);
  }
}

static __attribute__((noinline)) void vfork_and_work(void) {
  int status = -1;
  pid_t child = vfork();
  if (child == 0) {
    work_as_child();
    _exit(0);
  }
  CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
}

TEST(a_child_after_vfork_works_on_its_parents_heap) {
  pthread_t threads[KEEPERS];
  pthread_barrier_init(&keepers_wait, NULL, KEEPERS + 1);
  for (uintptr_t i = 0; i < KEEPERS; i++) REQUIRE(pthread_create(&threads[i], NULL, keep_blocks, (void *)i) == 0);
  for (int round = 0; round < 2; round++) {
    pthread_barrier_wait(&keepers_wait);
    pthread_barrier_wait(&keepers_wait);
    size_t before = caches_in_use();
    vfork_and_work();
    CHECK_THAT(caches_in_use() == before, "%zu caches, %zu before", caches_in_use(), before);
    pthread_barrier_wait(&keepers_wait);
  }
  for (size_t i = 0; i < KEEPERS; i++) pthread_join(threads[i], NULL);
  if (snug_check != NULL) snug_check();
}

int main(int argc, char **argv) { return run_tests(argc, argv); }
