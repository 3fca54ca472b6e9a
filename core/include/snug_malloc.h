/* snug_malloc.h: snug's malloc under names of its own, for programs that link libsnug-prefixed.a beside the malloc
 * that they have. `pkg-config --cflags --libs snug-prefixed`. snug.h declares what else there is.
 *
 * Never give a block of one allocator to the other. Each function does what malloc(3), C23, or jemalloc(3) says of the
 * one without the prefix. All are safe to call from any thread; none is async-signal-safe.
 *
 * snug replaces no function of libc here, and so does not see what the program does with itself:
 *   - it starts no helper thread unless SNUG=background:1 asks for one: call snug_purge when the program idles;
 *   - call snug_enter_sandbox before a seccomp filter comes into force;
 *   - dlclose(3) may take away a plug-in that it is linked into: its helper thread ends, and nothing calls it any more.
 *     Blocks stay where they are, for good; free them and call snug_purge before. Where other threads may be inside
 *     fork(2) at that very instant, link it with -Wl,-z,nodelete: then dlclose keeps it;
 *   - under musl, do not link it into a plug-in, a library that is opened late;
 *   - a limit on address space (RLIMIT_AS) counts what snug has reserved, unless it was set before the program started;
 *     one on locked memory (RLIMIT_MEMLOCK) always does, after mlockall.
 */
#ifndef SNUG_MALLOC_H
#define SNUG_MALLOC_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* malloc(3), posix_memalign(3), malloc_usable_size(3). Sizes and alignments in bytes; NULL with errno ENOMEM when
 * there is no memory. */
void *snug_malloc(size_t size_bytes);
void snug_free(void *block);
void *snug_calloc(size_t count, size_t each_bytes);
void *snug_realloc(void *block, size_t size_bytes);
void *snug_reallocarray(void *block, size_t count, size_t each_bytes);
int snug_posix_memalign(void **result, size_t alignment, size_t size_bytes);
void *snug_aligned_alloc(size_t alignment, size_t size_bytes);
void *snug_memalign(size_t alignment, size_t size_bytes);
void *snug_valloc(size_t size_bytes);
void *snug_pvalloc(size_t size_bytes);
size_t snug_malloc_usable_size(void *block);
int snug_malloc_trim(size_t pad_bytes);

/* C23: the size, and the alignment, that the block was asked for. Another one ends the program with a message. */
void snug_free_sized(void *block, size_t size_bytes);
void snug_free_aligned_sized(void *block, size_t alignment, size_t size_bytes);

/* jemalloc(3): flags are SNUG_ALIGN(bytes), a power of two, and SNUG_ZERO. errno stays as it is. */
#define SNUG_ALIGN(bytes) ((int)__builtin_ctzll(bytes))
#define SNUG_ZERO 0x40
void *snug_mallocx(size_t size_bytes, int flags);
void *snug_rallocx(void *block, size_t size_bytes, int flags);
size_t snug_xallocx(void *block, size_t size_bytes, size_t extra_bytes, int flags);
size_t snug_sallocx(const void *block, int flags);
size_t snug_nallocx(size_t size_bytes, int flags);
void snug_dallocx(void *block, int flags);
void snug_sdallocx(void *block, size_t size_bytes, int flags);

/* jemalloc(3): values by name, and statistics as text, or as JSON if "J" is among the letters. Without write text goes
 * to snug_malloc_message, and without that to stderr. */
int snug_mallctl(const char *name, void *old, size_t *old_bytes, void *new_value, size_t new_bytes);
int snug_mallctlnametomib(const char *name, size_t *mib, size_t *mib_length);
int snug_mallctlbymib(const size_t *mib, size_t mib_length, void *old, size_t *old_bytes, void *new_value,
                      size_t new_bytes);
void snug_malloc_stats_print(void (*write)(void *context, const char *text), void *context, const char *letters);
extern void (*snug_malloc_message)(void *context, const char *text);

#ifdef __cplusplus
}
#endif
#endif
