/* block.h: blocks of any size: chooses between cache, slab, run and large. The inside of the malloc family; api.c,
 * glibc.c and cxx.c give it its public names and their errno.
 *
 *      size          1 .. 1 KiB      .. 32 KiB            .. 1 MiB         more
 *      from          bin, slab       small bin, slab      run of pages     mapping of its own
 */
#ifndef SNUG_BLOCK_H
#define SNUG_BLOCK_H

#include <stdlib.h>
#include <string.h>

#include "base.h"
#include "cache.h"

/* The slow ends of block_take and block_give: everything that a bin cannot do. A request of up to CLASS_SMALL_MAX_BYTES
 * was counted (cache_counts); longer ones are counted here. */
HIDDEN void *block_take_slow(size_t size_bytes);
HIDDEN void block_give_slow(void *block);

/* A block of at least size_bytes, at a multiple of 16. NULL: no memory; errno is untouched. */
static ALWAYS_INLINE void *block_take(size_t size_bytes) {
  if (unlikely(size_bytes > CLASS_SMALL_MAX_BYTES)) return block_take_slow(size_bytes);
  if (unlikely(!cache_counts(size_bytes))) return block_take_slow(size_bytes);
  void *block = cache_pop_at(bin_offset_of(size_bytes));
  return likely(block != NULL) ? block : block_take_slow(size_bytes);
}

/* As block_take, for a program that may use as much as block_size_for says: a block that ends at a fence (fence.h) is
 * as long then, too. */
HIDDEN void *block_take_whole_slow(size_t size_bytes);
HIDDEN size_t block_whole_size(size_t alignment, size_t size_bytes); /* what to ask the other functions for */
static ALWAYS_INLINE void *block_take_whole(size_t size_bytes) {
  if (unlikely(size_bytes > CLASS_SMALL_MAX_BYTES)) return block_take_whole_slow(size_bytes);
  if (unlikely(!cache_counts(size_bytes))) return block_take_whole_slow(size_bytes);
  void *block = cache_pop_at(bin_offset_of(size_bytes));
  return likely(block != NULL) ? block : block_take_whole_slow(size_bytes);
}

/* Takes the block back; NULL does nothing. Ends the process when it is not a live block.
 * The exclusive or leaves a number below CLASS_COUNT just when the page belongs to a class of this thread's arena, and
 * its slab has no joined blocks. */
static ALWAYS_INLINE void block_give(void *block) {
  size_t page = page_index(block);
  if (unlikely(page >= zone_pages())) return block_give_slow(block);
  unsigned class_index = page_kind(page) ^ this_thread.tag;
  if (unlikely(class_index >= CLASS_COUNT)) return block_give_slow(block);
  if (unlikely(!cache_push(class_index, block))) block_give_slow(block);
}

enum { ZERO_INLINE_MAX_BYTES = 128 };

/* Zeros the first size_bytes, at most ZERO_INLINE_MAX_BYTES, of a block that begins at a multiple of 16, in whole
 * pieces of 16 from both ends, which saves a call. */
static ALWAYS_INLINE void zero_small(char *block, size_t size_bytes) {
  char *last = block + (size_bytes > 16 ? (size_bytes - 1) / 16 * 16 : 0);
  memset(block, 0, 16);
  memset(last, 0, 16);
  if (size_bytes <= 32) return;
  memset(block + 16, 0, 16);
  memset(last - 16, 0, 16);
  if (size_bytes <= 64) return;
  memset(block + 32, 0, 32);
  memset(last - 48, 0, 32);
}

HIDDEN void *block_take_zeroed_slow(size_t size_bytes);

/* As block_take, all zero, to the end of what may be used: a joined block is zero behind its class (slab_join.h). */
static ALWAYS_INLINE void *block_take_zeroed(size_t size_bytes) {
  if (unlikely(size_bytes > ZERO_INLINE_MAX_BYTES)) return block_take_zeroed_slow(size_bytes);
  if (unlikely(!cache_counts(size_bytes))) return block_take_zeroed_slow(size_bytes);
  void *block = cache_pop_at(bin_offset_of(size_bytes));
  if (unlikely(block == NULL)) return block_take_zeroed_slow(size_bytes);
  zero_small(block, size_bytes);
  return block;
}

