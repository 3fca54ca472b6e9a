/* hooks.h: when libc calls the library: at the end of a thread, and around a fork. */
#ifndef SNUG_HOOKS_H
#define SNUG_HOOKS_H

#include "base.h"

/* At start: ends(thread) is to be called at the end of each thread that calls hooks_thread_begins. False: that can't
 * be. */
HIDDEN bool hooks_watch_threads(void (*ends)(void *));
HIDDEN bool hooks_thread_begins(void *thread); /* false: there is no memory for that. NULL: the caller is let off */

/* From now on nobody is called at the end of a thread, and hooks_thread_begins says false. Waits for those that end. */
HIDDEN void hooks_watch_no_thread(void);

/* As pthread_atfork. libc forgets them when dlclose takes the library away. */
HIDDEN void hooks_at_fork(void (*prepare)(void), void (*parent)(void), void (*child)(void));

/* In libsnug-prefixed.a: from now on they do nothing. Waits for forks that are under way. */
HIDDEN void hooks_watch_no_fork(void);

#endif
