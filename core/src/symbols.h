/* symbols.h: functions of the other libraries of the process, by their names.
 *
 * As dlsym(3) finds them, but without it: before glibc 2.34 a program need not have it. In a program without a dynamic
 * loader nothing is found. The loader's list of libraries is locked meanwhile: not for fast paths, and not for a child
 * of fork(2). */
#ifndef SNUG_SYMBOLS_H
#define SNUG_SYMBOLS_H

#include "base.h"
#include "symbol_table.h"

/* What other libraries are bound to: the first function of that name, in the program or a library; NULL: none. */
HIDDEN void *symbols_first(const char *name);

/* The same into a variable that points to a function. False: there is none, and the variable is NULL. */
HIDDEN bool symbols_function(void *function, const char *name);

/* The first variable of that name, or the calling thread's if each has one, once that exists; NULL: none. */
HIDDEN void *symbols_variable(const char *name);

/* What this library stands before: the next function of that name behind it, or, if it was opened late, in one that was
 * there before; NULL: none. */
HIDDEN void *symbols_next(const char *name);

/* The symbols of the library that an address lies in. False: it is in none that has any. */
HIDDEN bool symbols_of(const void *address, struct symbol_table *table);

#endif
