#include "maintain.h"

#include "counters.h"
#include "janitor.h"

enum { UNJUDGED_MIN_BYTES = 4 << 20 }; /* a heap from this size on may have something to give back */

/* Between ticks, with several arenas, the janitor is left to find out: the rows it judges by lie in other CPUs' caches.
 */
static bool janitor_may_be_worth(void) {
  bool several = __atomic_load_n(&snug_counters.arena_count, __ATOMIC_RELAXED) > 1;
  return several ? pages_used() * PAGE_BYTES > UNJUDGED_MIN_BYTES : purge_janitor_is_worth();
}

void maintain_look_at_clock(const struct cache *own) {
  bool ticked = purge_tick_if_due(own, true);
  if (!janitor_is_running() && (ticked ? purge_janitor_is_worth() : janitor_may_be_worth())) janitor_start();
}
