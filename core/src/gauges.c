#include "gauges.h"

#include "cache.h"
#include "counters.h"
#include "lock.h"
#include "map.h"
#include "pages.h"
#include "slab.h"
#include "sys.h"

uint64_t gauges_profile_bytes;

/* Bytes of our tables that were ever written, by page. */
static uint64_t metadata_bytes(size_t top_pages, size_t cache_count) {
  size_t page = zone.page_bytes;
  uint64_t bytes = round_up(top_pages * sizeof zone.kind[0], page) + round_up(top_pages * sizeof zone.owner[0], page);
  bytes += 3 * round_up(top_pages / 8, page) + round_up(slab_record_count() * SLAB_RECORD_BYTES, page);
  bytes += counter_get(&gauges_profile_bytes);
  return bytes + cache_count * round_up(CACHE_TOUCHED_BYTES, page);
}

void gauges_refresh(void) {
  struct pages_account account = pages_account();
  size_t cache_count;
  counter_set(&snug_counters.heap_top_bytes, account.top_pages * PAGE_BYTES);
  counter_set(&snug_counters.heap_committed_bytes, zone_pages() * PAGE_BYTES);
  counter_set(&snug_counters.clean_bytes, (account.free_pages - account.dirty_pages) * PAGE_BYTES);
  counter_set(&snug_counters.dirty_bytes,
              account.dirty_pages * PAGE_BYTES + counter_get(&snug_counters.large_retained_bytes));
  counter_set(&snug_counters.cached_bytes, cache_held_bytes(&cache_count));
  counter_set(&snug_counters.cached_at_ns, sys_coarse_time_ns());
  counter_set(&snug_counters.lock_waits, __atomic_load_n(&lock_waits, __ATOMIC_RELAXED));
  counter_set(&snug_counters.metadata_bytes, metadata_bytes(account.top_pages, cache_count));
}
