/* fork_test.c: what happens around a fork: all locks are held and passed by the thread that forks, dirty pages go
 * first, the parent seals its slabs only on request and only after it has grown. (cache_test, slab_test and
 * janitor_test test what each of those does in the child; stress/fork_storm all of it at once.) */
#include "../../src/sys.c"

static size_t purge_calls;
static void (*while_it_purges)(void); /* NULL: nothing */
static bool count_purge(void *start, size_t length_bytes) {
  void (*call)(void) = while_it_purges;
  while_it_purges = NULL;
  if (call != NULL) call();
  purge_calls++;
  return sys_purge(start, length_bytes);
}
#define sys_purge count_purge
#include "above_sys.h"
#include "unit.h"

static bool is_free(struct lock *lock, enum lock_rank rank) {
  bool taken = lock_try(lock, rank);
  if (taken) lock_give(lock, rank);
  return taken;
}

static bool all_locks_are(bool wanted_free) {
  bool same = is_free(&purge.lock, RANK_PURGE) == wanted_free && is_free(&caches.lock, RANK_CACHES) == wanted_free &&
              is_free(&slabs.records_lock, RANK_RECORDS) == wanted_free &&
              is_free(&pages.lock, RANK_PAGES) == wanted_free && is_free(&large.lock, RANK_LARGE) == wanted_free &&
              is_free(&map.lock, RANK_MAP) == wanted_free;
  for (unsigned i = 1; i < CLASS_COUNT; i++) same &= is_free(&slabs.heads[0][i].lock, RANK_CLASS) == wanted_free;
  return same;
}

TEST(between_the_handlers_one_thread_has_all_locks) {
  free(malloc(1));
  CHECK(all_locks_are(true) && !lock_held_by_fork());
  prepare();
  bool seen_held = all_locks_are(false);
  bool owner = lock_held_by_fork();
  /* Another library's handler allocates: every way through the core, by the owner of the locks. */
  for (size_t size = 1; size < 8 * MIB; size *= 2) free(realloc(malloc(size), size * 2));
  free(memalign(2 * MIB, 100));
  bool still_held = lock_held_by_fork() && all_locks_are(false);
  parent();
  CHECK(seen_held && owner && still_held && !lock_held_by_fork() && all_locks_are(true));
  snug_check();
}

static void be_a_child(void) {
  CHECK(all_locks_are(true) && !lock_held_by_fork() && !janitor_is_running());
  CHECK(snug_counters.pid == (uint32_t)getpid());
  for (size_t size = 1; size < 8 * MIB; size *= 2) free(malloc(size));
  snug_check();
}

TEST(a_child_begins_with_free_locks) {
  uint64_t forks = snug_counters.forks;
  run_in_child(be_a_child);
  CHECK(snug_counters.forks == forks + 1 && all_locks_are(true));
}

static void go_on_as_a_child(void) {
  lock_give(&pages.lock, RANK_PAGES); /* where the thread was interrupted */
  cache_slow_path_ends();
  be_a_child();
}

/* As a handler finds its thread that it interrupted under a lock. */
TEST(a_fork_under_a_lock_goes_on_without_it) {
  free(malloc(1));
  uint16_t epoch = slabs.epoch;
  fork_seal_parent_next();
  cache_slow_path_begins();
  lock_take(&pages.lock, RANK_PAGES);
  run_in_child(go_on_as_a_child);
  CHECK(!is_free(&pages.lock, RANK_PAGES) && is_free(&large.lock, RANK_LARGE) && is_free(&map.lock, RANK_MAP));
  CHECK_THAT(slabs.epoch == epoch, "slabs were sealed, which might have been changing");
  lock_give(&pages.lock, RANK_PAGES);
  cache_slow_path_ends();
  CHECK(all_locks_are(true) && seal_parent); /* it is put off */
  seal_parent = false;
}

/* ---- memory ---- */

static void make_dirty(size_t count);

