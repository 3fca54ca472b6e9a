/* What an idle process does for its memory, and what it leaves alone: helper threads start only where something can be
 * given back, bursts soon cost few page faults, and a fork hardly waits for one at work. */
#include "../support/test.h"

#include <pthread.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "../../include/snug.h"
#include "../../include/snug_counters.h"

#pragma weak snug_stats
extern struct snug_counters snug_counters __attribute__((weak));

enum { BLOCKS = 200000, BLOCK_BYTES = 240, KEPT_OF = 16 };

static void *blocks[BLOCKS];

/* Some 48 MB of small blocks of which one of 16 stays: no page is free. */
static void fill_sparsely(void) {
  for (size_t i = 0; i < BLOCKS; i++) {
    blocks[i] = hidden(malloc(BLOCK_BYTES));
    REQUIRE(blocks[i] != NULL);
    memset(blocks[i], 1, BLOCK_BYTES);
  }
  for (size_t i = 0; i < BLOCKS; i++) {
    if (i % KEPT_OF == 0) continue;
    free(blocks[i]);
    blocks[i] = NULL;
  }
}

static void empty(void) {
  for (size_t i = 0; i < BLOCKS; i++) {
    free(blocks[i]);
    blocks[i] = NULL;
  }
}

/* Within ten seconds of doing nothing. */
static void check_that_it_falls_to(size_t most) {
  size_t resident = resident_bytes();
  for (int i = 0; i < 100 && (resident = resident_bytes()) > most; i++) sleep_ms(100);
  CHECK_THAT(resident <= most, "%zu KiB resident, not %zu", resident / KIB, most / KIB);
}

/* The first idle moment can give nothing back, the second one all. */
TEST(garbage_goes_after_an_idle_moment_in_which_it_could_not) {
  if (freed_blocks_wait()) SKIP("those that wait keep a page each");
  size_t before = resident_bytes();
  fill_sparsely();
  sleep_ms(1000);
  empty();
  check_that_it_falls_to(before + 4 * MIB);
}

static void change_ids(void) { CHECK(setegid(getegid()) == 0); }
static void forgo_privileges(void) { CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0); }
static void share_nothing_less(void) { (void)unshare(0); } /* a container may refuse it */

static void (*end_the_helper)(void);

static void free_then_end_the_helper(void) {
  size_t before = resident_bytes();
  fill_sparsely();
  empty();
  sleep_ms(50); /* it waits for an idle moment */
  for (int i = 0; i < 5; i++) end_the_helper();
  check_that_it_falls_to(before + 4 * MIB);
}

TEST(garbage_goes_after_a_call_for_which_the_helper_thread_ends) {
  if (freed_blocks_wait()) SKIP("those that wait keep a page each");
  void (*const calls[])(void) = {change_ids, forgo_privileges, share_nothing_less};
  for (size_t i = 0; i < COUNT_OF(calls); i++) {
    end_the_helper = calls[i];
    run_in_child(free_then_end_the_helper);
  }
}

/* A timer's work five times a second, beside holes that are too small to be given back. */
TEST(a_timer_starts_no_helper_thread_again_and_again) {
  if (&snug_counters == NULL) SKIP("a question to snug");
  fill_sparsely();
  sleep_ms(1000);
  uint64_t before = snug_counters.janitor_starts;
  for (int turn = 0; turn < 20; turn++) {
    void *some[200];
    for (size_t i = 0; i < COUNT_OF(some); i++) some[i] = memset(hidden(malloc(BLOCK_BYTES)), 1, BLOCK_BYTES);
    for (size_t i = 0; i < COUNT_OF(some); i++) free(some[i]);
    sleep_ms(200);
  }
  uint64_t starts = snug_counters.janitor_starts - before;
  CHECK_THAT(starts <= 2, "%zu starts in 4 s", (size_t)starts);
  empty();
}

enum { BURSTS = 14, BURST_BLOCKS = 5000, BURST_BYTES = 10000 };

/* Page faults of a burst of 50 MB, and an idle moment behind it that is long enough for a purge. */
static long faults_of_burst(void) {
  struct rusage before, after;
  getrusage(RUSAGE_SELF, &before);
  for (size_t i = 0; i < BURST_BLOCKS; i++) blocks[i] = memset(hidden(malloc(BURST_BYTES)), 1, BURST_BYTES);
  for (size_t i = 0; i < BURST_BLOCKS; i++) free(blocks[i]);
  sleep_ms(600);
  getrusage(RUSAGE_SELF, &after);
  return after.ru_minflt - before.ru_minflt;
}

/* What the next burst takes again is not given back each time, but as the budget allows. One purge may be late. */
TEST(bursts_soon_cost_few_page_faults) {
  if (!snug_is_active()) SKIP("a question to snug");
  if (freed_blocks_wait()) SKIP("freed blocks wait, so each burst faults in new pages");
  long pages = (long)BURST_BLOCKS * BURST_BYTES / sysconf(_SC_PAGESIZE), faults[BURSTS];
  for (int i = 0; i < BURSTS; i++) faults[i] = faults_of_burst();
  const long *last = faults + BURSTS - 3;
  int costly = (last[0] * 2 > pages) + (last[1] * 2 > pages) + (last[2] * 2 > pages);
  CHECK_THAT(costly <= 1, "%ld, %ld and %ld page faults in bursts of %ld pages", last[0], last[1], last[2], pages);
}

