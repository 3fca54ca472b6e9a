#include "purge.h"

#include "cgroup.h"
#include "counters.h"
#include "gauges.h"
#include "lock.h"
#include "options.h"
#include "slab.h"
#include "sys.h"

#define MILLISECOND_NS UINT64_C(1000000)

enum {
  CAP_SMALL_PAGES = 16, /* 64 KiB, while the heap is small */
  CAP_PAGES = 32,       /* 128 KiB */
  CAP_HEAP_PERCENT = 1,
  YOUNG_HEAP_PERCENT = 3,  /* so much more may be dirty from one tick to the next */
  SMALL_HEAP_PAGES = 2048, /* 8 MiB */
  PAGE_COST_NS = 1500,     /* to purge a page and fault it in again, measured 1.3-2.3 us in a virtual machine */
  BATCH_MIN_PAGES = 16,    /* fewer are not worth the system call unless that is all there is */
  TICK_MS = 100,
  TOKENS_MAX_MS = 4,
  DEBT_MAX_MS = 20,             /* what one large purge may cost later ones */
  SLOW_TICKS = 10,              /* every tenth tick also looks at small classes and at the container */
  LIMITS_SLOW_TICKS = 60,       /* once a minute: how many CPUs there are, and where the memory limit is */
  TICK_RECORDS = 8192,          /* slabs looked at per tick, or */
  TICK_SHARE = 64,              /* this part of all */
  PAGES_CLASS_MIN_BYTES = 2048, /* classes whose free slots often span whole pages */
  JANITOR_MIN_BYTES = 1 << 20,
  JANITOR_SINGLE_MIN_BYTES = 4 << 20, /* in a process with one thread: some programs insist on being that */
  JANITOR_HEAP_SHIFT = 5,
};

size_t purge_limit_pages = CAP_SMALL_PAGES;

static struct {
  struct lock lock;       /* rank PURGE: one purger at a time; others go on without */
  int64_t tokens_ns;      /* under the lock */
  uint64_t tokens_at_ns;  /* under the lock */
  uint64_t tick_at_ns;    /* atomic */
  uint32_t ticks;         /* under the lock */
  uint32_t slow_ticks;    /* under the lock */
  bool near_limit;        /* under the lock: the container's memory limit is near */
  uint64_t settled_bytes; /* atomic: what the last purge_all could not give back */
} purge;

static void earn_tokens(void) {
  uint64_t now = sys_coarse_time_ns();
  if (purge.tokens_at_ns != 0 && now > purge.tokens_at_ns) {
    purge.tokens_ns += (int64_t)((now - purge.tokens_at_ns) * options.purge_cpu_percent / 100);
    if (purge.tokens_ns > TOKENS_MAX_MS * (int64_t)MILLISECOND_NS) purge.tokens_ns = TOKENS_MAX_MS * MILLISECOND_NS;
    if (purge.tokens_ns < -DEBT_MAX_MS * (int64_t)MILLISECOND_NS)
      purge.tokens_ns = -DEBT_MAX_MS * (int64_t)MILLISECOND_NS;
  }
  purge.tokens_at_ns = now;
}

static void count_purged(size_t purged_pages) {
  if (purged_pages == 0) return;
  counter_bump(&snug_counters.purges, 1);
  counter_add(&snug_counters.purged_bytes, (uint64_t)purged_pages * PAGE_BYTES);
}

static size_t cap_pages(void) {
  size_t used = pages_used();
  if (purge.near_limit) return CAP_SMALL_PAGES;
  return used < SMALL_HEAP_PAGES ? CAP_SMALL_PAGES : CAP_PAGES + used * CAP_HEAP_PERCENT / 100;
}

static size_t dirty_pages(void) { return pages_dirty() + large_retained_pages(); }

static void set_limit(size_t limit) {
  __atomic_store_n(&purge_limit_pages, limit, __ATOMIC_RELAXED);
  counter_set(&snug_counters.dirty_cap_bytes, limit * PAGE_BYTES);
}