/* Takes away what the budget had earned, too: it is more where the tests before took longer. */
static void purge_only_by_request(void) {
  options.purge_cpu_percent = options.background = 0;
  purge.tokens_ns = 0;
}

/* A handler, where signals may not be blocked, and under one of the locks. */
static void fork_under_a_lock(void) {
  lock_take(&pages.lock, RANK_PAGES);
  pid_t child = fork();
  if (child == 0) _exit(0);
  CHECK(child > 0 && waitpid(child, NULL, 0) == child);
  lock_give(&pages.lock, RANK_PAGES);
}

static void fork_within_a_fork(void) {
  alarm(20);
  purge_only_by_request();
  rights.had = RIGHT_FILES;
  make_dirty(500);
  CHECK(pages_dirty() > PURGE_BEFORE_FORK_PAGES);
  while_it_purges = fork_under_a_lock;
  run_in_child(be_a_child);
  CHECK(while_it_purges == NULL && all_locks_are(true) && !lock_passes_over() && depth == 0);
  fork_seal_parent_next();
  prepare();
  CHECK(!lock_passes_over() && lock_held_by_fork());
  parent();
}

/* The second one interrupts the first one's prepare, which has skipped a lock of its thread's and has others. */
static void end_the_outer_fork(void) {
  parent();
  go_on_as_a_child();
}

static void fork_within_a_fork_that_skips_locks(void) {
  alarm(20);
  rights.had = RIGHT_FILES;
  cache_slow_path_begins();
  lock_take(&pages.lock, RANK_PAGES);
  prepare();
  CHECK(lock_passes_over() && purge.lock.state != 0);
  prepare();
  parent();
  CHECK(lock_passes_over());
  CHECK_THAT(purge.lock.state != 0 && pages.lock.state != 0, "what the first one took was given");
  run_in_child(end_the_outer_fork);
  CHECK(lock_passes_over() && purge.lock.state != 0);
  parent();
  CHECK(!lock_passes_over() && depth == 0 && purge.lock.state == 0 && pages.lock.state != 0);
  lock_give(&pages.lock, RANK_PAGES);
  cache_slow_path_ends();
  CHECK(all_locks_are(true));
}

TEST(a_fork_from_a_handler_in_a_fork_that_skips_locks_goes_on) { run_in_child(fork_within_a_fork_that_skips_locks); }

TEST(a_fork_from_a_handler_in_a_fork_goes_on) { run_in_child(fork_within_a_fork); }

static void make_dirty(size_t count) {
  static void *runs[600];
  REQUIRE(count <= COUNT_OF(runs));
  for (size_t i = 0; i < count; i++) runs[i] = memset(malloc(40 * KIB), 1, 40 * KIB);
  for (size_t i = 0; i < count; i++) free(runs[i]);
}

/* Each is found elsewhere: outside the heap, at the door of a cache, under the lock of a class, in the
 * middle of a batch. */
static void *block_to_misuse;

static void free_no_block(void) {
  static char no_block[64];
  free(hidden(no_block + 32));
}

static void free_inside(void) { free(hidden((char *)block_to_misuse + 16)); }

static void give_twice(void) {
  void *blocks[] = {block_to_misuse, block_to_misuse};
  slab_give(blocks, 2);
}

static void give_inside(void) {
  void *inside = (char *)block_to_misuse + 16;
  slab_give(&inside, 1);
}

enum { LIVE = 100 };
static void *live[2 * LIVE];

/* By the cache, whose bin is open, so that it shows when a batch goes back. */
static void flush_inside(void) {
  free(hidden((char *)live[0] + 16));
  cache_empty_own();
}

/* The same, as the thread moves to another arena. */
static void move_inside(void) {
  arena_set_cpus(2);
  arena_join(0);
  arena_join(0);
  free(hidden((char *)live[0] + 16));
  this_thread.own->slow_calls = CONTENTION_PERIOD - 1;
  this_thread.own->contentions = CONTENTION_LIMIT;
  free(malloc(8192));
}

