/* fork.h: makes fork(2) safe at any moment of a multi-threaded parent, and cheap for children that exec.
 *
 * The prepare handler takes every lock, in the order of their ranks, so that the child's copy of the metadata is
 * whole. Other libraries' handlers may still allocate in this thread meanwhile (K3 in lock.h). */
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
