/* account.h: the heap in jemalloc's terms, as it was at the last refresh: what mallctl and malloc_stats_print read.
 *
 * Without a lock, so that nobody has to wait, in forks neither: each number is written whole, and two threads that
 * refresh at once mix theirs, which are both of that moment.
 *
 *  T1  active >= allocated; mapped = active + dirty + metadata + what was given back inside slabs; no byte is counted
 *      in both of mapped and retained.
 */
#ifndef SNUG_ACCOUNT_H
#define SNUG_ACCOUNT_H

#include "base.h"

enum account {
  ACCOUNT_ALLOCATED, /* live blocks, rounded to their classes and pages */
  ACCOUNT_ACTIVE,    /* pages that hold live blocks, or free ones beside them */
  ACCOUNT_METADATA,
  ACCOUNT_RESIDENT, /* upper bound */
  ACCOUNT_MAPPED,
  ACCOUNT_RETAINED, /* addresses of the heap that hold no memory */
  ACCOUNT_SMALL,    /* of allocated: blocks in slabs */
  ACCOUNT_LARGE,    /* the others */
  ACCOUNT_LARGE_BLOCKS,
  ACCOUNT_DIRTY,     /* free and resident */
  ACCOUNT_PURGES,    /* times that memory was given back */
  ACCOUNT_PURGED,    /* bytes that were given back, ever */
  ACCOUNT_THREADS,   /* that have a cache */
  ACCOUNT_CACHED,    /* bytes of free blocks in those */
  ACCOUNT_REQUESTED, /* of allocated: what was asked for */
  ACCOUNT_ARENAS,    /* in use */
  ACCOUNT_JANITORS,  /* background threads that run */
  ACCOUNT_JANITORS_EVER,
  ACCOUNT_COUNT,
};

/* Takes all numbers anew. No lock is held. Returns how often that was done. */
HIDDEN uint64_t account_refresh(void);

/* How often; the first reader refreshes. */
HIDDEN uint64_t account_epoch(void);

HIDDEN uint64_t account_read(enum account which);

/* Bytes of this arena's blocks in slabs, less its share of what caches hold; 0 if it is not in use. */
HIDDEN uint64_t account_small_bytes(uint32_t arena);

#endif
