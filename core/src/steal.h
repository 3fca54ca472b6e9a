/* steal.h: empties the caches of threads that are away, and releases those of threads that ended without a word.
 *
 * It does not know when, nor why: ticks and purges do. How an owner and a thief agree without a lock in the fast path
 * is drawn in cache.h (C1, C4).
 */
#ifndef SNUG_STEAL_H
#define SNUG_STEAL_H

#include "base.h"
#include "cache.h"

/* Empties caches of threads other than the caller, whose is `own`, that showed no sign of life in the last `looks`
 * calls (0: all that are not in use at this instant, and their bins close). Without membarrier nothing is stolen.
 * Returns the bytes of blocks given back to slabs. */
HIDDEN size_t steal_caches(uint32_t looks, const struct cache *own);

#endif