/* ---- threads ---- */

enum { THREADS = 300, AT_ONCE = 10, FILLINGS = 20, TURN_MS = 5, TURNS_MAX = 300, TURNS_TRIED = 2000 };

static size_t cached_bytes(void) {
  struct snug_stats stats = {0};
  snug_stats(&stats, sizeof stats);
  return stats.cached_bytes;
}

static bool fill_again; /* written while all wait */

/* Keeps what it freed for itself, and again as long as it is told. */
static void *fill_cache_and_wait(void *argument) {
  pthread_barrier_t *barrier = (pthread_barrier_t *)argument;
  void *own[AT_ONCE];
  do {
    for (size_t size_bytes = 16; size_bytes <= KIB; size_bytes += 16) {
      for (size_t i = 0; i < AT_ONCE; i++) own[i] = hidden(malloc(size_bytes));
      for (size_t i = 0; i < AT_ONCE; i++) free(own[i]);
    }
    pthread_barrier_wait(barrier);
    pthread_barrier_wait(barrier);
  } while (fill_again);
  return NULL;
}

/* Each tick looks at a slice of so many. A busy machine fills them so slowly that the first are empty before the last
 * are full; and it is turns that count, in each of which there may be a tick, since those take longer there. */
TEST(caches_of_300_idle_threads_are_emptied_while_another_works) {
  if (snug_stats == NULL) SKIP("a question to snug");
  if (freed_blocks_wait()) SKIP("no thread has a cache");
  pthread_t threads[THREADS];
  pthread_barrier_t barrier;
  pthread_barrier_init(&barrier, NULL, THREADS + 1);
  for (size_t i = 0; i < THREADS; i++) REQUIRE(pthread_create(&threads[i], NULL, fill_cache_and_wait, &barrier) == 0);
  size_t full = 0;
  fill_again = true;
  for (int filling = 0; full <= 256 * KIB && filling < FILLINGS; filling++) {
    if (filling > 0) pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    full = cached_bytes();
  }
  fill_again = false;
  size_t left = full;
  int turns = 0;
  for (; left > full / 20 && turns < TURNS_TRIED; turns++, left = cached_bytes()) {
    for (int i = 0; i < 200; i++) free(hidden(malloc(40 * KIB)));
    sleep_ms(TURN_MS);
  }
  CHECK_THAT(full > 256 * KIB, "only %zu KiB were cached", full / KIB);
  CHECK_THAT(turns <= TURNS_MAX, "%zu of %zu KiB are left after %d turns", left / KIB, full / KIB, turns);
  pthread_barrier_wait(&barrier);
  for (size_t i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  pthread_barrier_destroy(&barrier);
}

/* ---- forks ---- */

enum { RUNS = 60000, RUN_BYTES = 9 * 4096, FORKS = 4 };

static void *runs[RUNS];

static void do_nothing(void) {}

/* 1 GB of free pages in 30,000 places: the helper thread's purge of them takes a while. */
static void scatter(void) {
  for (size_t i = 0; i < RUNS; i++) {
    runs[i] = hidden(malloc(RUN_BYTES));
    REQUIRE(runs[i] != NULL);
  }
  for (size_t i = 0; i < RUNS; i += 2) memset(runs[i], 1, RUN_BYTES);
  for (size_t i = 0; i < RUNS; i += 2) {
    free(runs[i]);
    runs[i] = NULL;
  }
}

/* Ours are the first to prepare and the last in the parent, so that the library's lie between them. */
static size_t resident_at_fork, resident_after_fork;
static void before_fork(void) { resident_at_fork = resident_bytes(); }
static void after_fork(void) { resident_after_fork = resident_bytes(); }

/* What went meanwhile is the measure, as a fork takes time of its own. */
TEST(a_fork_waits_for_a_batch_of_a_purge_only) {
  if (&snug_counters == NULL) SKIP("a question to snug");
  REQUIRE(pthread_atfork(before_fork, after_fork, NULL) == 0);
  size_t worst = 0;
  for (int i = 0; i < FORKS; i++) {
    scatter();
    size_t full = resident_bytes();
    for (int ms = 0; ms < 20000 && resident_bytes() + 16 * MIB > full; ms++) sleep_ms(1); /* until it is at work */
    run_in_child(do_nothing);
    size_t gone = resident_at_fork > resident_after_fork ? resident_at_fork - resident_after_fork : 0;
    if (gone > worst) worst = gone;
    for (size_t k = 1; k < RUNS; k += 2) free(runs[k]);
  }
  CHECK_THAT(worst <= 100 * MIB, "%zu MiB went while a fork waited", worst / MIB);
  trim_heap();
}

/* The fork ends the helper thread before it had its time. */
TEST(a_parent_that_idles_after_a_fork_gives_back) {
  size_t before = resident_bytes();
  scatter();
  for (size_t k = 1; k < RUNS; k += 2) free(runs[k]);
  run_in_child(do_nothing);
  check_that_it_falls_to(before + 4 * MIB);
}

int main(int argc, char **argv) {
  if (getenv("TEST_EMULATED")) {
    test_print(1, "skip idle: the resident size is the emulator's\n");
    return 0;
  }
  return run_tests(argc, argv);
}
