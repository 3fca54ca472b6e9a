/* steal.h: empties the caches of threads that are away, and releases those of threads that ended without a word.
 *
 * It does not know when, nor why: ticks and purges do. How an owner and a thief agree without a lock in the fast path
 * is drawn in cache.h (C1, C4).
 */
#ifndef SNUG_STEAL_H
#define SNUG_STEAL_H

#include "base.h"
#include "cache.h"

/* Empties caches of threads other than the caller, whose is `own`, that showed no sign of life in the last `ticks`
 * calls. Of many caches each call looks at a slice (survey.h), so that for those it may be a turn more. With 0 at all:
 * those that are not in use at this instant, and their bins close. Caches of threads that ended without a word are
 * released within 32 calls. Without membarrier nothing is stolen. The purge lock is held. Returns the bytes of blocks
 * given back to slabs. */
HIDDEN size_t steal_caches(uint32_t ticks, const struct cache *own);

/* Whether it may do anything at all. */
HIDDEN bool steal_is_allowed(void);

#endif
