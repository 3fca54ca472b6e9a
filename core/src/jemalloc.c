/* jemalloc.c: jemalloc's allocation calls, under its names. mallctl.c has its controls, stats_print.c its statistics.
 *
 *      flags, bits   0-5                 6       8-19             20-31
 *      mean          alignment, log 2    zero    a thread cache   an arena      (the last two: hints, not needed here)
 */
#include <string.h>

#include "base.h"
#include "block.h"
#include "fatal.h"
#include "malloc_conf.h"

enum { FLAGS_ALIGNMENT = 63, FLAG_ZERO = 64 };

/* As core/include/jemalloc/jemalloc.h declares them. */
EXPORT void *mallocx(size_t size_bytes, int flags);
EXPORT void *rallocx(void *block, size_t size_bytes, int flags);
EXPORT size_t xallocx(void *block, size_t size_bytes, size_t extra_bytes, int flags);
EXPORT size_t sallocx(const void *block, int flags);
EXPORT size_t nallocx(size_t size_bytes, int flags);
EXPORT void dallocx(void *block, int flags);
EXPORT void sdallocx(void *block, size_t size_bytes, int flags);

static ALWAYS_INLINE size_t alignment_in(int flags) { return (size_t)1 << (flags & FLAGS_ALIGNMENT); }

/* Unlike malloc's, the errors of these calls leave errno alone. */
static COLD void *no_block(void) {
  if (malloc_conf_settings.xmalloc) fatal_no_memory();
  return NULL;
}

static NEVER_INLINE void *take_zeroed(size_t alignment, size_t size_bytes) {
  bool clean = true;
  size_bytes = block_whole_size(alignment, size_bytes);
  char *block = alignment <= 16 ? block_take_zeroed(size_bytes) : block_take_aligned(alignment, size_bytes, &clean);
  if (block == NULL) return no_block();
  return clean ? block : memset(block, 0, block_size(block));
}

void *mallocx(size_t size_bytes, int flags) {
  size_t alignment = alignment_in(flags);
  bool clean;
  if (unlikely(size_bytes > PTRDIFF_MAX || alignment > PTRDIFF_MAX)) return no_block();
  if (flags & FLAG_ZERO) return take_zeroed(alignment, size_bytes);
  void *block = alignment <= 16 ? block_take_whole(size_bytes)
                                : block_take_aligned(alignment, block_whole_size(alignment, size_bytes), &clean);
  return likely(block != NULL) ? block : no_block();
}

static void *resize_aligned(void *block, size_t block_bytes, size_t alignment, size_t size_bytes) {
  bool clean, aligned = ((uintptr_t)block & (alignment - 1)) == 0;
  if (alignment <= 16) return block_resize(block, size_bytes);
  if (aligned && (block_size_for(alignment, size_bytes) == block_bytes || block_resize_in_place(block, size_bytes))) {
    return block;
  }
  void *result = block_take_aligned(alignment, size_bytes, &clean);
  if (result != NULL) block_move(block, block_bytes, result, size_bytes);
  return result;
}

/* Zeroes what a block that was block_bytes long grew by. */
static void zero_rest(char *block, size_t block_bytes, size_t new_bytes) {
  if (new_bytes > block_bytes) memset(block + block_bytes, 0, new_bytes - block_bytes);
}

void *rallocx(void *block, size_t size_bytes, int flags) {
  size_t alignment = alignment_in(flags);
  if (unlikely(block == NULL)) return mallocx(size_bytes, flags);
  if (unlikely(size_bytes > PTRDIFF_MAX || alignment > PTRDIFF_MAX)) return no_block();
  size_t block_bytes = block_size(block);
  size_bytes = block_whole_size(alignment, size_bytes);
  char *result = resize_aligned(block, block_bytes, alignment, size_bytes != 0 ? size_bytes : 1);
  if (unlikely(result == NULL)) return no_block();
  if (flags & FLAG_ZERO) zero_rest(result, block_bytes, block_size(result));
  return result;
}

size_t xallocx(void *block, size_t size_bytes, size_t extra_bytes, int flags) {
  size_t block_bytes = block_size(block), most_bytes = size_bytes + extra_bytes;
  if (most_bytes < size_bytes || most_bytes > PTRDIFF_MAX) most_bytes = PTRDIFF_MAX;
  bool aligned = ((uintptr_t)block & (alignment_in(flags) - 1)) == 0;
  if (!aligned || size_bytes > PTRDIFF_MAX || (size_bytes <= block_bytes && block_bytes <= most_bytes)) {
    return block_bytes;
  }
  if (most_bytes == 0) most_bytes = 1;
  if (!block_resize_in_place(block, most_bytes) && size_bytes > block_bytes) block_resize_in_place(block, size_bytes);
  size_t new_bytes = block_size(block);
  if (flags & FLAG_ZERO) zero_rest(block, block_bytes, new_bytes);
  return new_bytes;
}

size_t sallocx(const void *block, int flags) {
  (void)flags;
  return block != NULL ? block_size(block) : 0;
}

size_t nallocx(size_t size_bytes, int flags) { return block_size_for(alignment_in(flags), size_bytes); }

void dallocx(void *block, int flags) {
  (void)flags;
  block_give(block);
}

void sdallocx(void *block, size_t size_bytes, int flags) { block_give_sized(block, alignment_in(flags), size_bytes); }
