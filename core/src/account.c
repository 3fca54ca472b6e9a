#include "account.h"

#include "classes.h"
#include "counters.h"
#include "janitor.h"
#include "map.h"
#include "ready.h"
#include "stats.h"

static struct {
  uint64_t epoch;                             /* atomic, as all of it */
  uint64_t values[ACCOUNT_COUNT];             /* T1 */
  uint64_t small_bytes[SNUG_COUNTERS_ARENAS]; /* outstanding, of each arena */
} account;

static uint64_t outstanding_bytes(uint32_t arena) {
  uint64_t bytes = 0;
  for (unsigned i = 1; i < CLASS_COUNT; i++) {
    bytes += counter_get(&snug_counters.classes[arena][i].outstanding_blocks) * class_shapes[i].size_bytes;
  }
  return bytes;
}

static void set_number(enum account which, uint64_t value) { counter_set(&account.values[which], value); }

static void set_sizes(const struct snug_stats *stats) {
  const struct snug_counters *c = &snug_counters;
  uint64_t large = counter_get(&c->run_bytes) + counter_get(&c->large_bytes);
  uint64_t retained = counter_get(&c->clean_bytes), mapped = stats->mapped_bytes;
  mapped = mapped > retained ? mapped - retained : 0;
  uint64_t idle = stats->dirty_bytes + stats->metadata_bytes + counter_get(&c->slab_purged_bytes);
  uint64_t active = mapped > idle ? mapped - idle : 0, allocated = stats->live_allocated_bytes;
  if (active < allocated) active = round_up(allocated, zone.page_bytes); /* counted while others allocate */
  set_number(ACCOUNT_ALLOCATED, allocated);
  set_number(ACCOUNT_ACTIVE, active);
  set_number(ACCOUNT_METADATA, stats->metadata_bytes);
  set_number(ACCOUNT_RESIDENT, stats->resident_bytes);
  set_number(ACCOUNT_MAPPED, active + idle > mapped ? active + idle : mapped);
  set_number(ACCOUNT_RETAINED, retained);
  set_number(ACCOUNT_SMALL, allocated > large ? allocated - large : 0);
  set_number(ACCOUNT_LARGE, large < allocated ? large : allocated);
  set_number(ACCOUNT_LARGE_BLOCKS, counter_get(&c->run_blocks) + counter_get(&c->large_blocks));
  set_number(ACCOUNT_DIRTY, stats->dirty_bytes);
}

uint64_t account_refresh(void) {
  struct snug_stats stats;
  start_if_needed();
  stats_collect(&stats);
  set_sizes(&stats);
  set_number(ACCOUNT_PURGES, counter_get(&snug_counters.purges));
  set_number(ACCOUNT_PURGED, stats.purged_bytes);
  set_number(ACCOUNT_THREADS, stats.caches);
  set_number(ACCOUNT_CACHED, stats.cached_bytes);
  set_number(ACCOUNT_REQUESTED, stats.live_requested_bytes);
  set_number(ACCOUNT_ARENAS, stats.arenas != 0 ? stats.arenas : 1);
  set_number(ACCOUNT_JANITORS, janitor_is_running());
  set_number(ACCOUNT_JANITORS_EVER, counter_get(&snug_counters.janitor_starts));
  for (uint32_t i = 0; i < SNUG_COUNTERS_ARENAS; i++) {
    counter_set(&account.small_bytes[i], i < stats.arenas ? outstanding_bytes(i) : 0);
  }
  return __atomic_add_fetch(&account.epoch, 1, __ATOMIC_RELAXED);
}

uint64_t account_epoch(void) {
  uint64_t epoch = counter_get(&account.epoch);
  return epoch != 0 ? epoch : account_refresh();
}

uint64_t account_read(enum account which) {
  account_epoch();
  return counter_get(&account.values[which]);
}

uint64_t account_small_bytes(uint32_t arena) {
  uint64_t all = 0, small = account_read(ACCOUNT_SMALL);
  for (uint32_t i = 0; i < SNUG_COUNTERS_ARENAS; i++) all += counter_get(&account.small_bytes[i]);
  if (all == 0 || arena >= SNUG_COUNTERS_ARENAS) return 0;
  return (uint64_t)((double)counter_get(&account.small_bytes[arena]) / (double)all * (double)small);
}
