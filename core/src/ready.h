/* ready.h: whether the heap is set up, asked by every entry that may be the first. What setting up means is in start.c.
 */
#ifndef SNUG_READY_H
#define SNUG_READY_H

#include "base.h"

enum { START_NONE, START_RUNNING, START_DONE };

HIDDEN extern uint32_t start_state; /* atomic */

/* Sets the heap up, or waits until another thread has. The first call may come from the dynamic loader, before any
 * constructor and before libc has read its environment: so it does nothing else, and the settings come later. */
HIDDEN void start_now(void);

static ALWAYS_INLINE void start_if_needed(void) {
  if (unlikely(__atomic_load_n(&start_state, __ATOMIC_ACQUIRE) != START_DONE)) start_now();
}

#endif
