#include "survey.h"

#include "counters.h"
#include "sys.h"

uint32_t survey_slice(void) {
  uint32_t least = (cache_used_count() + SURVEY_SLICES_MAX - 1) / SURVEY_SLICES_MAX;
  return least > SURVEY_SLICE ? least : SURVEY_SLICE;
}

/* ---- life ---- */

/* It begins where there was life the last time, and ends a slice beyond the first change. */
uint64_t survey_activity(void) {
  static uint64_t changes;
  static uint32_t first; /* to look at */
  uint32_t count = cache_used_count(), left = survey_slice(), start = first < count ? first : 0;
  bool changed = false;
  for (uint32_t i = 0; i < count && left != 0; i++) {
    uint32_t number = start + i < count ? start + i : start + i - count;
    struct cache *cache = cache_number(number);
    left -= changed;
    if (!__atomic_load_n(&cache->in_use, __ATOMIC_RELAXED)) continue;
    uint64_t life = cache_sign_of_life(cache);
    if (life == __atomic_load_n(&cache->seen_active, __ATOMIC_RELAXED)) continue;
    __atomic_store_n(&cache->seen_active, life, __ATOMIC_RELAXED);
    if (!changed) first = number;
    changed = true;
  }
  return changes += changed;
}

bool survey_before_theft(const struct cache *cache) {
  return __atomic_load_n(&cache->seen_active, __ATOMIC_RELAXED) == cache_sign_of_life(cache);
}

void survey_after_theft(struct cache *cache, bool was_seen) {
  if (was_seen) __atomic_store_n(&cache->seen_active, cache_sign_of_life(cache), __ATOMIC_RELAXED);
}

/* ---- bytes ---- */

static struct {
  uint32_t next;                 /* purge lock: number of the cache to look at next */
  uint64_t turn_at_ns;           /* atomic: those before were looked at since this, when the turn began, ... */
  uint64_t turn_before_began_ns; /* atomic: ... and the others since this */
} counting;

/* Unused ones are empty, and nothing is written to those whose memory went. */
static void count_bytes(struct cache *cache) {
  uint64_t bytes = __atomic_load_n(&cache->in_use, __ATOMIC_RELAXED) ? cache_bytes(cache) : 0;
  if (bytes == __atomic_load_n(&cache->counted_bytes, __ATOMIC_RELAXED)) return; /* mostly */
  uint64_t before = __atomic_exchange_n(&cache->counted_bytes, bytes, __ATOMIC_RELAXED);
  counter_add(&snug_counters.cached_bytes, bytes - before); /* H1, also when two count */
}

void survey_forget(struct cache *cache) { count_bytes(cache); }

void survey_count_slice(void) {
  uint32_t count = cache_used_count(), slice = survey_slice();
  if (counting.next == 0) counter_set(&counting.turn_at_ns, sys_coarse_time_ns());
  uint32_t end = slice < count - counting.next ? counting.next + slice : count;
  for (; counting.next < end; counting.next++) count_bytes(cache_number(counting.next));
  if (end == count) {
    counting.next = 0;
    counter_set(&counting.turn_before_began_ns, counter_get(&counting.turn_at_ns));
  }
  counter_set(&snug_counters.cached_at_ns, counter_get(&counting.turn_before_began_ns));
}

void survey_count_all(void) {
  uint64_t now = sys_coarse_time_ns();
  for (uint32_t i = 0; i < cache_used_count(); i++) count_bytes(cache_number(i));
  counter_set(&counting.turn_at_ns, now);
  counter_set(&counting.turn_before_began_ns, now);
  counter_set(&snug_counters.cached_at_ns, now);
}
