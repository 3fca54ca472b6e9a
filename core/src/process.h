/* process.h: making way for a call by which the program changes what its process may do.
 *
 * A call is passed on between process_make_way and process_close_way. But for a sandbox's, signals are blocked
 * meanwhile, except the one by which libc has all threads make the call. In a child of vfork(2) neither does anything:
 * the memory is the parent's, and the call does not concern it (docs/decisions/0011). */
#ifndef SNUG_PROCESS_H
#define SNUG_PROCESS_H

#include "base.h"

enum process_way {
  WAY_NONE,       /* nothing is to be done */
  WAY_PRIVILEGES, /* the janitor has ended: whoever drops privileges must not leave it with them */
  WAY_ALONE,      /* and has left the process: the kernel wants a single thread */
  WAY_SANDBOX,    /* the janitor has ended and the rights, too; for good if the call succeeds */
};

/* Returns what process_close_way wants. */
HIDDEN enum process_way process_make_way(enum process_way wanted);
HIDDEN void process_close_way(enum process_way made, bool succeeded);

/* Gives all address space back that is reserved and not used. No lock is held. */
HIDDEN void process_release_reservations(void);

/* Calls are passed on to the libraries after this one. In programs linked with the archive they go to the kernel. */
HIDDEN void process_pass_on_to_libraries(void);

#endif
