/* prefixed.h: gives the allocator and the program that tests it names of their own, by -include. A sanitizer's runtime
 * brings its own malloc, and needs it before the program's could work. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>

#define malloc snug_malloc
#define calloc snug_calloc
#define realloc snug_realloc
#define free snug_free
#define posix_memalign snug_posix_memalign
#define aligned_alloc snug_aligned_alloc
#define memalign snug_memalign
#define valloc snug_valloc
#define pvalloc snug_pvalloc
#define reallocarray snug_reallocarray
#define malloc_usable_size snug_malloc_usable_size
#define malloc_trim snug_malloc_trim
#define mallinfo snug_mallinfo
#define mallinfo2 snug_mallinfo2
#define mallopt snug_mallopt
#define malloc_stats snug_malloc_stats
#define malloc_info snug_malloc_info
#define cfree snug_cfree
#define free_sized snug_free_sized
#define free_aligned_sized snug_free_aligned_sized
#define __libc_malloc snug_libc_malloc
#define __libc_free snug_libc_free
#define __libc_calloc snug_libc_calloc
#define __libc_realloc snug_libc_realloc
#define __libc_memalign snug_libc_memalign
#define __libc_valloc snug_libc_valloc
#define __libc_pvalloc snug_libc_pvalloc
#define __posix_memalign snug_libc_posix_memalign

void *malloc(size_t);
void *calloc(size_t, size_t);
void *realloc(void *, size_t);
void free(void *);
int posix_memalign(void **, size_t, size_t);
void *aligned_alloc(size_t, size_t);
void *memalign(size_t, size_t);
void *reallocarray(void *, size_t, size_t);
size_t malloc_usable_size(void *);
int malloc_trim(size_t);