static bool at_any_price(void) { return purge.near_limit || options.purge_cpu_percent == 100; }

/* Dirty pages from which on slow paths purge at once, also what was freed a moment ago. */
static size_t urgent_pages(void) {
  return at_any_price() ? cap_pages() : cap_pages() + pages_used() * YOUNG_HEAP_PERCENT / 100;
}

/* Gives back what is above three quarters of `cap` pages, of aged pages or of all, within the budget. The purge lock is
 * held. */
static void purge_within_budget(size_t cap, bool only_aged) {
  earn_tokens();
  size_t urgent = urgent_pages(), keep = cap / 4 * 3, dirty = dirty_pages();
  if (dirty <= cap) return set_limit(urgent);
  size_t excess = dirty - keep;
  size_t affordable = purge.tokens_ns > 0 ? (size_t)(purge.tokens_ns / PAGE_COST_NS) : 0;
  if (at_any_price()) affordable = excess;
  if (affordable < excess && affordable < BATCH_MIN_PAGES) affordable = 0;
  size_t wanted = excess < affordable ? excess : affordable;
  size_t retained = large_retained_pages(), unmapped = 0, purged = 0;
  if (retained != 0) unmapped = large_purge(retained > wanted ? retained - wanted : 0);
  if (unmapped < wanted) {
    size_t rest = wanted - unmapped, free_dirty = pages_dirty();
    purged = pages_purge(free_dirty > rest ? free_dirty - rest : 0, only_aged);
  }
  count_purged(purged);
  purge.tokens_ns -= (int64_t)(unmapped + purged) * PAGE_COST_NS;
  dirty = dirty_pages();
  /* Refused or unaffordable: not at every free. */
  set_limit(dirty <= urgent ? urgent : dirty + dirty / 8 + BATCH_MIN_PAGES);
}

void purge_excess(void) {
  if (!lock_try(&purge.lock, RANK_PURGE)) return;
  purge_within_budget(urgent_pages(), false);
  lock_give(&purge.lock, RANK_PURGE);
}

/* Bytes of free slots in slabs whose pages may hold memory. */
static uint64_t slab_idle_bytes(void) {
  uint64_t bytes = 0;
  uint32_t arenas = __atomic_load_n(&snug_counters.arena_count, __ATOMIC_RELAXED);
  for (uint32_t arena = 0; arena < arenas; arena++) {
    for (unsigned i = 1; i < CLASS_COUNT; i++) {
      const struct snug_counters_class *row = &snug_counters.classes[arena][i];
      bytes += counter_get(&row->slab_bytes) - counter_get(&row->outstanding_blocks) * class_shapes[i].size_bytes;
    }
  }
  uint64_t purged = counter_get(&snug_counters.slab_purged_bytes);
  return bytes > purged ? bytes - purged : 0;
}

/* How much must be there to be given back for a janitor to be worth its thread. */
static uint64_t janitor_bytes(void) {
  uint64_t minimum = JANITOR_MIN_BYTES, heap_share = (uint64_t)pages_used() * PAGE_BYTES >> JANITOR_HEAP_SHIFT;
  if (counter_get(&snug_counters.caches) < 2) minimum = JANITOR_SINGLE_MIN_BYTES;
  if (minimum < heap_share) minimum = heap_share;
  return __atomic_load_n(&purge.settled_bytes, __ATOMIC_RELAXED) + minimum;
}

bool purge_janitor_is_worth_for_pages(void) { return (uint64_t)dirty_pages() * PAGE_BYTES > janitor_bytes(); }

bool purge_janitor_is_worth(void) {
  uint64_t dirty_bytes = (uint64_t)dirty_pages() * PAGE_BYTES, enough = janitor_bytes();
  return dirty_bytes > enough || dirty_bytes + slab_idle_bytes() > enough;
}

