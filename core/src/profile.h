/* profile.h: samples of what the program allocates, by the setting `profile`: who asked for the memory that is live?
 *
 * It does not know how blocks are taken. Requests are counted down by their bytes (cache_counts in cache.h, for the
 * fast paths; here for all others) from a distance that is drawn anew for each sample (poisson.h). The block of a
 * sample comes from a reserved arena, if it has a class: its page's kind is of no thread's arena, so the fast path of
 * free comes to the slow one by itself, where it is taken off the table. Runs and large blocks come there anyway.
 *
 *  D1  While the setting is 0 a thread counts down from so much that it never gets there, and frees find no samples.
 *  D2  A thread that follows a setting drew its distance since. One that does not yet comes to a slow path at its next
 *      request: its count is used up (cache_attach), or it has no cache.
 *  D3  While a thread takes a sample none is taken of what it allocates meanwhile.
 *  D4  No lock of ours is held while a stack is walked; nothing is allocated, and the loader is not asked.
 */
#ifndef SNUG_PROFILE_CORE_H
#define SNUG_PROFILE_CORE_H

#include "arena.h"
#include "base.h"
#include "cache.h"
#include "options.h"
#include "profile_budget.h"
#include "profile_table.h"

enum { PROFILE_MEAN_BYTES = 512 << 10 }; /* what the setting 1 means */

HIDDEN extern uint32_t profile_arena; /* atomic: of sampled blocks; 0: none yet */

/* From now on the calling thread, and others as they come by, follow the setting. In the constructor, where more can be
 * got ready than later: may_begin says that samples may be asked for later on. */
HIDDEN void profile_start(bool may_begin);

/* Mean distance of samples in bytes, at first, by a setting that is not 0. */
HIDDEN uint64_t profile_wanted_mean(uint32_t setting);

/* The same now; while they are off, of the setting that they would be switched on by. */
HIDDEN uint64_t profile_mean_bytes(uint32_t setting);

/* profile_is_due, when something may be. */
HIDDEN bool profile_begin(size_t size_bytes);

/* In slow paths, once for each request: counts one that is longer than the fast paths', and says whether it is to be a
 * sample. Then profile_note follows. */
static ALWAYS_INLINE bool profile_is_due(size_t size_bytes) {
  struct thread *thread = &this_thread;
  if (size_bytes > CLASS_SMALL_MAX_BYTES) cache_counts(size_bytes <= PTRDIFF_MAX >> 8 ? size_bytes : 0);
  bool follows = thread->profile == __atomic_load_n(&options.profile, __ATOMIC_RELAXED);
  bool is_stale = thread->mean_bytes > __atomic_load_n(&profile_budget_stale_bytes, __ATOMIC_RELAXED);
  return unlikely(thread->until_sample < 0 || !follows || is_stale) && profile_begin(size_bytes);
}

/* The block was taken for the request, NULL: it could not be. No lock is held. */
HIDDEN void profile_note(const void *block, size_t size_bytes);

/* The stack of the caller, an offset in the table; 0: unknown. No lock is held. */
HIDDEN uint32_t profile_stack_here(void);

/* Takes a block that is freed, or about to move, off the table. */
static ALWAYS_INLINE void profile_forget(const void *block) {
  if (unlikely(profile_table_live() != 0)) profile_table_remove(block);
}

/* The same by its page's kind, 0 outside of the zone: only what can be a sample is looked for. */
static ALWAYS_INLINE void profile_forget_kind(const void *block, unsigned kind) {
  if (!is_class(kind) || kind_arena(kind) == __atomic_load_n(&profile_arena, __ATOMIC_RELAXED)) profile_forget(block);
}

/* In a forked child, with the locks reset: what is on the table is inherited. passes_over: as K4 says, it may be half
 * written, and is left alone for good. */
HIDDEN void profile_after_fork(bool passes_over);

#endif
