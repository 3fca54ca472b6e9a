/* aside.h: blocks for signal handlers that interrupted their thread while that changed the heap, and for what a thread
 * calls of other libraries while it sets the heap up.
 *
 * Until the handler returns and the change becomes whole, a list of slabs or of free pages may be half changed, and the
 * thread itself may have locks (K5). So it leaves all of the heap alone: what the handler allocates comes from a range
 * that has nothing to do with it, and what it frees waits until the change is whole. The same goes for the child of a
 * handler that forks (K4). This does not know what was being changed. Most processes never have the range.
 *
 * The range is cut into pieces of powers of two, each with a header; a free one is used again for the same size:
 *
 *      | header | block ...          | header | gap of alignment | header | block ... | not used yet ...
 *
 * A header before each block says where its piece begins, how long it is, and whether the block is live.
 * There is no lock, as a handler may interrupt this module, too: free pieces are lists, whose first one changes by one
 * compare-and-exchange, with a count of such changes beside it.
 */
#ifndef SNUG_ASIDE_H
#define SNUG_ASIDE_H

#include "base.h"
#include "cache.h"

struct aside_range {
  char *start;  /* atomic; NULL: there is none in this process */
  size_t bytes; /* atomic; shrinks when the program limits its address space */
};

HIDDEN extern struct aside_range aside_range;

/* Whether p lies in the range. */
static ALWAYS_INLINE bool aside_holds(const void *p) {
  return unlikely(aside_range.start != NULL) && (size_t)((const char *)p - aside_range.start) < aside_range.bytes;
}

/* Before the program limits its address space. */
HIDDEN void aside_release_reservations(void);

/* Whether this thread may not use the heap: asked at the entry of what would. */
static ALWAYS_INLINE bool aside_is_begun(void) { return unlikely(cache_thread_is_inside()); }

/* A block, not zeroed. NULL: no memory. */
HIDDEN void *aside_take(size_t alignment, size_t size_bytes);

/* Gives a block of the range back; ends the process unless p is one. */
HIDDEN void aside_give(void *p);
HIDDEN size_t aside_size(const void *p);

/* Keeps a block that is freed until the heap may be used. Where it may be written to, that takes no memory. */
HIDDEN void aside_keep(void *block, bool may_write);

/* Takes all that this thread keeps, as a list; its blocks, one at a time. NULL: no more. */
HIDDEN void *aside_all_kept(void);
HIDDEN void *aside_next_kept(void **list);

#endif
