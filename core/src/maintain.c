#include "maintain.h"

#include "control.h"
#include "counters.h"
#include "janitor.h"
#include "sys.h"

enum { UNJUDGED_MIN_BYTES = 4 << 20 }; /* a heap from this size on may have something to give back */

/* Big blocks come here at every fourth call, and change no slab: between ticks they judge once per tick of the coarse
 * clock. */
static bool judged_just_now(uint32_t weight) {
  static uint64_t judged_at_ns; /* atomic */
  if (weight != MAINTAIN_BIG_BLOCK) return false;
  uint64_t now = sys_coarse_time_ns(), last = __atomic_load_n(&judged_at_ns, __ATOMIC_RELAXED);
  __atomic_store_n(&judged_at_ns, now, __ATOMIC_RELAXED);
  return last == now;
}

/* Between ticks, with several arenas, the janitor is left to find out: the rows it judges by lie in other CPUs' caches.
 */
static bool janitor_may_be_worth(uint32_t weight) {
  bool several = __atomic_load_n(&snug_counters.arena_count, __ATOMIC_RELAXED) > 1;
  if (several) return pages_used() * PAGE_BYTES > UNJUDGED_MIN_BYTES;
  return !judged_just_now(weight) && purge_janitor_is_worth();
}

void maintain_start_janitor(void) {
  if (!janitor_is_running()) janitor_start();
}

void maintain_look_at_clock(const struct cache *own, uint32_t weight) {
  control_look(own);
  bool ticked = purge_tick_if_due(own, true);
  if (!janitor_is_running() && (ticked ? purge_janitor_is_worth() : janitor_may_be_worth(weight))) janitor_start();
}
