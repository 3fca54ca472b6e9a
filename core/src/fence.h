/* fence.h: SNUG=guard_samples, sampled blocks that end at a page that can't be touched, as GWP-ASan has them.
 *
 * It does not know when samples are taken. Of a range of addresses of its own, made at first use:
 *
 *      | fence | slot 0: not accessible | block   | fence | slot 1: ...             | fence | ...
 *
 * A slot is up to 32 KiB; only the pages that its block reaches into are accessible and hold memory. An access beyond
 * the end or after the free faults at once, and is told with the stacks that allocated and freed the block (fault.h,
 * report.h). A block begins at a multiple of 16, so up to 15 bytes remain between its end and the fence: they are
 * looked at when it is freed. Slots are used again in the order of their frees. When all are in use the next samples
 * are ordinary blocks.
 *
 *  O1  A slot is live, or none of its pages can be touched (where the kernel refuses that: none holds memory).
 *  O2  Its state changes by compare and exchange: nothing to lock, so handlers of signals can read it, and a child of
 *      fork has it as it was. What was about to change in another thread then stays so, and the child gives it up.
 */
#ifndef SNUG_FENCE_H
#define SNUG_FENCE_H

#include "base.h"
#include "options.h"

enum {
  FENCE_SLOTS = 256, /* what the setting 1 means */
  FENCE_SLOTS_MAX = 4096,
};

struct fence_range {
  uintptr_t start; /* atomic; 0: none yet */
  size_t bytes;
};

HIDDEN extern struct fence_range fence_range;

static inline bool fence_is_on(void) { return __atomic_load_n(&options.guard_samples, __ATOMIC_RELAXED) != 0; }

/* Whether p lies in the range. */
static ALWAYS_INLINE bool fence_holds(const void *p) {
  uintptr_t start = __atomic_load_n(&fence_range.start, __ATOMIC_ACQUIRE);
  return unlikely((uintptr_t)p - start < fence_range.bytes) && start != 0;
}

/* As block_take_aligned; *clean: it reads as zero. NULL: there is no slot for it. */
HIDDEN void *fence_take(size_t alignment, size_t size_bytes, bool *clean);

/* The stack that asked for the block, an offset in the table of samples; before anybody else has it. */
HIDDEN void fence_note(const void *block, uint32_t stack);

/* Gives a block back; `stack` is where. Both end the process unless p, which fence_holds, is a live block and nothing
 * was written around it. */
HIDDEN void fence_give(void *p, uint32_t stack);
HIDDEN size_t fence_size(const void *p); /* as asked for: there is nothing more to use */

HIDDEN uint64_t fence_bytes(void); /* that can be touched */
HIDDEN uint64_t fence_live(void);  /* blocks */

/* In a child of fork, unless it interrupted its thread (K4). */
HIDDEN void fence_after_fork(void);

#endif
