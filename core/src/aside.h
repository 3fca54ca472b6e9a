/* aside.h: blocks for the child of a signal handler that interrupted its thread while that changed the heap (K4).
 *
 * Until the handler returns and the change becomes whole, a list of slabs or of free pages may be half changed, so this
 * thread leaves all of the heap alone: what it allocates comes from a range that nobody else uses, and what it frees
 * waits. It does not know what was being changed. There is nothing here in any other process.
 *
 * The range is cut into pieces of powers of two, each with a header; a free one is used again for the same size:
 *
 *      | header | block ...          | header | gap of alignment | header | block ... | not used yet ...
 *
 * A header before each block says where its piece begins, how long it is, and whether the block is live. A handler that
 * interrupts this module, too, and forks, finds in its child no free piece and takes what was never used: so none is
 * given out twice. The free ones are lost to that child.
 */
#ifndef SNUG_ASIDE_H
#define SNUG_ASIDE_H

#include "base.h"

struct aside_range {
  char *start; /* NULL: there is none in this process */
  size_t bytes;
};

HIDDEN extern struct aside_range aside_range;

/* Whether p lies in the range. */
static ALWAYS_INLINE bool aside_holds(const void *p) {
  return unlikely(aside_range.start != NULL) && (size_t)((const char *)p - aside_range.start) < aside_range.bytes;
}

/* In every child of fork: where its thread is amid a change, it leaves the heap alone until that is whole. */
HIDDEN void aside_after_fork(void);

/* Before the program limits its address space. */
HIDDEN void aside_release_reservations(void);

HIDDEN bool aside_is_begun_slow(void);

/* Whether this thread may not use the heap. */
static ALWAYS_INLINE bool aside_is_begun(void) { return unlikely(aside_range.start != NULL) && aside_is_begun_slow(); }

/* A block, not zeroed. NULL: no memory. */
HIDDEN void *aside_take(size_t alignment, size_t size_bytes);

/* Gives a block of the range back; ends the process unless p is one. */
HIDDEN void aside_give(void *p);
HIDDEN size_t aside_size(const void *p);

/* Keeps a block of the heap that is freed until the heap may be used. The block is written to. */
HIDDEN void aside_keep(void *block);

/* What was kept, a block at a time, once the heap may be used; NULL: no more. */
HIDDEN void *aside_next_kept(void);

#endif
