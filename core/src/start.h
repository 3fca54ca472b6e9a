/* start.h: the first call and the constructor. The first call may come from the dynamic loader, before any constructor
 * and before libc has read its environment; so it sets up the heap and nothing else, and the settings come later. */
#ifndef SNUG_START_H
#define SNUG_START_H

#include "base.h"

enum { START_NONE, START_RUNNING, START_DONE };

HIDDEN extern uint32_t start_state; /* atomic */

HIDDEN void start_now(void);

static ALWAYS_INLINE void start_if_needed(void) {
  if (unlikely(__atomic_load_n(&start_state, __ATOMIC_ACQUIRE) != START_DONE)) start_now();
}

#endif
