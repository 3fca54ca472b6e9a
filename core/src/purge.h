/* purge.h: policies that keep resident memory close to live memory. Above pages, slab, large and cache; below the api.
 *
 * Called from slow paths, ticks (tick.h) and the janitor only. Two rules:
 *
 *  cap     Free pages that hold memory beyond 128 KiB + 1 % of the heap are given back, highest chunk first ...
 *  budget  ... as long as that costs, with the faults it will cause, at most purge_cpu_percent of the time. Time fills
 *          a bucket of tokens, each page purged takes some out; an empty bucket means that the program reuses its pages
 *          quickly and keeps them. (docs/decisions/0004)
 */
#ifndef SNUG_PURGE_H
#define SNUG_PURGE_H

#include "base.h"
#include "cache.h"
#include "large.h"
#include "pages.h"

HIDDEN extern size_t purge_due_pages;  /* atomic: dirty pages above which maintain() (maintain.h) calls purge_excess */
HIDDEN extern size_t purge_look_pages; /* atomic: dirty and touched ones above which it asks for a janitor */

/* Purges at once what is above the cap by more than may wait for a tick; near the container's limit what the process
 * grew by, too. */
HIDDEN void purge_excess(void);

/* Gives everything back that can be: idle caches, pages in slabs, free pages, retained mappings, what caches of ended
 * threads lie in, free space at the end of the zone. Returns the bytes of memory that went.
 * A purge that forks cut is repeated once at least, and until that has taken 50 ms. */
HIDDEN size_t purge_all(const struct cache *own);

/* The same for a request that failed: what the heap holds but does not need may be just what is missing. False: nothing
 * was done, as a second ago at most that served nothing, and little was freed since. Programs probe for memory, and
 * read lengths from strangers. Who then fails again says so, with what was left: what is freed meanwhile is no part. */
HIDDEN bool purge_for_request(const struct cache *own, size_t request_bytes, uint64_t *left_bytes);
HIDDEN void purge_served_nothing(uint64_t left_bytes);

/* purge_all for the janitor, after so many looks, one every 100 ms, without activity: 3 at first. When most of what an
 * idle purge gave back is wanted again before the budget has paid for it, the next one waits for twice as many looks,
 * 80 at most; when not, half as many (docs/decisions/0020). In an idle process no slow path comes to start another
 * janitor, so one that waits must live until then. */
HIDDEN uint32_t purge_idle_looks(void);
HIDDEN void purge_idle(void);

/* Gives free pages back for a few milliseconds, unless another thread does: what would be out of the heap without the
 * purge lock, another fork's child would never get. */
HIDDEN void purge_before_fork(void);

/* From true to false all purging ends as soon as it can, and does nothing: a fork waits, for the janitor or for the
 * purge lock. What was left undone counts as what can be given back, also if that was over before the purge ended. */
HIDDEN void purge_stop(bool stop);

/* Whether the last purge of an idle program gave back next to nothing. */
HIDDEN bool purge_was_in_vain(void);

/* Whether enough could be given back that a janitor is worth its thread. */
HIDDEN bool purge_janitor_is_worth(void);

/* Whether enough was freed for that to be possible. Does not read what each class has free, which other CPUs write. */
HIDDEN bool purge_janitor_may_be_worth(void);

/* Asks maintain() to look again when a little more was freed than now. */
HIDDEN void purge_looked(void);

/* The same by free pages and retained mappings alone, which are counted already. */
HIDDEN bool purge_janitor_is_worth_for_pages(void);

/* A sum that changes whenever the program allocates or frees. */
HIDDEN uint64_t purge_activity(void);

/* The purge lock, if it is free (never inside a fork). */
HIDDEN bool purge_try_lock(void);
HIDDEN void purge_unlock(void);

/* purge_all for who holds it. *bytes went. False: purging stopped meanwhile (purge_stop), and something may be left. */
HIDDEN bool purge_all_locked(const struct cache *own, size_t *bytes);

/* For tick.c, who holds the purge lock. */

/* Reads how near the container's memory limit is (cgroup.h, pressure.h), by the second with asks_for_limit; or forgets
 * it: nobody may read it any more. */
HIDDEN void purge_look_at_limit(bool asks_for_limit);
HIDDEN void purge_forget_limit(void);

/* Reads whether the kernel makes huge pages, once. RIGHT_FILES. */
HIDDEN void purge_find_huge_pages(void);

/* At each tick: whether they are wanted where the heap grows. */
HIDDEN void purge_look_at_huge_pages(void);

/* If a sweep is due (pressure.h), gives everything back that can be, `own` excepted. Returns whether it was. */
HIDDEN bool purge_if_limit_is_near(const struct cache *own);

/* Within the budget, pages of slabs, as slab_purge chooses them, in which nothing was freed since the tick before last.
 */
HIDDEN void purge_slabs(size_t min_class_bytes, size_t max_records);

/* Within the budget, unless it is spared, what is above the cap and was dirty at the last tick already; retained
 * mappings also if they are younger, unless one of them served a block since (large_purge). */
HIDDEN void purge_above_cap(bool is_spared);

/* Whether a tick may spare what could go: not near the container's limit, nor where no page is to stay. */
HIDDEN bool purge_may_wait(void);

HIDDEN void purge_lock_all(void);
HIDDEN void purge_unlock_all(void);
HIDDEN void purge_reset_locks(void);

#endif
