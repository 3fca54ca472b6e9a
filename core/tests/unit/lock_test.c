/* lock_test.c: mutual exclusion, trying, the owner inside fork(), and the ranks. */
#include "../../src/sys.c"
#include "../../src/fatal.c"
#include "../../src/rights.c"
#include "../../src/lock.c"
#include "unit.h"

#include <pthread.h>

enum { THREADS = 4, ROUNDS = 20000 };

static struct lock first, second;
static uint64_t guarded[2]; /* equal whenever the lock is free */
static uint64_t found_held;

static void *count_under_lock(void *argument) {
  (void)argument;
  uint64_t contended = 0;
  for (int i = 0; i < ROUNDS; i++) {
    if (i % 8 == 0 && lock_try(&first, RANK_PAGES)) {
      guarded[0]++;
      guarded[1]++;
      lock_give(&first, RANK_PAGES);
      continue;
    }
    contended += lock_take(&first, RANK_PAGES);
    CHECK_THAT(guarded[0] == guarded[1], "%llu and %llu", (unsigned long long)guarded[0],
               (unsigned long long)guarded[1]);
    guarded[0]++;
    if (i % 64 == 1) sched_yield(); /* others come and sleep */
    guarded[1]++;
    lock_give(&first, RANK_PAGES);
  }
  __atomic_fetch_add(&found_held, contended, __ATOMIC_RELAXED);
  return NULL;
}

TEST(one_thread_at_a_time) {
  pthread_t threads[THREADS];
  for (int i = 0; i < THREADS; i++) REQUIRE(pthread_create(&threads[i], NULL, count_under_lock, NULL) == 0);
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  CHECK_THAT(guarded[0] == (uint64_t)THREADS * ROUNDS, "%llu increments", (unsigned long long)guarded[0]);
  CHECK(guarded[0] == guarded[1] && first.state == 0);
  CHECK_THAT(found_held > 0, "with %d threads no lock was ever found held", THREADS);
}

TEST(a_held_lock_is_not_had_by_trying) {
  CHECK(lock_try(&first, RANK_PAGES));
  CHECK(!lock_try(&first, RANK_PAGES));
  lock_give(&first, RANK_PAGES);
  CHECK(!lock_take(&first, RANK_PAGES)); /* false: nobody held it */
  lock_give(&first, RANK_PAGES);
}

static uint32_t passed;

static void *take_and_note(void *argument) {
  (void)argument;
  bool contended = lock_take(&first, RANK_PAGES);
  __atomic_store_n(&passed, contended ? 2 : 1, __ATOMIC_RELEASE);
  lock_give(&first, RANK_PAGES);
  return NULL;
}

/* Sleeps in the kernel until the lock is given: a busy wait would show as CPU time. */
TEST(a_waiting_thread_sleeps_and_is_woken) {
  pthread_t thread;
  passed = 0;
  uint64_t before = lock_waits;
  lock_take(&first, RANK_PAGES);
  REQUIRE(pthread_create(&thread, NULL, take_and_note, NULL) == 0);
  for (int i = 0; i < 2000 && __atomic_load_n(&lock_waits, __ATOMIC_RELAXED) == before; i++) sleep_ms(1);
  CHECK(lock_waits >= before + 1 && __atomic_load_n(&passed, __ATOMIC_ACQUIRE) == 0);
  lock_give(&first, RANK_PAGES);
  pthread_join(thread, NULL);
  CHECK(passed == 2 && first.state == 0);
}

static void mark_owner(bool inside) { lock_all_owner = inside ? lock_self() : NULL; }

