/* tick.h: housekeeping, at most every 100 ms: when policies act, and how much they look at each time.
 *
 * It does not know what goes back, nor at which price: that is purge.h's. Slow paths bring ticks (maintain.h), and the
 * janitor while it lives. A tick empties idle caches, gives back pages inside slabs and what is above the cap; every
 * tenth one looks at small classes, too. Slow paths also look at the container, once a second, or every 100 ms where it
 * has a memory limit, whoever brings the ticks: the janitor opens files only where it has one.
 */
#ifndef SNUG_TICK_H
#define SNUG_TICK_H

#include "base.h"
#include "cache.h"

/* A tick, unless another purger is at work. own is the caller's cache (NULL for the janitor). may_open_files: the
 * container's limits may be read now. */
HIDDEN void tick_now(const struct cache *own, bool may_open_files);

/* The same if the last one was 100 ms ago, but for a step of the coarse clock. If not, who may open files looks at the
 * container, if that is due, and sweeps if it is nearly full. Returns whether there was a tick. */
HIDDEN bool tick_if_due(const struct cache *own, bool may_open_files);

/* Whether the container has a memory limit, which may come near while the program only touches what it has. */
HIDDEN bool tick_janitor_needs_files(void);

#endif
