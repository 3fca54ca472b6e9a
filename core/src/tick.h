/* tick.h: housekeeping, at most every 100 ms: when policies act, and how much they look at each time.
 *
 * It does not know what goes back, nor at which price: that is purge.h's. Slow paths bring ticks (maintain.h), and the
 * janitor while it lives. A tick empties idle caches, gives back pages inside slabs and what is above the cap; every
 * tenth one looks at small classes, too. Those that may open files look at the container, once a second, or each
 * of them where it has a memory limit.
 */
#ifndef SNUG_TICK_H
#define SNUG_TICK_H

#include "base.h"
#include "cache.h"

/* A tick, unless another purger is at work. own is the caller's cache (NULL for the janitor). may_open_files: the
 * container's limits may be read now. */
HIDDEN void tick_now(const struct cache *own, bool may_open_files);

/* The same if the last one was 100 ms ago, but for a step of the coarse clock; 200 ms, if no files may be opened, so
 * that a janitor does not use up the ticks of threads that may look at the container. Returns whether it was. */
HIDDEN bool tick_if_due(const struct cache *own, bool may_open_files);

#endif
