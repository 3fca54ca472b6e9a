/* control.h: obeys what another process of the same user asks for, by the words of the counters page: a purge, or
 * another value of a setting. It does not know who asks: whoever can write there owns the process anyway.
 *
 *  Q5  Looked at in slow paths and by the janitor only, at every such look, until answered: no signal, no thread.
 *  Q6  Any content of the words is safe: a request does only what the program itself could ask for (snug_purge), or
 *      what SNUG could have said at start.
 *  Q7  Answers are written under the purge lock. When somebody holds it, fork among others, the request waits; so does
 *      one for a purge that a fork stopped.
 */
#ifndef SNUG_CONTROL_H
#define SNUG_CONTROL_H

#include "base.h"
#include "cache.h"
#include "counters.h"

HIDDEN extern uint64_t control_answered; /* atomic: the check of the last request answered, out of others' reach */

/* Says in the counters page what may be asked. */
HIDDEN void control_announce(void);

HIDDEN void control_obey(const struct cache *own);

/* Answers what is asked, if something is. own is the caller's cache, NULL for the janitor. No lock is held. */
static inline void control_look(const struct cache *own) {
  uint64_t check = counter_get(&snug_counters.request_check);
  if (unlikely(check != __atomic_load_n(&control_answered, __ATOMIC_RELAXED))) control_obey(own);
}

/* Whether a request waits for an answer. */
HIDDEN bool control_is_asked(void);

/* What SNUG_REQUEST_SET does to the options background and profile, for the program itself. False: the lock can't be
 * had, as inside a fork. */
HIDDEN bool control_switch_background(bool on);
HIDDEN bool control_set_profile(uint32_t setting);

/* The purge lock, for which others that have it are waited for, some seconds at most. purge_unlock gives it back. */
HIDDEN bool control_take_lock(void);

/* In a forked child: what the parent is asked for is not for the child. */
HIDDEN void control_after_fork(void);

#endif
