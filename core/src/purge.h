/* purge.h: policies that keep resident memory close to live memory. Above pages, slab, large and cache; below the api.
 *
 * Called from slow paths only, and by the janitor. Three rules:
 *
 *  cap     Free pages that hold memory beyond 128 KiB + 1 % of the heap are given back, highest addresses first ...
 *  budget  ... as long as that costs, with the faults it will cause, at most purge_cpu_percent of the time. Time fills
 * a bucket of tokens, each page purged takes some out; an empty bucket means that the program reuses its pages quickly
 *          and keeps them. (docs/decisions/0004)
 *  tick    Every 100 ms: idle caches are emptied, pages inside slabs are given back, the container's limit is looked
 * at.
 */
#ifndef SNUG_PURGE_H
#define SNUG_PURGE_H

#include "base.h"
#include "cache.h"
#include "large.h"
#include "pages.h"

HIDDEN extern size_t purge_limit_pages; /* atomic: dirty pages above which maintain() (maintain.h) acts */

HIDDEN void purge_excess(void);

/* What happens every 100 ms. own is the caller's cache (NULL for the janitor). may_open_files: the container's limits
 * may be read now. */
HIDDEN void purge_tick(const struct cache *own, bool may_open_files);
HIDDEN bool purge_tick_if_due(const struct cache *own, bool may_open_files);

/* Gives everything back that can be: idle caches, pages in slabs, free pages, retained mappings. Returns the bytes. */
HIDDEN size_t purge_all(const struct cache *own);

/* Whether enough could be given back that a janitor is worth its thread. */
HIDDEN bool purge_janitor_is_worth(void);

/* The same by free pages and retained mappings alone, which are counted already. */
HIDDEN bool purge_janitor_is_worth_for_pages(void);

/* A sum that changes whenever the program allocates or frees. */
HIDDEN uint64_t purge_activity(void);

/* For control.c: the purge lock, if it is free (never inside a fork); and purge_all for who holds it. */
HIDDEN bool purge_try_lock(void);
HIDDEN void purge_unlock(void);
HIDDEN size_t purge_all_locked(const struct cache *own);

HIDDEN void purge_lock_all(void);
HIDDEN void purge_unlock_all(void);
HIDDEN void purge_reset_locks(void);

#endif
