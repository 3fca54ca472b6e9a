/* api.c: malloc(3) under its public names, with the errno that POSIX, C23 and glibc's manual pages promise. */
#include <errno.h>
#include <stddef.h>
#include <stdint.h>

#include "../include/snug.h"
#include "base.h"
#include "block.h"
#include "cache.h"
#include "fatal.h"
#include "fork.h"
#include "maintain.h"
#include "malloc_conf.h"
#include "ready.h"

static COLD void *no_memory(void) {
  if (malloc_conf_settings.xmalloc) fatal_no_memory();
  errno = ENOMEM;
  return NULL;
}

static NEVER_INLINE void *malloc_slow(size_t size_bytes) {
  void *block = block_take_slow(size_bytes);
  return likely(block != NULL) ? block : no_memory();
}

static bool is_power_of_two(size_t number) { return number != 0 && (number & (number - 1)) == 0; }

/* Cost: see core/tests/golden. Assumes a size the bins know and a bin that is not empty; else malloc_slow. */
EXPORT void *malloc(size_t size_bytes) {
  if (likely(size_bytes <= CLASS_SMALL_MAX_BYTES) && likely(cache_counts(size_bytes))) {
    void *block = cache_pop_at(bin_offset_of(size_bytes));
    if (likely(block != NULL)) return block;
  }
  return malloc_slow(size_bytes);
}

/* Cost: see core/tests/golden. Assumes a block of this thread's arena and a bin that is not full. errno is kept. */
EXPORT void free(void *block) { block_give(block); }
#define NAME(symbol) #symbol
#define NAME_OF(symbol) NAME(symbol) /* which core/archive/prefixed_names.h may have changed */
#define SAME_AS(symbol) __attribute__((nothrow, leaf, alias(NAME_OF(symbol))))
extern __typeof(free) free_of_this_copy SAME_AS(free) HIDDEN;

EXPORT void *calloc(size_t count, size_t each_bytes) {
  size_t size_bytes;
  if (unlikely(__builtin_mul_overflow(count, each_bytes, &size_bytes))) return no_memory();
  void *block = block_take_zeroed(size_bytes);
  return likely(block != NULL) ? block : no_memory();
}

static NEVER_INLINE void *realloc_slow(void *block, size_t size_bytes) {
  if (block == NULL) return malloc_slow(size_bytes); /* not what is bound to malloc, which may have called this */
  if (size_bytes == 0) return block_give(block), NULL;
  void *result = block_resize(block, size_bytes);
  return likely(result != NULL) ? result : no_memory();
}

/* As glibc: realloc(p, 0) frees and returns NULL. */
EXPORT void *realloc(void *block, size_t size_bytes) {
  return likely(block_stays(block, size_bytes)) ? block : realloc_slow(block, size_bytes);
}

EXPORT void *reallocarray(void *block, size_t count, size_t each_bytes) {
  size_t size_bytes;
  if (unlikely(__builtin_mul_overflow(count, each_bytes, &size_bytes))) return no_memory();
  return AS_BOUND(realloc)(block, size_bytes); /* theirs, if the block is */
}

static void *take_aligned(size_t alignment, size_t size_bytes) {
  bool clean;
  void *block = size_bytes <= PTRDIFF_MAX ? block_take_aligned(alignment, size_bytes, &clean) : NULL;
  return likely(block != NULL) ? block : no_memory();
}

EXPORT int posix_memalign(void **result, size_t alignment, size_t size_bytes) {
  if (!is_power_of_two(alignment) || alignment % sizeof(void *) != 0) return EINVAL;
  void *block = take_aligned(alignment, size_bytes);
  if (block == NULL) return ENOMEM; /* and errno says so, too: programs that only look there are used to it */
  *result = block;
  return 0;
}

EXPORT void *aligned_alloc(size_t alignment, size_t size_bytes) {
  if (!is_power_of_two(alignment)) return errno = EINVAL, NULL;
  return take_aligned(alignment, size_bytes);
}

/* As glibc: an alignment that is no power of two is rounded up to one. */
EXPORT void *memalign(size_t alignment, size_t size_bytes) {
  if (alignment > SIZE_MAX / 2 + 1) return errno = EINVAL, NULL;
  size_t power = 16;
  while (power < alignment) power *= 2;
  return take_aligned(power, size_bytes);
}

EXPORT void *valloc(size_t size_bytes) {
  start_if_needed();
  return take_aligned(zone.page_bytes, size_bytes);
}

EXPORT void *pvalloc(size_t size_bytes) {
  start_if_needed();
  if (size_bytes > PTRDIFF_MAX) return no_memory();
  return take_aligned(zone.page_bytes, round_up(size_bytes, zone.page_bytes));
}

/* glibc's inner names, by which a malloc that stands before this one gets blocks: so they must not lead back to it. */
EXPORT __typeof(malloc) __libc_malloc __attribute__((__malloc__)) SAME_AS(malloc);
EXPORT __typeof(free) __libc_free SAME_AS(free);
EXPORT __typeof(calloc) __libc_calloc __attribute__((__malloc__)) SAME_AS(calloc);
EXPORT __typeof(realloc) __libc_realloc SAME_AS(realloc);
EXPORT __typeof(memalign) __libc_memalign __attribute__((__malloc__, alloc_align(1), alloc_size(2))) SAME_AS(memalign);
EXPORT __typeof(valloc) __libc_valloc __attribute__((__malloc__)) SAME_AS(valloc);
EXPORT __typeof(pvalloc) __libc_pvalloc __attribute__((__malloc__)) SAME_AS(pvalloc);
EXPORT __typeof(posix_memalign) __posix_memalign SAME_AS(posix_memalign);

EXPORT size_t malloc_usable_size(void *block) {
  size_t size_bytes = block_size_by_page(block);
  if (likely(size_bytes != 0)) return size_bytes;
  return block != NULL ? block_size(block) : 0;
}

EXPORT void free_sized(void *block, size_t size_bytes) { block_give_sized(block, 1, size_bytes); }

EXPORT void free_aligned_sized(void *block, size_t alignment, size_t size_bytes) {
  block_give_sized(block, alignment, size_bytes);
}

EXPORT void cfree(void *block) { block_give(block); }

EXPORT size_t snug_purge(void) {
  start_if_needed();
  return maintain_give_all_back();
}

/* Returns 1 if memory was given back. A server calls this when it has loaded what its workers share (Ruby's
 * Process.warmup): the sign to seal at the next fork. */
EXPORT int malloc_trim(size_t pad_bytes) {
  (void)pad_bytes;
  size_t bytes = snug_purge();
  fork_seal_parent_next();
  return bytes != 0;
}
