/* control.h: obeys what another process of the same user asks for, by the words of the counters page: a purge, or
 * another value of a setting. It does not know who asks: whoever can write there owns the process anyway.
 *
 *  Q7  Looked at in slow paths and by the janitor only, at every such look, until answered: no signal, no thread.
 *  Q8  Any content of the words is safe: a request does only what the program itself could ask for (snug_purge), or
 *      what SNUG could have said at start.
 *  Q9  Answers are written under the purge lock. When somebody holds it, fork among others, the request waits; so does
 *      one for a purge that a fork stopped.
 */
#ifndef SNUG_CONTROL_H
#define SNUG_CONTROL_H

#include "base.h"
#include "cache.h"
#include "counters.h"
#include "sys.h"

/* Atomic, out of others' reach: the check of the last request answered, the last number of wishes that was looked for,
 * and until when samples are leased, 0 if they are not: then `profile` is set for good. */
HIDDEN extern uint64_t control_answered, control_heard, control_lease_until_ns;

/* Says in the counters page what may be asked. */
HIDDEN void control_announce(void);

HIDDEN void control_obey(const struct cache *own);

/* Whether a wish may wait, or a lease is over. */
static inline bool control_has_wishes(void) {
  uint64_t until_ns = __atomic_load_n(&control_lease_until_ns, __ATOMIC_RELAXED);
  return counter_get(&snug_counters.wished) != __atomic_load_n(&control_heard, __ATOMIC_RELAXED) ||
         (until_ns != 0 && until_ns <= sys_coarse_time_ns());
}

/* Answers what is asked, if something is. own is the caller's cache, NULL for the janitor. No lock is held. */
static inline void control_look(const struct cache *own) {
  uint64_t check = counter_get(&snug_counters.request_check);
  bool is_asked = check != __atomic_load_n(&control_answered, __ATOMIC_RELAXED);
  if (unlikely(is_asked || control_has_wishes())) control_obey(own);
}

/* Whether a request waits for an answer. */
HIDDEN bool control_is_asked(void);

/* What SNUG_REQUEST_SET does to the options background and profile, for the program itself. False: the lock can't be
 * had, as inside a fork. */
HIDDEN bool control_switch_background(bool on);
HIDDEN bool control_set_profile(uint32_t setting);

/* Whether samples are on, and not by a lease alone. */
HIDDEN bool control_samples_for_good(void);

/* The purge lock, for which others that have it are waited for, some seconds at most. purge_unlock gives it back. */
HIDDEN bool control_take_lock(void);

/* In a forked child: what the parent is asked for is not for the child. */
HIDDEN void control_after_fork(void);

#endif