static void (*misuse)(void);

static void go_on_after_abort(int signal) {
  (void)signal;
  for (;;) pause();
}

/* What it holds is its parent's, and so are the thread's variables; its handlers may run forever. */
static void die_of_misuse_after_vfork(void) {
  int status = 0;
  signal(SIGABRT, go_on_after_abort);
  alarm(20);
  for (size_t i = 0; i < LIVE; i++) live[i] = malloc(48);
  for (size_t i = 0; i < LIVE; i++) free(live[i]); /* into an open bin */
  for (size_t i = 0; i < LIVE / 2; i++) live[i] = malloc(48);
  pid_t child = vfork();
  if (child == 0) {
    close(2);
    misuse();
    _exit(0);
  }
  REQUIRE(child > 0 && waitpid(child, &status, 0) == child);
  CHECK_THAT(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT, "status 0x%x", (unsigned)status);
  CHECK(!cache_thread_is_inside() && this_thread.door->busy == 0 && lock_all_owner == NULL && all_locks_are(true));
  CHECK(!this_thread.own->changing);
  for (size_t i = LIVE / 2; i < 2 * LIVE; i++) live[i] = malloc(48);
  size_t twice = 0;
  for (size_t i = 0; i < 2 * LIVE; i++)
    for (size_t j = 0; j < i; j++) twice += live[i] == live[j];
  CHECK_THAT(twice == 0, "%zu blocks were given out twice", twice);
  for (size_t i = 0; i < 2 * LIVE; i++) free(live[i]);
  cache_empty_own();
}

static void die_of_each_misuse(void (*die)(void)) {
  void (*const all[])(void) = {free_no_block, free_inside, give_twice, give_inside, flush_inside, move_inside};
  if (is_emulated()) SKIP("the emulator makes a fork of each vfork");
  for (size_t i = 0; i < COUNT_OF(all); i++) {
    block_to_misuse = malloc(100);
    misuse = all[i];
    run_in_child(die);
  }
}

TEST(a_child_of_vfork_that_dies_of_misuse_leaves_what_is_its_parents) { die_of_each_misuse(die_of_misuse_after_vfork); }

static void enter_a_sandbox_and_die_of_misuse(void) {
  rights_end();
  die_of_misuse_after_vfork();
}

TEST(a_child_of_vfork_that_dies_of_misuse_in_a_sandbox_leaves_what_is_its_parents) {
  die_of_each_misuse(enter_a_sandbox_and_die_of_misuse);
}

TEST(much_that_is_dirty_goes_before_a_fork_little_stays) {
  purge_only_by_request();
  snug_purge();
  make_dirty(10);
  size_t little = pages_dirty();
  CHECK_THAT(little != 0 && little <= PURGE_BEFORE_FORK_PAGES, "%zu dirty pages", little);
  prepare();
  size_t after = pages_dirty();
  parent();
  CHECK_THAT(after == little, "%zu of %zu dirty pages", after, little);
  make_dirty(500);
  CHECK(pages_dirty() > PURGE_BEFORE_FORK_PAGES);
  prepare();
  after = pages_dirty();
  parent();
  CHECK_THAT(after * PAGE_BYTES < zone.page_bytes * 16, "%zu dirty pages", after);
}

/* Of scattered pages each costs a system call: only a few go while the program waits. */
TEST(a_fork_purges_no_longer_than_some_milliseconds) {
  purge_only_by_request();
  snug_purge();
  enum { COUNT = 1200, BYTES = 40 * PAGE_BYTES };
  static void *runs[COUNT];
  for (size_t i = 0; i < COUNT; i++) runs[i] = memset(malloc(BYTES), 1, BYTES);
  for (size_t i = 0; i < COUNT; i += 2) free(runs[i]);
  purge_calls = 0;
  prepare();
  size_t calls = purge_calls;
  parent();
  CHECK_THAT(calls > 0 && calls <= BATCHES_BEFORE_FORK * PURGE_BATCH, "%zu calls", calls);
  CHECK(pages_dirty() != 0 && !is_purging_stopped());
  for (size_t i = 1; i < COUNT; i += 2) free(runs[i]);
  snug_purge();
  CHECK(pages_dirty() * PAGE_BYTES < zone.page_bytes * 16);
}

