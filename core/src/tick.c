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
  SLOW_TICKS = 10,              /* every tenth tick also looks at small classes and at the container */
  LIMITS_SLOW_TICKS = 60,       /* once a minute: how many CPUs there are, and where the memory limit is */
  TICK_RECORDS = 8192,          /* slabs looked at per tick, or */
  TICK_SHARE = 64,              /* this part of all: a large heap is looked at in six seconds or so */
  PAGES_CLASS_MIN_BYTES = 2048, /* classes whose free slots often span whole pages */
  IDLE_TICKS = 2,               /* caches whose owners were away for so many are emptied */
};

#define TICK_NS UINT64_C(100000000)

static struct {
  uint64_t at_ns;      /* atomic: the last one */
  uint32_t count;      /* purge lock */
  uint32_t slow_count; /* purge lock */
} ticks;

/* The container: how many CPUs, and whether its memory is nearly full. The purge lock is held. */
static void look_at_container(bool slow) {
  if (slow && ticks.slow_count++ % LIMITS_SLOW_TICKS == 0) {
    uint32_t cpus = rights_allowed_cpus(), quota = cgroup_cpus();
    arena_set_cpus(quota != 0 && quota < cpus ? quota : cpus);
    cgroup_forget_memory_limit(); /* it may have been changed, or the process moved */
  }
  if (slow || cgroup_has_memory_limit()) purge_look_at_limit();
}

static size_t records_to_look_at(void) {
  size_t share = slab_record_count() / TICK_SHARE;
  return share > TICK_RECORDS ? share : TICK_RECORDS;
}

void tick_now(const struct cache *own, bool may_open_files) {
  if (!purge_try_lock()) return;
  __atomic_store_n(&ticks.at_ns, sys_coarse_time_ns(), __ATOMIC_RELAXED);
  counter_bump(&snug_counters.ticks, 1);
  bool slow = ticks.count++ % SLOW_TICKS == 0;
  if (!rights_have(RIGHT_FILES)) {
    purge_forget_limit();
  } else if (may_open_files) {
    look_at_container(slow);
  }
  slab_tick();
  slab_join_tick();
  cache_tick();
  steal_caches(IDLE_TICKS, own);
  if (!purge_if_limit_is_near(own)) purge_slabs(slow ? 0 : PAGES_CLASS_MIN_BYTES, records_to_look_at());
  purge_above_cap();
  large_retry_unmaps();
  pages_age();
  purge_looked();
  gauges_refresh(false);
  purge_unlock();
}

bool tick_if_due(const struct cache *own, bool may_open_files) {
  uint64_t now = sys_coarse_time_ns(), last = __atomic_load_n(&ticks.at_ns, __ATOMIC_RELAXED);
  if (last == 0) __atomic_store_n(&ticks.at_ns, now, __ATOMIC_RELAXED); /* short programs never tick */
  if (last == 0 || now < last + TICK_NS) return false;                  /* another thread's look may be later */
  tick_now(own, may_open_files);
  return true;
}
