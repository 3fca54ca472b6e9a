/* snug.h: what snug offers beside malloc(3).
 *
 * Nothing here is needed to use snug: preload libsnug.so or link with -lsnug and malloc is snug. A program
 * that must also run without it declares these functions weak and tests for NULL.
 * All functions are safe to call from any thread; none is async-signal-safe.
 */
#ifndef SNUG_H
#define SNUG_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Version of the library that is active, as "0.1.0". Never NULL. */
const char *snug_version(void);

/* A moment's account of the heap. All in bytes unless named otherwise. */
struct snug_stats {
  uint64_t live_requested_bytes; /* what the program asked for and has not freed; sampled for small blocks */
  uint64_t live_allocated_bytes; /* the same with rounding to size classes and pages; exact when idle */
  uint64_t cached_bytes;         /* freed blocks kept by threads for reuse */
  uint64_t slab_free_bytes;      /* free blocks in partly used slabs, without pages given back */
  uint64_t dirty_bytes;          /* free pages that still hold memory */
  uint64_t metadata_bytes;       /* snug's own tables */
  uint64_t resident_bytes;       /* estimate of what is resident (an upper bound) */
  uint64_t mapped_bytes;         /* heap in use or free, and large mappings; not the reserved address space */
  uint64_t purged_bytes;         /* given back to the kernel so far */
  uint64_t caches;               /* thread caches: count */
  uint64_t arenas;               /* arenas in use: count */
};

/* Fills *stats. stats_size_bytes is sizeof(struct snug_stats) as the caller compiled it: later versions only add
 * fields at the end, and fields the library does not know are zeroed.
 * Returns 0, or -1 with errno EINVAL if stats is NULL. */
int snug_stats(struct snug_stats *stats, size_t stats_size_bytes);

/* Writes the statistics as one JSON object, with rows for arenas and size classes, followed by a newline.
 * write is called with successive pieces (length in bytes) and context; it must not allocate.
 * Returns 0, or -1 with errno EINVAL if write is NULL. */
int snug_stats_json(void (*write)(void *context, const char *text, size_t length), void *context);

/* Gives every free page back to the kernel and empties the caches of idle threads.
 * Returns the bytes given back. malloc_trim(0) does the same. */
size_t snug_purge(void);

/* Call this before the program enters a sandbox (seccomp) in a way that snug cannot see: by a system call of its own
 * instead of libc's prctl(2) or syscall(2), or in a program that is linked with libsnug-prefixed.a. From then on
 * snug makes only the system calls that any malloc makes, for good, and its helper thread has ended. */
void snug_enter_sandbox(void);

/* Walks all metadata and ends the process with a message if an invariant does not hold.
 * Costs milliseconds per GB of heap and holds all locks meanwhile: for tests and debugging.
 * Returns the number of slabs checked. */
size_t snug_check(void);

#ifdef __cplusplus
}
#endif
#endif
