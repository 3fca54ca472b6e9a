/* libc.h: what is taken from the program's C library, which may be any: glibc since 2.17, musl, or none.
 *
 * One library serves them all because it asks for nothing by force (docs/decisions/0025):
 *
 *  N1  It needs no library by name, and no version of a symbol.
 *  N2  All references to libc are weak: a program without libc starts, and the library does nothing in it.
 *  N3  What not every libc has, or not in its own file, is asked for before it is called; there is another way.
 *  N4  Nothing is taken that glibc chooses at run time, as it does with memcpy: see memory.c.
 *
 * `make check` proves N1, N2 and N4 of the built library. The archive asks by force (core/archive/needed.c). */
#ifndef SNUG_LIBC_H
#define SNUG_LIBC_H

#include <link.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <unistd.h>

#pragma weak __errno_location
#pragma weak abort
#pragma weak dl_iterate_phdr
#pragma weak environ
#pragma weak fwrite
#pragma weak getauxval
#pragma weak unsetenv

/* In glibc's loader only. */
#pragma weak __libc_stack_end
extern void *__libc_stack_end;

/* Outside of libc before glibc 2.34. */
#pragma weak pthread_key_create
#pragma weak pthread_key_delete
#pragma weak pthread_setspecific

extern int *__errno_location(void);

/* False in a program without libc, in which nothing of ours is to run. */
static inline bool libc_is_there(void) { return __errno_location != NULL; }

#endif
