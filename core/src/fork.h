/* fork.h: makes fork(2) safe at any moment of a multi-threaded parent, and cheap for children that exec.
 *
 * The prepare handler takes every lock, in the order of their ranks, so that the child's copy of the metadata is
 * whole. Other libraries' handlers may still allocate in this thread meanwhile (K3 in lock.h).
 *
 * A signal handler that forks may have interrupted its own thread anywhere in here, under locks. It must not hang: it
 * skips the locks that it can't have (K4) and changes nothing. Its child must return from the handler, execute a
 * program or end. When it returns, it goes on where the thread was interrupted, and what that was changing becomes
 * whole. What another thread was changing while it waited for a lock that was skipped does not: a child of several
 * threads may only call what is safe in signal handlers, and what the janitor had taken out of the heap is lost to the
 * child (docs/decisions/0017).
 *
 * Signals stay blocked from the prepare handler to the end of the other two, so that no handler forks in between. */
#ifndef SNUG_FORK_H
#define SNUG_FORK_H

#include "base.h"

/* Registers the handlers. Called once, after the first allocation is possible: registering may allocate. */
HIDDEN void fork_register_handlers(void);

/* At the next fork the parent seals its slabs, too: after malloc_trim, which a server calls when it has loaded all that
 * its workers shall share. */
HIDDEN void fork_seal_parent_next(void);

/* All locks, in order: for fork, and for walks over everything. */
HIDDEN void fork_lock_all(void);
HIDDEN void fork_unlock_all(void);

#endif
