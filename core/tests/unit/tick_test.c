/* tick_test.c: when ticks come, and what they do. */
#include "purging.h"

TEST(near_the_containers_limit_all_goes_whatever_it_costs) {
  start_again(0);
  make_dirty(512);
  uint64_t limit_purges = snug_counters.limit_purges;
  memory_current = "95000000\n";
  for (int i = 0; i < SLOW_TICKS + 1; i++) {
    now_ns += TICK_NS;
    tick_now(this_thread.own, true);
  }
  CHECK(purge.near_limit && snug_counters.limit_purges > limit_purges);
  CHECK_THAT(pages_dirty() <= CAP_SMALL_PAGES, "%zu dirty pages", pages_dirty());
  memory_current = "50000000\n";
  for (int i = 0; i < SLOW_TICKS; i++) tick_now(this_thread.own, true);
  CHECK(!purge.near_limit);
}

TEST(slow_paths_bring_ticks_when_it_is_time) {
  start_again(2);
  uint64_t before = snug_counters.ticks;
  tick_if_due(this_thread.own, true);
  CHECK(snug_counters.ticks == before);
  now_ns += TICK_NS;
  for (int i = 0; i < MAINTAIN_PERIOD; i++) free(malloc(100 * KIB));
  CHECK_THAT(snug_counters.ticks == before + 1, "%zu ticks", (size_t)(snug_counters.ticks - before));
}

/* Slabs of large classes: ticks give their pages back, once they are left alone. */
TEST(ticks_purge_pages_inside_slabs) {
  start_again(100);
  enum { COUNT = 70 };
  void *blocks[COUNT];
  for (size_t i = 0; i < COUNT; i++) blocks[i] = memset(malloc(32768), 1, 32768);
  for (size_t i = 0; i < COUNT; i++) {
    if (i % 7 != 0) free(blocks[i]);
  }
  cache_empty_own();
  uint64_t purged = snug_counters.slab_purged_bytes;
  for (int i = 0; i < 4; i++) {
    now_ns += TICK_NS;
    tick_now(this_thread.own, true);
  }
  CHECK_THAT(snug_counters.slab_purged_bytes > purged + COUNT / 2 * 32768, "%zu bytes",
             (size_t)(snug_counters.slab_purged_bytes - purged));
  for (size_t i = 0; i < COUNT; i += 7) free(blocks[i]);
  snug_check();
}

TEST(a_look_that_lags_behind_a_tick_brings_no_other_one) {
  start_again(2);
  uint64_t before = snug_counters.ticks;
  __atomic_store_n(&ticks.at_ns, now_ns + 4 * MILLISECOND, __ATOMIC_RELAXED); /* by another thread, just now */
  CHECK(!tick_if_due(this_thread.own, true) && snug_counters.ticks == before);
}