/* As block_take, at a multiple of alignment, a power of two. *clean: it reads as zero. */
HIDDEN void *block_take_aligned(size_t alignment, size_t size_bytes, bool *clean);

/* Usable bytes of the block that these two would take; 0 if there can be none. The slow way of a limit (a mapping where
 * no slab can be had) may take a longer one. */
HIDDEN size_t block_size_for(size_t alignment, size_t size_bytes);

/* From now on the end of a slow path frees what handlers freed amid it. Called once, at start. */
HIDDEN void block_start(void);

/* From now on every byte of every new block is zero, and of old ones what they grow by. Thread caches end. */
HIDDEN void block_zero_all(void);

/* Whether a block that may hold block_bytes stays where it is when size_bytes, not 0, are asked for: it has room, and
 * at most a quarter of it would be unused, or no class is shorter (they are multiples of 16 up to there). */
static ALWAYS_INLINE bool resize_keeps(size_t block_bytes, size_t size_bytes) {
  size_t unused_bytes = block_bytes - size_bytes; /* where there is no room, more than any block has */
  if (likely(unused_bytes <= block_bytes / 4)) return true;
  __asm__("" : "+r"(unused_bytes)); /* two branches: the larger of both limits would cost each call two instructions */
  return unused_bytes < 16;
}

/* Whether the block belongs to a class of this thread's arena and stays where it is when resized: the ordinary end of
 * realloc. In slabs with joined blocks (slab_join.h) it says no, and block_resize decides. Ends the process when it is
 * not a live block. */
static ALWAYS_INLINE bool block_stays(const void *block, size_t size_bytes) {
  size_t page = page_index(block);
  return page < zone_pages() && (page_kind(page) ^ this_thread.tag) - 1 < CLASS_COUNT - 1 &&
         resize_keeps(slab_slot_size(block), size_bytes);
}

/* Usable bytes, by the page alone where the block's class is busy, as a free looks no closer there either
 * (docs/decisions/0019); else 0: block_size says. */
static ALWAYS_INLINE size_t block_size_by_page(const void *block) {
  size_t page = page_index(block);
  if (page >= zone_pages()) return 0;
  unsigned class_index = page_kind(page) ^ this_thread.tag;
  if (class_index - 1 >= CLASS_COUNT - 1 || !bin_is_open(class_index * sizeof(struct bin))) return 0;
  return class_shapes[class_index].size_bytes;
}

/* free itself, whatever the program and its libraries call by that name (api.c). */
HIDDEN __typeof(free) free_of_this_copy;

/* Makes the block size_bytes (at least 1) long; it may move. NULL: no memory, the block stays as it is. */
HIDDEN void *block_resize(void *block, size_t size_bytes);

/* Copies a block of block_bytes to another one, which was asked for with size_bytes, and gives it back. Copies all that
 * may be used of both, whatever the program asked for: it can be told how much that is. */
HIDDEN void block_move(void *block, size_t block_bytes, void *to, size_t size_bytes);

/* The same, but it stays where it is. False: not possible, nothing changed. */
HIDDEN bool block_resize_in_place(void *block, size_t size_bytes);

/* Usable bytes. Ends the process when it is not a live block. */
HIDDEN size_t block_size(const void *block);

/* Ends the process unless a block asked for with size_bytes (and alignment; 1 if none) could be this one. */
HIDDEN void block_check_size(const void *block, size_t alignment, size_t size_bytes);

/* block_give for a program that says how long the block is. */
HIDDEN void block_give_sized_slow(void *block, size_t alignment, size_t size_bytes);

/* The ordinary case is a size of just the block's class. */
static ALWAYS_INLINE void block_give_sized(void *block, size_t alignment, size_t size_bytes) {
  size_t page = page_index(block);
  if (likely(page < zone_pages() && size_bytes <= CLASS_SMALL_MAX_BYTES)) {
    size_t bin_offset = bin_offset_of(size_bytes);
    if (likely((page_kind(page) ^ this_thread.tag) * sizeof(struct bin) == bin_offset)) {
      if (likely(cache_push_at(bin_offset, block))) return;
    }
  }
  block_give_sized_slow(block, alignment, size_bytes);
}

#endif
