/* caches.h: helpers of the tests of thread caches, which include sys.c, put functions of their own in place of some of
 * it, and then include above_sys.h and this. */
#ifndef SNUG_CACHES_H
#define SNUG_CACHES_H

#include "unit.h"

enum { CLASS = 4, SIZE = 64, MANY = 3000 };

/* No ticks or purges but our own, no helper thread. */
static inline void freeze_policies(void) {
  options.background = 0;
  free(malloc(SIZE)); /* this thread has its cache */
  lock_take(&purge.lock, RANK_PURGE);
}

static inline void thaw_policies(void) { lock_give(&purge.lock, RANK_PURGE); }

static inline uint64_t outstanding(unsigned class_index) {
  uint64_t sum = 0;
  for (unsigned arena = 0; arena < ARENA_MAX; arena++)
    sum += snug_counters.classes[arena][class_index].outstanding_blocks;
  return sum;
}

/* Bytes in all caches. */
static inline size_t held_bytes(void) {
  survey_count_all();
  return snug_counters.cached_bytes;
}

static inline struct bin *own_bin(unsigned class_index) { return &this_thread.own->bin[class_index]; }
static inline size_t capacity(unsigned class_index) { return bin_capacity(own_bin(class_index)); }
static inline size_t cached(unsigned class_index) { return bin_count(this_thread.own, own_bin(class_index)); }

static void *blocks[MANY];

/* Many mallocs, then many frees: each run misses again and again. */
static inline void burst(size_t count, size_t size_bytes) {
  for (size_t i = 0; i < count; i++) blocks[i] = malloc(size_bytes);
  for (size_t i = 0; i < count; i++) free(blocks[i]);
}

/* The class's bin misses often enough to open. */
static inline void open_bin(size_t size_bytes) { burst(OPENING_MISSES, size_bytes); }

#endif
