/* counters.h: the page of counters (core/include/snug_counters.h) as its writers see it.
 *
 * A row of a class is written under that class's lock; everything else with the functions below. Readers take no lock.
 * Other processes of the same user may write here: what the library reads back decides how much is kept, given back or
 * reported, never which memory is whose, nor which process this is.
 */
#ifndef SNUG_COUNTERS_CORE_H
#define SNUG_COUNTERS_CORE_H

#include "../include/snug_counters.h"
#include "base.h"

EXPORT extern struct snug_counters snug_counters;

/* The page of this very copy of the library: a process that has two, one as libjemalloc.so.2, uses the first one's. */
HIDDEN extern struct snug_counters counters_of_this_copy;

static ALWAYS_INLINE void counter_add(uint64_t *counter, uint64_t change) {
  __atomic_fetch_add(counter, change, __ATOMIC_RELAXED);
}

static ALWAYS_INLINE void counter_subtract(uint64_t *counter, uint64_t change) {
  __atomic_fetch_sub(counter, change, __ATOMIC_RELAXED);
}

static ALWAYS_INLINE void counter_set(uint64_t *counter, uint64_t value) {
  __atomic_store_n(counter, value, __ATOMIC_RELAXED);
}

static ALWAYS_INLINE uint64_t counter_get(const uint64_t *counter) {
  return __atomic_load_n(counter, __ATOMIC_RELAXED);
}

/* For counters with one writer at a time. */
static ALWAYS_INLINE void counter_bump(uint64_t *counter, uint64_t change) {
  counter_set(counter, counter_get(counter) + change);
}

#endif
