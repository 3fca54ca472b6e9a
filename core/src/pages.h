/* pages.h: the page heap. Gives out runs of 4 KiB pages, takes them back, and knows which free ones hold memory.
 *
 * It does not know slabs, blocks or policies; it only counts. Two bits per page:
 *
 *      free  dirty
 *       0     0     in use (or above the top)
 *       1     0     free and clean: holds no memory, reads as zero
 *       1     1     free and dirty: holds memory and old contents
 *
 *      A third bit says of dirty pages that they are aged: dirty since before the last tick.
 *
 *  G1  A run lies in one chunk of 4 MiB; a chunk's summary bounds from above what a search in it can find.
 *  G2  A search takes dirty runs before clean ones, then the lowest chunk, then the best fit: reuse costs no fault, and
 *      high pages empty. It need not find every hole that is aligned, unless the zone can't grow.
 *  G3  dirty_pages counts the dirty bits; a page being purged is neither free nor dirty meanwhile, so nobody takes
 *      it, and the lock is not held during the system call.
 *  G4  settled_pages counts dirty pages that the last purge of their chunk could not give back, and that nothing was
 *      freed beside since: at most as many as are dirty there.
 */
#ifndef SNUG_PAGES_H
#define SNUG_PAGES_H

#include "base.h"
#include "map.h"

enum { PAGES_RUN_MAX = 256 }; /* longest run, in pages: 1 MiB */

#define PAGE_NONE ((size_t)-1)

struct pages_account {
  size_t top_pages;   /* pages below the highest that was used since the zone shrank */
  size_t free_pages;  /* free below the top: clean and dirty */
  size_t dirty_pages; /* free and holding memory */
};

/* Takes count pages (1 .. PAGES_RUN_MAX) whose first has an index that is a multiple of align_pages (a power
 * of two up to PAGES_RUN_MAX). *clean is set when all of them are known to read as zero.
 * Returns the first page, or PAGE_NONE when there is no memory. */
HIDDEN size_t pages_take(size_t count, size_t align_pages, bool *clean);

/* Whether pages_take would find so many dirty pages side by side. */
HIDDEN bool pages_have_dirty(size_t count);

/* Gives pages back. A bit i of clean_mask says that page first + i holds no memory (i < 64). */
HIDDEN void pages_give(size_t first, size_t count, uint64_t clean_mask);

/* The same for run.c, which holds the lock, so that in a forked child each run is described or free. */
HIDDEN void pages_lock(void);
HIDDEN void pages_unlock(void);
HIDDEN size_t pages_take_locked(size_t count, size_t align_pages, bool *clean);
HIDDEN void pages_give_locked(size_t first, size_t count, uint64_t clean_mask);

/* Lengthens the run [first, first + count) to new_count pages in place. *clean as in pages_take. */
HIDDEN bool pages_extend_locked(size_t first, size_t count, size_t new_count, bool *clean);

/* Gives memory of dirty pages (or only of aged ones) back to the kernel, from the highest chunk (G1) down, and upwards
 * within each, until at most keep_pages are dirty, or purging stops. Returns the pages given back; 0 also when the
 * system refuses. */
HIDDEN size_t pages_purge(size_t keep_pages, bool only_aged);

/* Gives back what can go within a few milliseconds, also while purging stops: for who forks. Breaks no huge pages. */
HIDDEN size_t pages_purge_before_fork(void);

/* Whether the program touches what it takes: of the highest chunk of small pages that is mostly in use, seven eighths
 * are in use and hold memory. RIGHT_OTHERS; the purge lock is held. */
HIDDEN bool pages_are_touched(void);

/* Before memory of a page that is in use, or out of the page heap, is given back: breaks huge pages there. False:
 * that may not be, or purging stops. The purge lock is held, if huge pages may be there. */
HIDDEN bool pages_break_huge(size_t page);

/* While a fork waits, all purging ends as soon as it can: after a millisecond's work, some thousand pages. A count, so
 * that a purger finds out about a stop that is over when it looks: it rises by one at each beginning and end. All
 * accesses are relaxed: who saw a value sees no earlier one (coherence), and it tells of nothing else. */
HIDDEN extern uint32_t purging_stops; /* atomic: odd while purging stops; changed by purge_stop (purge.h) */
static inline bool is_purging_stopped(void) { return __atomic_load_n(&purging_stops, __ATOMIC_RELAXED) % 2 != 0; }

/* Time for only_aged: pages that are dirty now are aged from now on, until they are taken. */
HIDDEN void pages_age(void);

/* Gives whole chunks at the end of the zone back that are free and clean, and what the system charges for them: limits
 * of address space and of data, and commit. After pages_purge(0), when the program idles or the system has no more. At
 * least 64 MiB go, all unless purging stops. Returns the pages. */
HIDDEN size_t pages_shrink(void);

/* The same at a tick: at most 64 MiB, and what the heap may soon grow by stays. */
HIDDEN void pages_shrink_in_part(void);

/* Dirty pages now, without a lock: for policies. */
HIDDEN size_t pages_dirty(void);
HIDDEN size_t pages_purgeable(void); /* dirty ones without those that are known not to go (G4) */
HIDDEN uint64_t pages_takes(void);   /* ever: a sign of life */
HIDDEN size_t pages_top(void);       /* below the highest that was used since the zone shrank */
HIDDEN size_t pages_top_ever(void);  /* below the highest ever used */
HIDDEN size_t pages_used(void);      /* taken and not given back: the size of the heap as policies see it */

HIDDEN struct pages_account pages_account(void);
HIDDEN void pages_check(void); /* asserts G1-G4 */

HIDDEN void pages_lock_all(void);
HIDDEN void pages_unlock_all(void);
HIDDEN void pages_reset_locks(void);

#endif
