/* prefixed.c: the core for libsnug-prefixed.a, which serves a part of a program beside the program's own allocator.
 *
 *  X1  The linker sees names that begin with snug_, and no others: the Makefile makes all others local. What is
 *      neither an allocation nor a statistic (the calls of process.c, C++'s operators) is nobody's then, and falls away
 *      where the program is linked with --gc-sections.
 *  X2  No other library sees any: two plug-ins may each have a copy.
 *  X3  What is said to the program's allocator is not for this one: LD_PRELOAD, MALLOC_CONF, MALLOC_ARENA_MAX.
 *  X4  It starts no thread unless asked (background:1), since it does not see how the program drops privileges. Nor does
 *      it see a sandbox that the program enters: that takes snug_enter_sandbox.
 *  X5  musl opens no plug-in that wants thread-local variables at fixed offsets. So they are found by a call there, which
 *      the linker takes out of programs. A plug-in has no helper thread then: a call would find nothing in its block. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <features.h>
#ifndef __GLIBC__
#define FIXED_TLS
#define TLS_BY_CALL 1
#endif
#include "prefixed_names.h"

#define SNUG_PREFIXED 1
#define EXPORT __attribute__((visibility("hidden")))
#include "../src/snug.c"
