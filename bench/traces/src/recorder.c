/* recorder.c: stands in for malloc(3) of the program it is preloaded into, passes every call to glibc's own, and
 * writes it down. Does not know the file (recording_writer.h).
 *
 *     SNUG_RECORD=/tmp/app.recording LD_PRELOAD=build/libsnug_record.so PROGRAM ARGS
 *
 * glibc only: it relies on the __libc_ names, which unlike dlsym need no memory to be found and work before the
 * first constructor. What a program gets by mmap, or by an allocator linked into it, is not recorded.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "recording_writer.h"

extern void *__libc_malloc(size_t size_bytes);
extern void *__libc_calloc(size_t count, size_t size_bytes);
extern void *__libc_realloc(void *block, size_t size_bytes);
extern void *__libc_memalign(size_t alignment_bytes, size_t size_bytes);
extern void __libc_free(void *block);

#define EXPORT __attribute__((visibility("default")))

EXPORT void *malloc(size_t size_bytes) {
  void *block = __libc_malloc(size_bytes);
  if (block) recording_allocated(RECORD_MALLOC, block, size_bytes, 0);
  return block;
}

EXPORT void *calloc(size_t count, size_t size_bytes) {
  void *block = __libc_calloc(count, size_bytes);
  if (block) recording_allocated(RECORD_CALLOC, block, count * size_bytes, 0);
  return block;
}

EXPORT void free(void *block) {
  if (!block) return;
  recording_freed(block);
  __libc_free(block);
}

EXPORT void *realloc(void *old_block, size_t size_bytes) {
  if (!old_block) return malloc(size_bytes);
  if (size_bytes == 0) { /* as glibc does */
    free(old_block);
    return NULL;
  }
  uint64_t sequence = recording_draw_sequence();
  void *block = __libc_realloc(old_block, size_bytes);
  if (block) recording_reallocated(sequence, old_block, block, size_bytes);
  return block;
}

EXPORT void *reallocarray(void *old_block, size_t count, size_t size_bytes) {
  size_t total_bytes;
  if (__builtin_mul_overflow(count, size_bytes, &total_bytes)) {
    errno = ENOMEM;
    return NULL;
  }
  return realloc(old_block, total_bytes);
}

static bool is_power_of_two(size_t value) { return value != 0 && (value & (value - 1)) == 0; }

EXPORT void *memalign(size_t alignment_bytes, size_t size_bytes) {
  void *block = __libc_memalign(alignment_bytes, size_bytes);
  /* glibc rounds an odd alignment up; the next power of two is what it gave. */
  unsigned alignment_log2 = alignment_bytes <= 1 ? 0 : 64u - (unsigned)__builtin_clzll(alignment_bytes - 1);
  if (block) recording_allocated(RECORD_ALIGNED, block, size_bytes, alignment_log2);
  return block;
}

EXPORT void *aligned_alloc(size_t alignment_bytes, size_t size_bytes) { return memalign(alignment_bytes, size_bytes); }

EXPORT int posix_memalign(void **block, size_t alignment_bytes, size_t size_bytes) {
  if (!is_power_of_two(alignment_bytes) || alignment_bytes % sizeof(void *) != 0) return EINVAL;
  int saved_errno = errno;
  void *got = memalign(alignment_bytes, size_bytes);
  errno = saved_errno;
  if (!got) return ENOMEM;
  *block = got;
  return 0;
}

/* Not recorded, but it has to be here: a program that is linked with another allocator would ask that one about
 * glibc's blocks. */
EXPORT size_t malloc_usable_size(void *block) {
  static size_t (*_Atomic glibc_usable_size)(void *);
  size_t (*usable_size)(void *) = atomic_load_explicit(&glibc_usable_size, memory_order_relaxed);
  if (!block) return 0;
  if (!usable_size) {
    void *libc = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
    void *symbol = libc ? dlsym(libc, "malloc_usable_size") : NULL;
    if (!symbol) return 0;                             /* claims nothing that is not there */
    memcpy(&usable_size, &symbol, sizeof usable_size); /* ISO C has no cast from object to function */
    atomic_store_explicit(&glibc_usable_size, usable_size, memory_order_relaxed);
  }
  return usable_size(block);
}

EXPORT void *valloc(size_t size_bytes) { return memalign((size_t)sysconf(_SC_PAGESIZE), size_bytes); }

EXPORT void *pvalloc(size_t size_bytes) {
  size_t page_bytes = (size_t)sysconf(_SC_PAGESIZE);
  if (size_bytes > PTRDIFF_MAX - page_bytes) {
    errno = ENOMEM;
    return NULL;
  }
  return memalign(page_bytes, (size_bytes + page_bytes - 1) / page_bytes * page_bytes);
}
