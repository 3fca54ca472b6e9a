/* janitor.h: a helper thread that gives memory back while the program does nothing. It exists only while there is
 * something to give back.
 *
 * Not made by pthread_create: slow paths of malloc run inside libc's own locks (a thread's stack is freed, a library is
 * being loaded), where pthread_create would wait for itself. It has no libc thread state, uses only sys.h, and receives
 * no signal. (docs/decisions/0005)
 *
 *  J1  At most one runs, and never across a fork: the prepare handler stops it and waits (but K4), before all others
 *      who want to stop it.
 *  J2  It touches no thread-local variable of this library, and calls no function of another one.
 *  J3  It has the privileges of the thread that started it, opens files only where the program's descriptors are not
 *      its own, which it leaves in a container with a memory limit, and ends before the program drops privileges or
 *      enters a sandbox by libc's functions (process.c). In a handler that interrupted its thread under a lock for
 *      which the janitor waits, as soon as it has that lock (K4). Drops that go around libc it outlives by a second at
 *      most while the program allocates: then a thread of the program replaces it.
 */
#ifndef SNUG_JANITOR_H
#define SNUG_JANITOR_H

#include "base.h"

HIDDEN bool janitor_is_running(void);

/* Whether it runs and will see what was freed up to now. */
HIDDEN bool janitor_watches(void);

/* Starts it unless it watches, is switched off (background:0), or the system refuses: then ticks alone do the work. */
HIDDEN void janitor_start(void);

/* Has the caller's thread replace one that has run for long (J3). */
HIDDEN void janitor_replace_if_old(void);

/* Ends it and waits until it runs no more. It will not start again before janitor_resume. */
HIDDEN void janitor_stop(void);

/* The same, until the kernel does not count it as a thread of the process any more. */
HIDDEN void janitor_stop_and_leave(void);

/* While a fork of the caller's waits to stop it: whoever else wants to stop it lets that fork go first. */
HIDDEN void janitor_await_fork(bool on);

/* It may start again. */
HIDDEN void janitor_resume(void);

/* Starts it if janitor_stop, by this thread or another, ended one or kept one from starting, and there is still
 * something for it to do: the program may idle from now on. Not if that many have started in a row, each within 10 ms
 * of the one before. */
HIDDEN void janitor_start_again(uint32_t most_quick_starts);

/* In a child, where it does not exist: the memory is a copy of the parent's. */
HIDDEN void janitor_forget(void);

#endif