/* K3: the thread inside fork() holds every lock and comes by again; others wait. */
TEST(the_owner_inside_fork_passes_and_others_wait) {
  pthread_t thread;
  passed = 0;
  lock_take(&first, RANK_PAGES);
  lock_take(&second, RANK_MAP);
  mark_owner(true);
  REQUIRE(pthread_create(&thread, NULL, take_and_note, NULL) == 0);
  CHECK(!lock_take(&first, RANK_PAGES)); /* a plain second take would wait forever */
  lock_give(&first, RANK_PAGES);
  CHECK_THAT(first.state != 0, "the inner give opened the lock");
  sleep_ms(20);
  CHECK(__atomic_load_n(&passed, __ATOMIC_ACQUIRE) == 0);
  mark_owner(false);
  lock_give(&second, RANK_MAP);
  lock_give(&first, RANK_PAGES);
  pthread_join(thread, NULL);
  CHECK(passed != 0);
}

static void *take_and_keep(void *argument) {
  (void)argument;
  lock_take(&second, RANK_MAP);
  __atomic_store_n(&passed, 1, __ATOMIC_RELEASE);
  while (__atomic_load_n(&passed, __ATOMIC_ACQUIRE) == 1) sched_yield();
  lock_give(&second, RANK_MAP);
  return NULL;
}

/* K4: a handler that forks, in a thread that holds the first lock; another thread holds the second. */
TEST(a_fork_that_may_be_in_its_own_way_passes_over_what_it_cannot_have) {
  static struct lock third;
  pthread_t thread;
  passed = 0;
  lock_take(&first, RANK_PAGES);
  REQUIRE(pthread_create(&thread, NULL, take_and_keep, NULL) == 0);
  while (__atomic_load_n(&passed, __ATOMIC_ACQUIRE) == 0) sched_yield();
  lock_pass_over(true);
  lock_take_in_fork(&first, RANK_PAGES);
  lock_take_in_fork(&second, RANK_MAP);
  lock_take_in_fork(&third, RANK_MAP);
  CHECK_THAT(third.state == 1, "a free lock was skipped");
  lock_give_in_fork(&third, RANK_MAP);
  lock_give_in_fork(&second, RANK_MAP);
  lock_give_in_fork(&first, RANK_PAGES);
  CHECK(third.state == 0);
  CHECK_THAT(first.state != 0 && second.state != 0, "what is held by others, or below the handler, was opened");
  lock_pass_over(false);
  __atomic_store_n(&passed, 2, __ATOMIC_RELEASE);
  pthread_join(thread, NULL);
  lock_give(&first, RANK_PAGES);
  CHECK(first.state == 0 && second.state == 0);
}

/* K4: the same, in a thread that is in another fork, or in a call for which it holds the lock as fork does. */
TEST(a_fork_within_a_fork_gives_nothing_that_the_outer_one_took) {
  lock_take_in_fork(&first, RANK_PAGES);
  lock_pass_over(true);
  CHECK(!lock_take_in_fork(&first, RANK_PAGES) && !lock_had_in_fork(&first));
  lock_give_in_fork(&first, RANK_PAGES);
  CHECK_THAT(first.state != 0, "what the outer one took was opened");
  lock_pass_over(false);
  CHECK(lock_had_in_fork(&first));
  lock_give_in_fork(&first, RANK_PAGES);
  CHECK(first.state == 0);
}

TEST(reset_opens_the_lock_in_a_child) {
  lock_take(&first, RANK_PAGES);
  lock_reset(&first);
  CHECK(lock_try(&first, RANK_PAGES));
  lock_reset(&first);
  if (SNUG_DEBUG) {
    lock_debug_give(RANK_PAGES); /* the two takes above */
    lock_debug_give(RANK_PAGES);
  }
}

static void take_against_the_ranks(void) {
  lock_take(&first, RANK_MAP);
  lock_take(&second, RANK_PURGE);
}

static void give_what_is_not_held(void) { lock_give(&first, RANK_PAGES); }

TEST(debug_builds_assert_the_ranks) {
  if (!SNUG_DEBUG) SKIP("needs SNUG_DEBUG");
  check_dies(take_against_the_ranks, "assertion failed: ");
  check_dies(give_what_is_not_held, "assertion failed: ");
}