TEST(a_parent_seals_on_request_once_and_when_it_has_grown) {
  void *some = malloc(100 * PAGE_BYTES); /* a heap of which a quarter is more than a page */
  uint16_t epoch = slabs.epoch;
  prepare();
  parent();
  CHECK(slabs.epoch == epoch);
  fork_seal_parent_next();
  prepare();
  parent();
  CHECK(slabs.epoch == epoch + 1);
  prepare();
  parent();
  CHECK(slabs.epoch == epoch + 1); /* once */
  fork_seal_parent_next();
  prepare();
  parent();
  CHECK(slabs.epoch == epoch + 1); /* not grown since */
  size_t used = pages_used(), count = used / 64 + 100;
  void **more = malloc(count * sizeof *more);
  for (size_t i = 0; i < count; i++) more[i] = malloc(100 * PAGE_BYTES);
  CHECK(pages_used() > used + used / 4);
  fork_seal_parent_next();
  prepare();
  parent();
  CHECK(slabs.epoch == epoch + 2);
  for (size_t i = 0; i < count; i++) free(more[i]);
  free(more);
  free(some);
  snug_check();
}

/* Of the tool. Returns what the answer will be to. */
static uint64_t ask_for_a_purge(uint64_t from) {
  uint64_t words = SNUG_REQUEST_PURGE, check = snug_request_check(words, from, snug_counters.pid);
  snug_counters.request = words;
  snug_counters.request_from = from;
  counter_set(&snug_counters.request_check, check);
  return check;
}

static bool is_answered(uint64_t check) {
  for (int i = 0; i < 3000 && __atomic_load_n(&snug_counters.answer_to, __ATOMIC_ACQUIRE) != check; i++) sleep_ms(1);
  return counter_get(&snug_counters.answer_to) == check;
}

/* Nothing may be left that is worth a janitor, and this thread may wait for its child from now on. */
TEST(a_janitor_that_a_request_waits_for_starts_again) {
  options.background = 0;
  snug_purge();
  CHECK(!purge_janitor_is_worth());
  options.background = 1;
  janitor_start();
  uint64_t check = ask_for_a_purge(4711);
  prepare();
  parent();
  CHECK(is_answered(check) && snug_counters.answer >> 8 < 1 * MIB);
  uint64_t starts = snug_counters.janitor_starts;
  prepare();
  parent();
  CHECK_THAT(snug_counters.janitor_starts == starts, "started again for what was answered");
  options.background = 0;
}

static bool second_may_begin; /* atomic */

static void *fork_second(void *argument) {
  while (!__atomic_load_n(&second_may_begin, __ATOMIC_ACQUIRE)) sleep_ms(1);
  prepare();
  parent();
  return argument;
}

/* The second begins while the janitor is ended for the first, and ends the one that starts after that. */
TEST(a_janitor_that_a_request_waits_for_starts_again_after_two_forks_at_once) {
  pthread_t thread;
  options.background = 1;
  for (uint64_t turn = 0; turn < 5; turn++) {
    __atomic_store_n(&second_may_begin, false, __ATOMIC_RELAXED);
    REQUIRE(pthread_create(&thread, NULL, fork_second, NULL) == 0);
    janitor_start();
    uint64_t check = ask_for_a_purge(turn + 1);
    prepare();
    __atomic_store_n(&second_may_begin, true, __ATOMIC_RELEASE);
    sleep_ms(20); /* now it waits for this one */
    parent();
    pthread_join(thread, NULL);
    CHECK_THAT(is_answered(check), "not in turn %d", (int)turn);
  }
  options.background = 0;
}
