/* libc.h: what is taken from the program's C library, which may be any: glibc since 2.17, musl, or none.
 *
 * One library serves them all because it asks for nothing by force (docs/decisions/0025):
 *
 *  N1  It needs no library by name, and no version of a symbol.
 *  N2  All references to libc are weak: a program without libc starts, and the library does nothing in it.
 *  N3  What not every libc has, or not in its own file, is asked for before it is called; there is another way.
 *
 * `make check` proves N1 and N2 of the built library. The archive asks by force (core/archive/needed.c). */
#ifndef SNUG_LIBC_H
#define SNUG_LIBC_H

#include <stdbool.h>
#include <stddef.h>

#pragma weak __errno_location
#pragma weak abort
#pragma weak dl_iterate_phdr
#pragma weak fwrite
#pragma weak getauxval
#pragma weak getenv
#pragma weak strchr
#pragma weak strcmp
#pragma weak strcspn
#pragma weak strncmp
#pragma weak strstr
#pragma weak unsetenv

/* Outside of libc before glibc 2.34. */
#pragma weak pthread_key_create
#pragma weak pthread_setspecific

/* Compilers call these by themselves, and then don't look at the pragma. */
__asm__(".weak memcmp\n.weak memcpy\n.weak memmove\n.weak memset\n.weak strlen");

extern int *__errno_location(void);

/* False in a program without libc, in which nothing of ours is to run. */
static inline bool libc_is_there(void) { return __errno_location != NULL; }

#endif
