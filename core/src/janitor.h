/* janitor.h: a helper thread that gives memory back while the program does nothing. It exists only while there is
 * something to give back.
 *
 * Not made by pthread_create: slow paths of malloc run inside libc's own locks (a thread's stack is freed, a library is
 * being loaded), where pthread_create would wait for itself. It has no libc thread state, uses only sys.h, receives no
 * signal, and gives up its capabilities, since setuid(2) in the program does not reach it. (docs/decisions/0005)
 *
 *  J1  At most one runs, and never across a fork: the prepare handler stops it and waits (but K4).
 *  J2  It touches no thread-local variable of this library.
 */
#ifndef SNUG_JANITOR_H
#define SNUG_JANITOR_H

#include "base.h"

HIDDEN bool janitor_is_running(void);

/* Starts it unless it runs, is switched off (background:0), or the system refuses: then ticks alone do the work. */
HIDDEN void janitor_start(void);

/* Ends it and waits until it is gone. It will not start again while the caller is inside fork(). */
HIDDEN void janitor_stop(void);

/* After fork: in the parent and in the child it may start again. */
HIDDEN void janitor_after_fork(bool in_child);

#endif
