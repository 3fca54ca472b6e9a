/* fault.h: SIGSEGV, shared with the program: a look at each fault before the program's own handler, if it has one.
 *
 * It does not know what faults mean. The program's handler stays what it is to the program: what it sets later takes
 * effect at once, and we come in front of it again at the next fault_watch. Nothing is put in the place of libc's
 * functions for that, so a program that makes the system call itself is served, too.
 *
 *  F1  Each action of the program that we came in front of has a handler of ours to itself, for good. So what the
 *      program kept as "the action before" and sets again, or calls, leads to what was there then.
 *  F2  A handler of ours changes nothing that the kernel does for the program's: same flags, same mask, same arguments.
 *      If there was none, the kernel's own action follows, with the registers of the fault.
 *  F3  What a handler is told is trusted only if the kernel called it: programs call the one before theirs with less.
 *      If there was none before, such a call makes the kernel's action the process's: the access, made again, ends
 *      it.
 */
#ifndef SNUG_FAULT_H
#define SNUG_FAULT_H

#include "base.h"

/* Called in a signal handler with the address and the registers: no lock, no allocation. What follows is the program's
 * handler, or the end of the process. */
typedef void fault_watcher(const void *address, const void *context);

/* From now on the watcher, always the same, sees faults first. False: not, since the system call may not be made, or
 * the program has set too many handlers. No lock is held that is above the caches lock. */
HIDDEN bool fault_watch(fault_watcher *watcher);

#endif
