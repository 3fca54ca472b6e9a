/* arena_test.c: how many arenas threads may spread over, who uses them, and the one for guarded blocks. */
#include "../../src/sys.c"
#include "../../src/fatal.c"
#include "../../src/rights.c"
#include "../../src/lock.c"
#include "../../src/options.c"
#include "../../src/arena.c"
#include "unit.h"

struct snug_counters snug_counters; /* stats.c has the real one */

static void start_again(void) {
  memset(&arenas, 0, sizeof arenas);
  options.arenas_max = 0;
  arena_init();
}

TEST(there_is_one_before_anybody_joins) {
  memset(&arenas, 0, sizeof arenas);
  snug_counters.arena_count = 0;
  CHECK(arena_count() == 0 && arena_reserve() == 0); /* no slabs could be had */
  start_again();
  CHECK(arena_count() == 1 && snug_counters.arena_count == 1 && arena_users(0) == 0);
}

TEST(fewer_arenas_by_option_are_not_fewer_cpus) {
  start_again();
  CHECK(arena_cpus() == 0 && arena_allowed() == 0); /* not asked yet */
  arena_set_cpus(8);
  CHECK(arena_cpus() == 8 && arena_allowed() == 8);
  options.arenas_max = 1;
  CHECK(arena_cpus() == 8 && arena_allowed() == 1);
  options.arenas_max = 64; /* at most: that adds no CPU */
  CHECK(arena_cpus() == 8 && arena_allowed() == 8);
  options.arenas_max = 0;
  arena_set_cpus(1000);
  CHECK(arena_cpus() == 1000 && arena_allowed() == ARENA_MAX - ARENA_RESERVED_MAX);
}

TEST(the_least_used_arena_is_the_lowest_of_the_emptiest) {
  start_again();
  arena_set_cpus(3);
  CHECK(arena_least_used() == 0);
  arena_join(0);
  CHECK(arena_least_used() == 1 && arena_count() == 1); /* A2: it has had no users */
  arena_join(1);
  arena_join(2);
  arena_join(2);
  CHECK(arena_least_used() == 0 && arena_count() == 3 && snug_counters.arena_count == 3);
  arena_leave(2);
  arena_leave(2);
  CHECK(arena_least_used() == 2 && arena_count() == 3);
  options.arenas_max = 2;
  arena_join(0);
  CHECK(arena_least_used() == 1);
}

TEST(the_reserved_arena_is_a_new_one_and_used_for_ever) {
  start_again();
  arena_join(0);
  CHECK(!arena_is_reserved(0) && !arena_is_reserved(1));
  CHECK(arena_reserve() == 1 && arena_is_reserved(1) && !arena_is_reserved(0));
  CHECK(arena_users(1) == 1 && arena_count() == 2);
  start_again();
  arena_join(ARENA_MAX - 1);
  CHECK(arena_reserve() == 0);
}
