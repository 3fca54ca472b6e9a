/* jemalloc/jemalloc.h: jemalloc's calls beside malloc(3), as snug answers them: for programs written for jemalloc that
 * are compiled for libsnug.so, or for its other file libjemalloc.so.2. Written for snug; docs/how-to/jemalloc.md says
 * what each call does here, and what is not there.
 *
 * All functions are safe to call from any thread; none is async-signal-safe.
 */
#ifndef SNUG_JEMALLOC_H
#define SNUG_JEMALLOC_H

#include <limits.h>
#include <malloc.h> /* malloc_usable_size */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <strings.h>

/* The interface is that of this release. At run time mallctl("version") says that it is snug, too. */
#define JEMALLOC_VERSION "5.3.1-0-snug"
#define JEMALLOC_VERSION_MAJOR 5
#define JEMALLOC_VERSION_MINOR 3
#define JEMALLOC_VERSION_BUGFIX 1
#define JEMALLOC_VERSION_NREV 0
#define JEMALLOC_VERSION_GID "snug"

/* Flags of the calls that end in x, to be ored. The last two are hints that snug does not need: any thread serves and
 * frees any block. */
#define MALLOCX_LG_ALIGN(lg) ((int)(lg))
#define MALLOCX_ALIGN(bytes) \
  ((int)((bytes) < (size_t)INT_MAX ? ffs((int)(bytes)) - 1 : ffs((int)((size_t)(bytes) >> 32)) + 31))
#define MALLOCX_ZERO ((int)0x40)
#define MALLOCX_TCACHE(id) ((int)(((unsigned)(id) + 2u) << 8))
#define MALLOCX_TCACHE_NONE MALLOCX_TCACHE(-1)
#define MALLOCX_ARENA(index) ((int)(((unsigned)(index) + 1u) << 20))

/* In place of an arena's number in names of mallctl: all of them. */
#define MALLCTL_ARENAS_ALL 4096
#define MALLCTL_ARENAS_DESTROYED 4097

#ifdef __cplusplus
extern "C" {
#endif

/* A block of at least size_bytes, more than 0. MALLOCX_ZERO: all that can be used of it is zero. NULL: no memory. */
void *mallocx(size_t size_bytes, int flags);

/* Makes the block at least size_bytes long; it may move. MALLOCX_ZERO: what it grew by is zero. NULL: no memory, the
 * block is as it was. */
void *rallocx(void *block, size_t size_bytes, int flags);

/* Makes it size_bytes long, if possible extra_bytes more, where it is. Returns the usable bytes that it then has. */
size_t xallocx(void *block, size_t size_bytes, size_t extra_bytes, int flags);

/* Usable bytes of a block; and of the one that mallocx would return, 0 if there can be none. */
size_t sallocx(const void *block, int flags);
size_t nallocx(size_t size_bytes, int flags);

/* Frees a block. sdallocx is told its size: what was asked for, or any number up to sallocx. */
void dallocx(void *block, int flags);
void sdallocx(void *block, size_t size_bytes, int flags);

/* Reads a value by its name into *old (*old_bytes: the space there, then the size of the value), and writes a new one,
 * or acts; each may be NULL. Returns 0, or ENOENT: no such name; EINVAL: *old_bytes or new_bytes is not the size of the
 * value (as much as fits is read), or it can't be that; EPERM: it is not to be read, or not to be written; EAGAIN. */
int mallctl(const char *name, void *old, size_t *old_bytes, void *new_value, size_t new_bytes);

/* The same for names that are used often: first turned into numbers, one for each part of the name. Those that stand
 * for an arena's number may be changed. *mib_length: the room in mib, then the parts of the name. */
int mallctlnametomib(const char *name, size_t *mib, size_t *mib_length);
int mallctlbymib(const size_t *mib, size_t mib_length, void *old, size_t *old_bytes, void *new_value, size_t new_bytes);

/* Statistics for people, or as JSON if "J" is among the letters; g, m, a, b and l leave parts out. write gets pieces of
 * text; NULL: they go to malloc_message, and that is NULL: to stderr. */
void malloc_stats_print(void (*write)(void *context, const char *text), void *context, const char *letters);

/* Settings of the program's own, as MALLOC_CONF has them: define it as const char *malloc_conf = "narenas:2". */
extern const char *malloc_conf;

/* Where messages go; NULL: stderr. */
extern void (*malloc_message)(void *context, const char *text);

#ifdef __cplusplus
}
#endif

/* Names under which jemalloc's own header offers the same. */
#define je_mallocx mallocx
#define je_rallocx rallocx
#define je_xallocx xallocx
#define je_sallocx sallocx
#define je_nallocx nallocx
#define je_dallocx dallocx
#define je_sdallocx sdallocx
#define je_mallctl mallctl
#define je_mallctlnametomib mallctlnametomib
#define je_mallctlbymib mallctlbymib
#define je_malloc_stats_print malloc_stats_print
#define je_malloc_usable_size malloc_usable_size
#define je_malloc_conf malloc_conf
#define je_malloc_message malloc_message
#define je_malloc malloc
#define je_calloc calloc
#define je_realloc realloc
#define je_free free
#define je_posix_memalign posix_memalign
#define je_aligned_alloc aligned_alloc

#endif
