/* maintain.h: the hook by which slow paths pay for upkeep: a little each, never in a fast path. */
#ifndef SNUG_MAINTAIN_H
#define SNUG_MAINTAIN_H

#include "base.h"
#include "cache.h"
#include "large.h"
#include "pages.h"
#include "purge.h"

enum {
  MAINTAIN_PERIOD = 64,    /* slow paths between two looks at the clock */
  MAINTAIN_BIG_BLOCK = 16, /* what a run or a large block counts for */
};

/* Atomic: called after each tick that a slow path made, with no lock held; NULL: nothing is. */
HIDDEN extern void (*maintain_after_tick)(void);

HIDDEN void maintain_look_at_clock(const struct cache *own, uint32_t weight);

HIDDEN void maintain_start_janitor(void);

/* Enough more was freed than at the last look, here or at a tick: it may be the last before the program idles. */
HIDDEN void maintain_look_for_janitor(void);

/* Gives everything back that can be, the caller's own cache included. Returns the bytes. No lock is held. */
HIDDEN size_t maintain_give_all_back(void);

/* If this memory is a copy that clone(2) made without our handlers, makes it this process's own. */
HIDDEN void maintain_claim_copy(void);

/* Has the ends of threads looked at as well (cache_after_thread). Called once, at start. */
HIDDEN void maintain_start(void);

/* At the end of every slow path, with no lock held. */
static ALWAYS_INLINE void maintain(uint32_t weight) {
  size_t dirty = pages_dirty() + large_retained_pages();
  if (unlikely(dirty > __atomic_load_n(&purge_due_pages, __ATOMIC_RELAXED))) purge_excess();
  size_t freed = dirty + slab_touched_pages() + (size_t)cache_ended_count() * CACHE_TOUCHED_PAGES;
  if (unlikely(freed > __atomic_load_n(&purge_look_pages, __ATOMIC_RELAXED))) maintain_look_for_janitor();
  this_thread.upkeep_due += weight;
  if (likely(this_thread.upkeep_due < MAINTAIN_PERIOD)) return;
  this_thread.upkeep_due = 0;
  maintain_look_at_clock(this_thread.own, weight);
}

/* The same after a run or a large block was freed: a few of them may be all that a program frees before it idles. */
static ALWAYS_INLINE void maintain_freed_big(void) {
  maintain(1);
  if (purge_janitor_is_worth_for_pages()) maintain_start_janitor();
}

#endif
