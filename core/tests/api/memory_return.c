/* Memory goes back to the kernel: by malloc_trim at once, and within 2 s of idleness without any call. In the
 * process, in a process with many threads, in a forked child. Judged by /proc/self/statm. */
#include "../support/test.h"

#include <malloc.h>
#include <pthread.h>
#include <sys/syscall.h>

#include "../../include/snug_counters.h"

extern struct snug_counters snug_counters __attribute__((weak));

enum { BLOCKS = 60000 };
static void *blocks[BLOCKS];

/* Resident when main began: what every test must come back to. */
static size_t before;

/* What may stay above that: a little, and a tenth of what is live. */
static const size_t slack_bytes = 6 * 1024 * 1024;

static size_t size_of(size_t i) {
  static const size_t sizes[] = {24, 100, 400, 1000, 3000, 9000, 20000, 50, 700, 64};
  if (i % 500 == 7) return 300 * KIB;
  if (i % 10000 == 13) return 3 * MIB;
  return sizes[i % COUNT_OF(sizes)];
}

/* About 260 MB in all sizes, touched. */
static void fill_heap(void) {
  for (size_t i = 0; i < BLOCKS; i++) {
    blocks[i] = hidden(malloc(size_of(i)));
    REQUIRE(blocks[i] != NULL);
    memset(blocks[i], 1, size_of(i));
  }
}

static void empty_heap(void) {
  for (size_t i = 0; i < BLOCKS; i++) {
    free(blocks[i]);
    blocks[i] = NULL;
  }
}

static void check_level(const char *when, size_t live) {
  size_t now = resident_bytes();
  CHECK_THAT(now <= before + live + live / 10 + slack_bytes, "%s: resident %zu KiB, before %zu KiB, live %zu KiB", when,
             now / KIB, before / KIB, live / KIB);
}

TEST(malloc_trim_lowers_resident_memory) {
  if (!can_trim_heap()) SKIP("no malloc_trim here");
  fill_heap();
  size_t full = resident_bytes();
  CHECK_THAT(full > before + 200 * MIB, "resident only %zu KiB", full / KIB);
  empty_heap();
  trim_heap();
  check_level("after malloc_trim", 0);
}

TEST(malloc_trim_says_whether_it_gave_back) {
  if (!can_trim_heap()) SKIP("no malloc_trim here");
  void *block = hidden(malloc(20 * KIB));
  REQUIRE(block != NULL);
  enum { COUNT = 1000 };
  static void *many[COUNT];
  for (size_t i = 0; i < COUNT; i++) {
    many[i] = hidden(malloc(20 * KIB));
    REQUIRE(many[i] != NULL);
    memset(many[i], 1, 20 * KIB);
  }
  for (size_t i = 0; i < COUNT; i++) free(many[i]);
  size_t full = resident_bytes();
  int result = trim_heap();
  CHECK_THAT(result == (full > resident_bytes() + 64 * KIB), "malloc_trim = %d, resident %zu -> %zu KiB", result,
             full / KIB, resident_bytes() / KIB);
  trim_heap();
  CHECK_THAT(trim_heap() == 0, "nothing was left to give back");
  free(block);
}

TEST(malloc_trim_keeps_live_contents) {
  fill_heap();
  for (size_t i = 0; i < BLOCKS; i++) {
    if (i % 7 == 0) continue;
    free(blocks[i]);
    blocks[i] = NULL;
  }
  for (size_t i = 0; i < BLOCKS; i += 7) fill_pattern(blocks[i], size_of(i), i);
  trim_heap();
  for (size_t i = 0; i < BLOCKS; i += 7)
    CHECK_THAT(pattern_mismatch(blocks[i], size_of(i), i) == size_of(i), "block %zu of %zu bytes", i, size_of(i));
  empty_heap();
}

/* ---- idleness ---- */

static size_t read_text(const char *path, char *text, size_t capacity_bytes) {
  int descriptor = open(path, O_RDONLY | O_CLOEXEC);
  ssize_t length = descriptor >= 0 ? read(descriptor, text, capacity_bytes - 1) : 0;
  if (descriptor >= 0) close(descriptor);
  text[length > 0 ? length : 0] = 0;
  return length > 0 ? (size_t)length : 0;
}

