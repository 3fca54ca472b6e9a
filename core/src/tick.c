#include "tick.h"

#include "arena.h"
#include "cgroup.h"
#include "counters.h"
#include "gauges.h"
#include "large.h"
#include "pages.h"
#include "purge.h"
#include "rights.h"
#include "slab.h"
#include "slab_join.h"
#include "slab_purge.h"
#include "steal.h"
#include "sys.h"

enum {
  SLOW_TICKS = 10,              /* every tenth tick also looks at small classes */
  TICK_RECORDS = 8192,          /* slabs looked at per tick, or */
  TICK_SHARE = 64,              /* this part of all: a large heap in six seconds or so, small classes in a minute */
  PAGES_CLASS_MIN_BYTES = 2048, /* classes whose free slots often span whole pages */
  IDLE_TICKS = 2,               /* caches whose owners were away for so many are emptied */
};

#define TICK_NS UINT64_C(100000000)
#define SHORT_NS UINT64_C(10000000) /* by so much it may seem shorter: a step of the coarse clock, 10 ms at most */
#define PAUSE_NS (2 * TICK_NS)      /* without one: the program paused */
#define CLOCK_BACK_NS TICK_NS       /* by so much it went back; another thread's look may be a little later */
#define CONTAINER_NS (10 * TICK_NS) /* whether there is a limit, or still the same */
#define LIMITS_NS (600 * TICK_NS)   /* how many CPUs there are, and where the memory limit is */

static struct {
  uint64_t at_ns;           /* atomic: the last one */
  uint32_t count;           /* purge lock */
  bool spared;              /* the same: the last one purged nothing, as a pause had ended */
  uint64_t container_at_ns; /* the same */
  uint64_t limits_at_ns;    /* the same */
  uint64_t looked_at_ns;    /* atomic: when files were last opened, or could have been */
  bool has_limit;           /* atomic: the container has a memory limit */
} ticks;

/* Whether period_ns has passed since the last time, 0: never yet. A clock that went back counts as that: a process
 * that was restored on a machine that has run for less would wait for as long as the first one had run. */
static bool has_passed(uint64_t last_ns, uint64_t now, uint64_t period_ns) {
  return last_ns == 0 || now >= last_ns + period_ns || now + CLOCK_BACK_NS < last_ns;
}

/* The same of *last_ns, which then is now. */
static bool is_time(uint64_t *last_ns, uint64_t now, uint64_t period_ns) {
  if (!has_passed(*last_ns, now, period_ns)) return false;
  *last_ns = now;
  return true;
}

/* The container: how many CPUs, and whether its memory is nearly full. By the clock, as not all ticks may open files.
 * What can't be read stays what it was until the next look, a minute later. The purge lock is held. */
static void look_at_container(uint64_t now) {
  __atomic_store_n(&ticks.looked_at_ns, now, __ATOMIC_RELAXED);
  if (!rights_have(RIGHT_FILES)) return;
  purge_find_huge_pages();
  bool slow = is_time(&ticks.container_at_ns, now, CONTAINER_NS);
  if (is_time(&ticks.limits_at_ns, now, LIMITS_NS)) {
    uint32_t cpus = rights_allowed_cpus(), quota = cgroup_cpus();
    arena_set_cpus(quota != 0 && quota < cpus ? quota : cpus);
    cgroup_search_memory_limit(); /* there may be a tighter one, or the process was moved */
  }
  if (slow || cgroup_has_memory_limit()) purge_look_at_limit(slow);
  __atomic_store_n(&ticks.has_limit, cgroup_has_memory_limit(), __ATOMIC_RELAXED);
}

bool tick_janitor_needs_files(void) { return __atomic_load_n(&ticks.has_limit, __ATOMIC_RELAXED); }

/* A program that goes on after a pause is about to take again what it freed before: that goes at the next tick, if it
 * is still free then. */
static bool spares(uint64_t last_ns, uint64_t now) {
  ticks.spared = !ticks.spared && has_passed(last_ns, now, PAUSE_NS) && purge_may_wait();
  return ticks.spared;
}

static size_t records_to_look_at(void) {
  size_t share = slab_record_count() / TICK_SHARE;
  return share > TICK_RECORDS ? share : TICK_RECORDS;
}

void tick_now(const struct cache *own, bool may_open_files) {
  if (!purge_try_lock()) return;
  uint64_t now = sys_coarse_time_ns(), last = __atomic_exchange_n(&ticks.at_ns, now, __ATOMIC_RELAXED);
  counter_bump(&snug_counters.ticks, 1);
  bool slow = ticks.count++ % SLOW_TICKS == 0;
  if (may_open_files) look_at_container(now);
  if (!rights_have(RIGHT_FILES)) purge_forget_limit();
  purge_look_at_huge_pages();
  slab_tick();
  slab_join_tick();
  cache_tick();
  steal_caches(IDLE_TICKS, own);
  bool is_swept = purge_if_limit_is_near(own), is_spared = spares(last, now);
  if (!is_swept && !is_spared) purge_slabs(slow ? 0 : PAGES_CLASS_MIN_BYTES, records_to_look_at());
  purge_above_cap(is_spared);
  pages_shrink_in_part();
  large_retry_unmaps();
  pages_age();
  large_age();
  purge_looked();
  gauges_refresh(false);
  purge_unlock();
}

/* Where the ticks are a janitor's that opens no files. A limit that is near waits for none of them. */
static void look_if_due(const struct cache *own, uint64_t now) {
  uint64_t last = __atomic_load_n(&ticks.looked_at_ns, __ATOMIC_RELAXED);
  if (!has_passed(last, now, TICK_NS) || !purge_try_lock()) return;
  look_at_container(now);
  purge_if_limit_is_near(own);
  purge_unlock();
}

bool tick_if_due(const struct cache *own, bool may_open_files) {
  uint64_t now = sys_coarse_time_ns(), last = __atomic_load_n(&ticks.at_ns, __ATOMIC_RELAXED);
  if (last == 0) { /* short programs never tick */
    __atomic_store_n(&ticks.at_ns, now, __ATOMIC_RELAXED);
    __atomic_store_n(&ticks.looked_at_ns, now, __ATOMIC_RELAXED);
    return false;
  }
  if (has_passed(last, now, TICK_NS - SHORT_NS)) {
    tick_now(own, may_open_files);
    return true;
  }
  if (may_open_files) look_if_due(own, now);
  return false;
}
