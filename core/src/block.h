/* block.h: blocks of any size: chooses between cache, slab, run and large. The inside of the malloc family; api.c,
 * glibc.c and cxx.c give it its public names and their errno.
 *
 *      size          1 .. 1 KiB      .. 32 KiB            .. 1 MiB         more
 *      from          bin, slab       small bin, slab      run of pages     mapping of its own
 */
#ifndef SNUG_BLOCK_H
#define SNUG_BLOCK_H

#include "base.h"
#include "cache.h"

/* The class of a size of at most CLASS_MAX_BYTES. */
static ALWAYS_INLINE unsigned class_of_small(size_t size_bytes) { return class_index_small[(size_bytes + 15) / 16]; }

static ALWAYS_INLINE unsigned class_of(size_t size_bytes) {
  if (size_bytes <= CLASS_SMALL_MAX_BYTES) return class_of_small(size_bytes);
  unsigned class_index = class_index_large[(size_bytes - 1) / CLASS_LARGE_GRANULE_BYTES];
  return class_index + (size_bytes > class_shapes[class_index].size_bytes);
}

/* The slow ends of block_take and block_give: everything that a bin cannot do. */
HIDDEN void *block_take_slow(size_t size_bytes);
HIDDEN void block_give_slow(void *block);

/* A block of at least size_bytes, at a multiple of 16. NULL: no memory; errno is untouched. */
static ALWAYS_INLINE void *block_take(size_t size_bytes) {
  if (unlikely(size_bytes > CLASS_SMALL_MAX_BYTES)) return block_take_slow(size_bytes);
  void *block = cache_pop(class_of_small(size_bytes));
  return likely(block != NULL) ? block : block_take_slow(size_bytes);
}

/* Takes the block back; NULL does nothing. Ends the process when it is not a live block.
 * The exclusive or leaves a number below CLASS_COUNT just when the page belongs to a class of this thread's arena. */
static ALWAYS_INLINE void block_give(void *block) {
  size_t page = page_index(block);
  if (unlikely(page >= zone_pages())) return block_give_slow(block);
  unsigned class_index = page_kind(page) ^ this_thread.tag;
  if (unlikely(class_index >= CLASS_COUNT)) return block_give_slow(block);
  if (unlikely(!cache_push(class_index, block))) block_give_slow(block);
}

/* As block_take, all zero. */
HIDDEN void *block_take_zeroed(size_t size_bytes);

/* As block_take, at a multiple of alignment, a power of two. */
HIDDEN void *block_take_aligned(size_t alignment, size_t size_bytes);

/* Makes the block size_bytes (at least 1) long; it may move. NULL: no memory, the block stays as it is. */
HIDDEN void *block_resize(void *block, size_t size_bytes);

/* Usable bytes. Ends the process when it is not a live block. */
HIDDEN size_t block_size(const void *block);

/* Ends the process unless a block asked for with size_bytes (and alignment; 1 if none) could be this one. */
HIDDEN void block_check_size(const void *block, size_t alignment, size_t size_bytes);

/* block_give for a program that says how long the block is. The ordinary case is a size of just the block's class. */
static ALWAYS_INLINE void block_give_sized(void *block, size_t alignment, size_t size_bytes) {
  size_t page = page_index(block);
  if (likely(page < zone_pages())) {
    unsigned class_index = page_kind(page) ^ this_thread.tag;
    bool exact = class_index != 0 && class_index <= CLASS_SMALL_LAST &&
                 size_bytes <= class_shapes[class_index].size_bytes &&
                 size_bytes > class_shapes[class_index - 1].size_bytes;
    if (likely(exact)) {
      if (unlikely(!cache_push(class_index, block))) block_give_slow(block);
      return;
    }
  }
  if (block == NULL) return;
  block_check_size(block, alignment, size_bytes);
  block_give(block);
}

#endif