uint64_t purge_activity(void) {
  return cache_activity() * 31 + counter_get(&snug_counters.run_requested_bytes) * 7 +
         counter_get(&snug_counters.large_requested_bytes) * 5 + counter_get(&snug_counters.large_maps);
}

/* The container: how many CPUs, and whether its memory is nearly full. The purge lock is held. */
static void look_at_container(bool slow) {
  if (slow && purge.slow_ticks++ % LIMITS_SLOW_TICKS == 0) {
    uint32_t cpus = sys_allowed_cpus(), quota = cgroup_cpus();
    cache_set_arenas_max(quota != 0 && quota < cpus ? quota : cpus);
    cgroup_forget_memory_limit(); /* it may have been changed, or the process moved */
  }
  if (slow || cgroup_has_memory_limit()) purge.near_limit = cgroup_memory_is_nearly_full();
}

/* A large heap is looked at in six seconds or so. */
static size_t tick_records(void) {
  size_t share = slab_record_count() / TICK_SHARE;
  return share > TICK_RECORDS ? share : TICK_RECORDS;
}

void purge_tick(const struct cache *own, bool may_open_files) {
  if (!lock_try(&purge.lock, RANK_PURGE)) return;
  __atomic_store_n(&purge.tick_at_ns, sys_coarse_time_ns(), __ATOMIC_RELAXED);
  counter_bump(&snug_counters.ticks, 1);
  bool slow = purge.ticks++ % SLOW_TICKS == 0, was_near = purge.near_limit;
  if (may_open_files) look_at_container(slow);
  slab_tick();
  cache_tick();
  cache_steal(2, own);
  earn_tokens();
  if (purge.near_limit && (slow || !was_near)) {
    cache_steal(0, own);
    count_purged(slab_purge(0, false, slab_record_count()));
    counter_bump(&snug_counters.limit_purges, 1);
  } else if (purge.tokens_ns > 0) {
    size_t purged = slab_purge(slow ? 0 : PAGES_CLASS_MIN_BYTES, true, tick_records());
    count_purged(purged);
    purge.tokens_ns -= (int64_t)purged * PAGE_COST_NS;
  }
  purge_within_budget(cap_pages(), !at_any_price());
  pages_age();
  gauges_refresh();
  lock_give(&purge.lock, RANK_PURGE);
}

bool purge_tick_if_due(const struct cache *own, bool may_open_files) {
  uint64_t now = sys_coarse_time_ns(), last = __atomic_load_n(&purge.tick_at_ns, __ATOMIC_RELAXED);
  if (last == 0) __atomic_store_n(&purge.tick_at_ns, now, __ATOMIC_RELAXED); /* short programs never tick */
  if (last == 0 || now - last < TICK_MS * MILLISECOND_NS) return false;
  purge_tick(own, may_open_files);
  return true;
}

size_t purge_all_locked(const struct cache *own) {
  cache_steal(0, own);
  size_t purged = slab_purge(0, false, slab_record_count());
  purged += pages_purge(0, false);
  count_purged(purged);
  purged += large_purge(0);
  set_limit(urgent_pages());
  gauges_refresh();
  __atomic_store_n(&purge.settled_bytes, (uint64_t)dirty_pages() * PAGE_BYTES + slab_idle_bytes(), __ATOMIC_RELAXED);
  return purged * PAGE_BYTES;
}

size_t purge_all(const struct cache *own) {
  lock_take(&purge.lock, RANK_PURGE);
  size_t bytes = purge_all_locked(own);
  lock_give(&purge.lock, RANK_PURGE);
  return bytes;
}

bool purge_try_lock(void) { return lock_try(&purge.lock, RANK_PURGE); }
void purge_unlock(void) { lock_give(&purge.lock, RANK_PURGE); }

void purge_lock_all(void) { lock_take_in_fork(&purge.lock, RANK_PURGE); }
void purge_unlock_all(void) { lock_give_in_fork(&purge.lock, RANK_PURGE); }
void purge_reset_locks(void) { lock_reset(&purge.lock); }
