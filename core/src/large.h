/* large.h: blocks of 1 MiB and more, each with a mapping of its own.
 *
 * It does not know policies. The kernel grows and moves such a block by its page tables (mremap), without a copy.
 * A hash table from address to sizes lies outside the blocks; free ones are retained for reuse until purged
 * (docs/decisions/0016).
 *
 *  L1  The table holds exactly the live blocks, and the ranges of L3; a block under mremap is in no table and has no
 *      other name meanwhile.
 *  L2  A retained mapping is in no table, and its memory is dirty. It may be protected, as the program left it.
 *  L3  A range that the system refused to unmap, since that needs one mapping more than it allows, stays mapped without
 *      memory, and has two rows: by where it begins and by where it ends. No two touch each other.
 */
#ifndef SNUG_LARGE_H
#define SNUG_LARGE_H

#include "base.h"

enum {
  LARGE_MIN_BYTES = 1 << 20,
  LARGE_HUGE_PAGES_BYTES = 32 << 20, /* one that begins so long has the system's setting for huge pages */
};

HIDDEN bool large_init(void);

/* A block of size_bytes at a multiple of alignment (a power of two). *clean: it reads as zero. NULL: no memory. */
HIDDEN void *large_take(size_t size_bytes, size_t alignment, bool *clean);

/* Gives a block back. Returns false when p is not the start of a live large block. */
HIDDEN bool large_give(void *p);

/* Usable bytes of the live block that starts at p; 0 when there is none. */
HIDDEN size_t large_size(const void *p);

/* The same for a handler whose thread may be amid a change here (K5). */
HIDDEN size_t large_size_amid(const void *p);

/* Makes the block size_bytes long, in place or elsewhere; its contents stay. NULL: not possible, nothing changed. */
HIDDEN void *large_resize(void *p, size_t size_bytes);

/* The same in place only: the kernel may find no room behind the block. */
HIDDEN bool large_resize_in_place(void *p, size_t size_bytes);

/* If p points into a live block, its start; else NULL. Slow: for messages. */
HIDDEN void *large_block_around(const void *p);

/* Whether p was among the last large blocks to be freed: for messages. */
HIDDEN bool large_was_freed(const void *p);

HIDDEN size_t large_retained_pages(void);

HIDDEN uint64_t large_frees(void); /* ever: a sign of life */

/* Unmaps retained mappings until at most keep_pages stay, or purging stops. Returns the pages that went. With only_aged
 * those stay that were retained after the last large_age, if one of them served a block again since then. */
HIDDEN size_t large_purge(size_t keep_pages, bool only_aged);

/* A tick: what is retained now is aged from now on, until it serves a block. */
HIDDEN void large_age(void);

/* Tries to unmap a few of the ranges of L3 again. */
HIDDEN void large_retry_unmaps(void);

HIDDEN void large_check(void); /* asserts L1 - L3 */
HIDDEN void large_lock_all(void);
HIDDEN void large_unlock_all(void);
HIDDEN void large_reset_locks(void);

#endif
