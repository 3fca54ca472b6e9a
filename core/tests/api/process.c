/* Calls by which a program limits itself or moves into a namespace: they must work as without us, although address
 * space is reserved and a helper thread may run. Each in a forked child. And children that share their parent's memory
 * until they exec, which many programs use although POSIX allows them nothing. */
#include "../support/test.h"

#include "../../include/snug.h"

#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>

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

static size_t mapping_count(void) {
  char text[4096];
  size_t count = 0;
  int descriptor = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  for (ssize_t length; (length = read(descriptor, text, sizeof text)) > 0;)
    for (ssize_t i = 0; i < length; i++) count += text[i] == '\n';
  close(descriptor);
  return count;
}

/* As language runtimes limit programs that they start. The limit is the child's; the memory is ours. */
static void limit_in_a_vfork_child(void) {
  pid_t child = vfork();
  if (child == 0) {
    struct rlimit limit = {2 * GIB, 2 * GIB};
    _exit(setrlimit(RLIMIT_AS, &limit) == 0 ? 0 : 1);
  }
  int status = 1;
  REQUIRE(child > 0 && waitpid(child, &status, 0) == child && status == 0);
  enum { WALLS = 64, BLOCKS = 400000 };
  /* If what was reserved were not any more, these would stand in the way of the heap's tables. */
  for (int i = 0; i < WALLS; i++)
    REQUIRE(mmap(NULL, 64 * MIB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0) != MAP_FAILED);
  for (size_t i = 0; i < BLOCKS; i++) REQUIRE(hidden(malloc(1000)) != NULL);
  CHECK_THAT(mapping_count() < 2000, "small blocks became mappings: there are %zu", mapping_count());
}

TEST(a_limit_set_after_vfork_costs_the_parent_nothing) {
  if (getenv("TEST_EMULATED")) SKIP("the emulator does not pass this limit on");
  run_in_child(limit_in_a_vfork_child);
}

/* A child that ends by its own mistake leaves its parent's locks to all of the parent's threads. */
static void misuse_in_a_vfork_child(void) {
  static char no_block[64];
  alarm(20);
  pid_t child = vfork();
  if (child == 0) {
    close(2);
    free(hidden(no_block + 32));
    _exit(0);
  }
  int status = 0;
  REQUIRE(child > 0 && waitpid(child, &status, 0) == child && status != 0);
  enum { BLOCKS = 2000, THREADS = 3 };
  static void *blocks[BLOCKS];
  for (size_t i = 0; i < BLOCKS; i++) blocks[i] = hidden(malloc(i * 16));
  for (size_t i = 0; i < BLOCKS; i++) free(blocks[i]);
  for (size_t i = 0; i < THREADS; i++) {
    pthread_t thread;
    REQUIRE(pthread_create(&thread, NULL, touch_some, NULL) == 0);
    pthread_join(thread, NULL);
  }
}

TEST(a_parent_outlives_a_child_of_vfork_that_misuses_its_heap) {
  if (getenv("TEST_EMULATED")) SKIP("the emulator makes a fork of each vfork");
  run_in_child(misuse_in_a_vfork_child);
}

/* ---- copies of a process that no handler of fork(3) knows of ---- */

static bool own_blocks_hold; /* atomic */
static bool enough;          /* atomic */

static void *take_and_give(void *argument) {
  unsigned char *blocks[64] = {NULL};
  bool hold = true;
  for (size_t i = 0; !__atomic_load_n(&enough, __ATOMIC_RELAXED) || i < 64; i++) {
    unsigned char **block = &blocks[i * 7 % 64];
    hold &= *block == NULL || pattern_mismatch(*block, 48, (size_t)argument + (size_t)(block - blocks)) == 48;
    free(*block);
    *block = (unsigned char *)hidden(malloc(48));
    if (*block != NULL) fill_pattern(*block, 48, (size_t)argument + (size_t)(block - blocks));
    if (i % 1000 == 0) sleep_ms(1); /* long enough away to look idle */
  }
  if (!hold) __atomic_store_n(&own_blocks_hold, false, __ATOMIC_RELAXED);
  return NULL;
}

static void exit_well(void) {}

static void use_threads_and_fork(void) {
  enum { THREADS = 3, TURNS = 200 };
  pthread_t threads[THREADS];
  own_blocks_hold = true;
  for (size_t i = 0; i < THREADS; i++)
    REQUIRE(pthread_create(&threads[i], NULL, take_and_give, (void *)(i * 1000)) == 0);
  for (int turn = 0; turn < TURNS; turn++) {
    trim_heap();
    pthread_t more;
    REQUIRE(pthread_create(&more, NULL, touch_some, NULL) == 0);
    pthread_join(more, NULL);
  }
  __atomic_store_n(&enough, true, __ATOMIC_RELAXED);
  for (size_t i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  CHECK(own_blocks_hold);
  run_in_child(exit_well); /* fork must not wait for a helper thread that only the first process has */
}

TEST(a_copy_made_by_a_raw_clone_works_on) {
  if (getenv("TEST_EMULATED")) SKIP("the emulator has threads of its own");
  enum { BLOCKS = 200 };
  static void *blocks[BLOCKS];
  for (size_t i = 0; i < BLOCKS; i++) blocks[i] = memset(hidden(malloc(100 * KIB)), 1, 100 * KIB);
  for (size_t i = 0; i < BLOCKS; i++) free(blocks[i]);
  sleep_ms(20); /* a helper thread waits now until this process idles */
  pid_t child = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
  if (child == 0) {
    test_failed = 0;
    use_threads_and_fork();
    _exit(test_failed != 0);
  }
  int status = 1;
  pid_t ended = 0;
  for (int look = 0; look < 600 && child > 0 && ended == 0; look++) {
    ended = waitpid(child, &status, WNOHANG);
    if (ended == 0) sleep_ms(100);
  }
  CHECK_THAT(ended == child && status == 0, "the copy's wait status is 0x%x", status);
  if (ended == 0) kill(child, SIGKILL); /* it hangs in fork, where signals are blocked */
}

int main(int argc, char **argv) { return run_tests(argc, argv); }
