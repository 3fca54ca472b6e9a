#include "gauges.h"

#include "cache.h"
#include "counters.h"
#include "lock.h"
#include "map.h"
#include "pages.h"
#include "slab.h"
#include "survey.h"

uint64_t gauges_profile_bytes;

/* Bytes of our tables that were ever written, by page; of caches those whose memory was not given back since. */
static uint64_t metadata_bytes(size_t top_pages, size_t cache_count) {
  size_t page = zone.page_bytes;
  uint64_t bytes = round_up(top_pages * sizeof zone.kind[0], page) + round_up(top_pages * sizeof zone.owner[0], page);
  bytes += 3 * round_up(top_pages / 8, page) + round_up(slab_record_count() * SLAB_RECORD_BYTES, page);
  bytes += counter_get(&gauges_profile_bytes);
  return bytes + cache_count * round_up(CACHE_TOUCHED_BYTES, page);
}

void gauges_refresh(bool counts_all_caches) {
  struct pages_account account = pages_account();
  counter_set(&snug_counters.heap_top_bytes, account.top_pages * PAGE_BYTES);
  counter_set(&snug_counters.heap_committed_bytes, zone_pages() * PAGE_BYTES);
  counter_set(&snug_counters.clean_bytes, (account.free_pages - account.dirty_pages) * PAGE_BYTES);
  counter_set(&snug_counters.dirty_bytes,
              account.dirty_pages * PAGE_BYTES + counter_get(&snug_counters.large_retained_bytes));
  if (counts_all_caches) {
    survey_count_all();
  } else {
    survey_count_slice();
  }
  counter_set(&snug_counters.lock_waits, __atomic_load_n(&lock_waits, __ATOMIC_RELAXED));
  size_t cache_count = (size_t)counter_get(&snug_counters.caches) + cache_ended_count();
  counter_set(&snug_counters.metadata_bytes, metadata_bytes(account.top_pages, cache_count));
}
