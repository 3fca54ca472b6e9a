/* base.h: words that every module uses. */
#ifndef SNUG_BASE_H
#define SNUG_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "libc.h"

#define SNUG_VERSION "0.2.0" /* VERSION; `make check` compares */

/* core/archive/prefixed.c defines both, and then there is another allocator in the process, which is the program's. */
#ifndef SNUG_PREFIXED
#define SNUG_PREFIXED 0
#define EXPORT __attribute__((visibility("default")))
#endif
#define HIDDEN __attribute__((visibility("hidden")))
#define NEVER_INLINE __attribute__((noinline))
#define ALWAYS_INLINE inline __attribute__((always_inline))
#define COLD __attribute__((cold, noinline))

/* Thread-local variables at fixed offsets from the thread pointer: one instruction, and no call into libc. glibc keeps
 * room for a few bytes of them in libraries opened late; musl keeps none, and refuses to open the library late.
 * TLS_BY_CALL: the offsets are fixed in programs alone (core/archive/prefixed.c). */
#ifndef FIXED_TLS
#define FIXED_TLS __attribute__((tls_model("initial-exec")))
#define TLS_BY_CALL 0
#endif

#define likely(condition) __builtin_expect(!!(condition), 1)
#define unlikely(condition) __builtin_expect(!!(condition), 0)

/* ASSERT costs nothing in a release; builds with -DSNUG_DEBUG=1 check it and stop. */
#ifndef SNUG_DEBUG
#define SNUG_DEBUG 0
#endif
_Noreturn void fatal_assert(const char *condition, const char *file, int line);
#define ASSERT(condition) ((SNUG_DEBUG && !(condition)) ? fatal_assert(#condition, __FILE__, __LINE__) : (void)0)

/* The logical page: the unit of the heap, whatever the system's page size is. */
enum { PAGE_SHIFT = 12, PAGE_BYTES = 1 << PAGE_SHIFT };

/* As memmove to a lower address, which is another library's to define: the janitor calls none of theirs. The empty
 * statement keeps the compiler from making a call of the loop. */
static inline void copy_pointers(void **to, void *const *from, size_t count) {
  for (size_t i = 0; i < count; i++) {
    to[i] = from[i];
    __asm__ volatile("" ::: "memory");
  }
}

/* The function or variable of a public name that the loader binds for all, which need not be ours: clang would take
 * ours, and believes a hidden name of it to be equal. */
#define AS_BOUND(name)                        \
  ({                                          \
    __typeof__(&(name)) bound_##name = &name; \
    __asm__("" : "+r"(bound_##name));         \
    bound_##name;                             \
  })

static inline size_t round_up(size_t value, size_t multiple) { return (value + multiple - 1) & ~(multiple - 1); }
static inline size_t round_down(size_t value, size_t multiple) { return value & ~(multiple - 1); }

#endif
