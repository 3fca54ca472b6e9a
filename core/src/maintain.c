#include "maintain.h"

#include "arena.h"
#include "control.h"
#include "counters.h"
#include "janitor.h"
#include "rights.h"
#include "sys.h"
#include "tick.h"

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
static bool is_worth_between_ticks(void) {
  return arena_count() > 1 ? purge_janitor_may_be_worth() : purge_janitor_is_worth();
}

void maintain_start_janitor(void) {
  if (!janitor_watches()) janitor_start();
}

void maintain_look_for_janitor(void) {
  purge_looked();
  if (!janitor_watches() && is_worth_between_ticks()) janitor_start();
}

/* Its threads are gone but the one that made it; which locks they held nobody knows. */
void maintain_claim_copy(void) {
  if (likely(!rights_is_copy())) return;
  cache_after_copy(); /* while nobody empties caches yet */
  if (!rights_claim_copy()) return;
  snug_counters.pid = rights_own_memory();
  janitor_forget();
  control_after_fork();
}

void maintain_look_at_clock(const struct cache *own, uint32_t weight) {
  maintain_claim_copy();
  control_look(own);
  bool ticked = tick_if_due(own, true);
  void (*after_tick)(void) = __atomic_load_n(&maintain_after_tick, __ATOMIC_RELAXED);
  if (ticked && after_tick != NULL) after_tick();
  janitor_replace_if_old();
  if (janitor_watches() || (!ticked && judged_just_now(weight))) return;
  if (ticked ? purge_janitor_is_worth() : is_worth_between_ticks()) janitor_start();
}

void (*maintain_after_tick)(void);

static void after_thread(void) { maintain(1); }

void maintain_start(void) { cache_after_thread = after_thread; }

size_t maintain_give_all_back(void) {
  if (cache_thread_is_inside()) return 0; /* K5 */
  cache_slow_path_begins();
  cache_empty_own();
  size_t bytes = purge_all(this_thread.own);
  cache_slow_path_ends();
  return bytes;
}