/* Time that threads of this process other than the caller waited for a CPU so far, and whether one waits (or runs)
 * now. Without opendir, which allocates: the process would not be idle. */
static bool others_want_cpu(uint64_t *waited_ns) {
  char entries[4096], path[320], text[512];
  bool wanted = false;
  *waited_ns = 0;
  int directory = open("/proc/self/task", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  long length = directory >= 0 ? syscall(SYS_getdents64, directory, entries, sizeof entries) : 0;
  for (long at = 0; at < length; at += *(unsigned short *)(entries + at + 16)) { /* d_reclen */
    const char *name = entries + at + 19;                                        /* d_name */
    if (name[0] == '.' || strtol(name, NULL, 10) == getpid()) continue;
    snprintf(path, sizeof path, "/proc/self/task/%s/stat", name);
    const char *state = read_text(path, text, sizeof text) != 0 ? strrchr(text, ')') : NULL;
    wanted |= state != NULL && state[2] == 'R';
    snprintf(path, sizeof path, "/proc/self/task/%s/schedstat", name); /* time on CPUs, time waiting for one, ... */
    const char *space = read_text(path, text, sizeof text) != 0 ? strchr(text, ' ') : NULL;
    if (space != NULL) *waited_ns += strtoull(space, NULL, 10);
  }
  if (directory >= 0) close(directory);
  return wanted;
}

/* Does nothing for two seconds. Moments in which the helper thread waits for a CPU, on a crowded machine, do not
 * count. */
static void be_idle(void) {
  enum { STEP_MS = 100, STEPS = 20, STEPS_MAX = 600 };
  uint64_t before_ns, waited_ns;
  others_want_cpu(&before_ns);
  for (int step = 0, counted = 0; counted < STEPS && step < STEPS_MAX; step++) {
    sleep_ms(STEP_MS);
    bool crowded = others_want_cpu(&waited_ns);
    crowded |= waited_ns > before_ns && waited_ns - before_ns > STEP_MS / 4 * (uint64_t)1000000;
    before_ns = waited_ns;
    counted += !crowded;
  }
}

static void idle_after_a_burst(void) {
  fill_heap();
  empty_heap();
  be_idle();
  check_level("2 s after the burst", 0);
}

TEST(idle_process_gives_memory_back) { idle_after_a_burst(); }

TEST(idle_child_gives_memory_back) { run_in_child(idle_after_a_burst); }

/* A few big frees, after which no call follows: far fewer than the slow paths between two looks at the clock. */
static void idle_after_few_frees(size_t count, size_t size_bytes) {
  REQUIRE(count <= BLOCKS);
  for (size_t i = 0; i < count; i++) {
    blocks[i] = hidden(malloc(size_bytes));
    REQUIRE(blocks[i] != NULL);
    memset(blocks[i], 1, size_bytes);
  }
  for (size_t i = 0; i < count; i++) free(blocks[i]);
  be_idle();
  check_level("2 s after a few frees", 0);
}

TEST(a_few_large_blocks_are_given_back) { idle_after_few_frees(8, 20 * MIB); }

TEST(a_few_runs_are_given_back) { idle_after_few_frees(50, 900 * KIB); }

static void grandchild(void) { run_in_child(idle_after_a_burst); }

TEST(idle_grandchild_gives_memory_back) { run_in_child(grandchild); }

TEST(idle_process_gives_back_what_lies_between_live_blocks) {
  fill_heap();
  /* The last fortieth of the blocks of each size stays, in one piece: its slabs stay, all others go. */
  size_t live = 0;
  for (size_t i = 0; i < BLOCKS; i++) {
    if (i >= BLOCKS - BLOCKS / 40) {
      live += size_of(i);
      continue;
    }
    free(blocks[i]);
    blocks[i] = NULL;
  }
  be_idle();
  check_level("2 s after the burst", live);
  empty_heap();
}

static void *burst_and_wait(void *argument) {
  pthread_barrier_t *barrier = (pthread_barrier_t *)argument;
  enum { COUNT = 4000 };
  void *own[COUNT];
  for (int round = 0; round < 3; round++) {
    for (size_t i = 0; i < COUNT; i++) {
      own[i] = hidden(malloc(size_of(i) % 4096));
      REQUIRE(own[i] != NULL);
      memset(own[i], 1, size_of(i) % 4096);
    }
    for (size_t i = 0; i < COUNT; i++) free(own[i]);
  }
  pthread_barrier_wait(barrier);
  pthread_barrier_wait(barrier);
  return NULL;
}

static void idle_threads(void) {
  enum { THREADS = 16 };
  pthread_t threads[THREADS];
  pthread_barrier_t barrier;
  pthread_barrier_init(&barrier, NULL, THREADS + 1);
  for (size_t i = 0; i < THREADS; i++) REQUIRE(pthread_create(&threads[i], NULL, burst_and_wait, &barrier) == 0);
  pthread_barrier_wait(&barrier);
  be_idle();
  check_level("16 threads idle for 2 s", 0);
  pthread_barrier_wait(&barrier);
  for (size_t i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  pthread_barrier_destroy(&barrier);
}

TEST(idle_threads_hold_next_to_nothing) { idle_threads(); }

TEST(idle_threads_of_a_child_hold_next_to_nothing) { run_in_child(idle_threads); }

enum { BURST_THREADS = 64 };
static pthread_barrier_t all_are_full;

/* Mixed sizes, 19 MB in all threads in the end. */
static void *replace_blocks(void *argument) {
  enum { COUNT = 200, ROUNDS = 50 };
  void *own[COUNT];
  uint64_t random_state = (uint64_t)(uintptr_t)argument + 1;
  memset(own, 0, sizeof own);
  for (size_t i = 0; i < COUNT * ROUNDS; i++) {
    size_t slot = random_below(&random_state, COUNT), size_bytes = 16 + random_below(&random_state, 2000);
    if (i % 16 == 0) size_bytes *= 8;
    free(own[slot]);
    own[slot] = hidden(malloc(size_bytes));
    REQUIRE(own[slot] != NULL);
    memset(own[slot], 1, size_bytes);
  }
  pthread_barrier_wait(&all_are_full);
  for (size_t i = 0; i < COUNT; i++) free(own[i]);
  return NULL;
}

/* Less than check_level allows: no block is live. */
TEST(a_burst_of_64_threads_leaves_4_mb_at_most) {
  if (!snug_is_active() || freed_blocks_wait()) SKIP("what snug promises, when no freed blocks wait");
  enum { LEFT_BYTES = 4000000 };
  pthread_t threads[BURST_THREADS];
  pthread_barrier_init(&all_are_full, NULL, BURST_THREADS);
  for (uintptr_t i = 0; i < BURST_THREADS; i++)
    REQUIRE(pthread_create(&threads[i], NULL, replace_blocks, (void *)i) == 0);
  for (size_t i = 0; i < BURST_THREADS; i++) pthread_join(threads[i], NULL);
  size_t at_end = resident_bytes();
  be_idle();
  size_t now = resident_bytes();
  CHECK_THAT(now <= before + LEFT_BYTES, "resident %zu KiB, %zu before, %zu when the threads ended", now / KIB,
             before / KIB, at_end / KIB);
}

/* ---- what threads leave that are gone ---- */

enum { GONE_THREADS = 1000, GONE_STACK_BYTES = 64 * 1024 };

static bool all_wait_twice;

/* All of its cache is used. */
static void *use_sizes_up_to_1_kib(void *argument) {
  void *own[50];
  for (size_t size_bytes = 16; size_bytes <= KIB; size_bytes += 16) {
    for (size_t i = 0; i < COUNT_OF(own); i++) own[i] = hidden(malloc(size_bytes));
    for (size_t i = 0; i < COUNT_OF(own); i++) free(own[i]);
  }
  pthread_barrier_wait((pthread_barrier_t *)argument);
  if (all_wait_twice) pthread_barrier_wait((pthread_barrier_t *)argument);
  return NULL;
}

/* With idle moments while they live, or not. */
static void have_threads(size_t count, bool idle_between) {
  static pthread_t threads[GONE_THREADS];
  pthread_attr_t attributes;
  pthread_barrier_t barrier;
  all_wait_twice = idle_between;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, GONE_STACK_BYTES);
  pthread_barrier_init(&barrier, NULL, (unsigned)count + 1);
  for (size_t i = 0; i < count; i++)
    REQUIRE(pthread_create(&threads[i], &attributes, use_sizes_up_to_1_kib, &barrier) == 0);
  pthread_barrier_wait(&barrier);
  if (idle_between) {
    be_idle();
    pthread_barrier_wait(&barrier);
  }
  for (size_t i = 0; i < count; i++) pthread_join(threads[i], NULL);
  pthread_barrier_destroy(&barrier);
  pthread_attr_destroy(&attributes);
  be_idle();
}

/* Of snug's tables: stacks are the C library's to keep. */
static size_t resident_in_tables(void) {
  static char line[4096];
  FILE *file = fopen("/proc/self/smaps", "r");
  size_t kib = 0, part;
  bool is_ours = false;
  REQUIRE(file != NULL);
  while (fgets(line, sizeof line, file) != NULL) {
    char *rest;
    size_t begin = strtoul(line, &rest, 16);
    if (rest != line && *rest == '-') {
      is_ours = false;
      for (size_t i = 0; i < SNUG_COUNTERS_TABLES; i++)
        is_ours |= begin - snug_counters.tables[i].address < snug_counters.tables[i].reserved_bytes;
    }
    if (is_ours && sscanf(line, "Rss: %zu kB", &part) == 1) kib += part;
  }
  fclose(file);
  return kib * KIB;
}

static void check_what_threads_leave(void) {
  enum { LEFT_BYTES = 256 * 1024 };
  have_threads(50, false);
  size_t few = resident_in_tables();
  have_threads(GONE_THREADS, false);
  size_t many = resident_in_tables();
  CHECK_THAT(many <= few + LEFT_BYTES, "%zu KiB of tables, %zu after few threads", many / KIB, few / KIB);
  have_threads(GONE_THREADS, true);
  many = resident_in_tables();
  CHECK_THAT(many <= few + LEFT_BYTES, "%zu KiB of tables, %zu after few threads", many / KIB, few / KIB);
}

/* However many they were. In a child, as the C library keeps their stacks. */
TEST(threads_that_are_gone_leave_next_to_nothing) {
  if (&snug_counters == NULL) SKIP("a question to snug");
  if (freed_blocks_wait()) SKIP("no thread has a cache");
  run_in_child(check_what_threads_leave);
}

TEST(memory_returns_again_after_every_burst) {
  if (freed_blocks_wait()) SKIP("up to 12 MiB of freed blocks wait");
  for (int burst = 0; burst < 3; burst++) {
    fill_heap();
    empty_heap();
    be_idle();
    check_level("2 s after another burst", 0);
  }
}

TEST(idle_process_uses_no_cpu_and_no_extra_thread) {
  if (!snug_is_active()) SKIP("a question to snug");
  fill_heap();
  empty_heap();
  be_idle();
  struct timespec begin, end;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &begin);
  sleep_ms(1000);
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &end);
  double used_s = (double)(end.tv_sec - begin.tv_sec) + (double)(end.tv_nsec - begin.tv_nsec) * 1e-9;
  CHECK_THAT(used_s < 0.005, "%.4f s of CPU in an idle second", used_s);
  CHECK_THAT(status_number("Threads:") == 1, "%zu threads", status_number("Threads:"));
}

int main(int argc, char **argv) {
  if (getenv("TEST_EMULATED")) {
    test_print(1, "skip memory_return: the resident size is the emulator's\n");
    return 0;
  }
  before = resident_bytes();
  return run_tests(argc, argv);
}
