#include "block.h"

#include <string.h>

#include "aside.h"
#include "fatal.h"
#include "fence.h"
#include "guard.h"
#include "large.h"
#include "maintain.h"
#include "map.h"
#include "profile.h"
#include "purge.h"
#include "run.h"
#include "ready.h"

/* ---- slow paths, and what handlers free amid them (aside.h) ---- */

/* Each comes here again, at its end; what handlers free meanwhile then waits for the first one. */
static COLD void give_kept(void) {
  static __thread bool gives FIXED_TLS;
  if (gives) return;
  gives = true;
  for (void *list, *block; (list = aside_all_kept()) != NULL;) {
    while ((block = aside_next_kept(&list)) != NULL) block_give_slow(block);
  }
  gives = false;
}

void block_start(void) { cache_gives_kept = give_kept; }

/* Frees a block that the heap must not see, or not yet. Marks behind blocks stay until they are checked. */
static COLD void give_aside(void *block) {
  if (aside_holds(block)) return aside_give(block);
  aside_keep(block, !guard_is_on() && !fence_holds(block));
}

/* ---- taking ---- */

static bool fits_run(size_t size_bytes, size_t alignment) {
  return size_bytes < LARGE_MIN_BYTES && alignment <= RUN_MAX_BYTES / 4;
}

static void *take_run_or_large(size_t size_bytes, size_t alignment, bool *clean) {
  void *block = NULL;
  if (fits_run(size_bytes, alignment)) block = run_take(size_bytes, alignment, clean);
  return block != NULL ? block : large_take(size_bytes, alignment, clean); /* also when the zone is full */
}

/* A block for which no class is made. */
static void *take_big(size_t size_bytes, size_t alignment, bool *clean) {
  if (size_bytes > PTRDIFF_MAX) return NULL;
  cache_slow_path_begins();
  void *block = take_run_or_large(size_bytes, alignment, clean);
  bool fits_zone = size_bytes <= zone.reserved_pages * PAGE_BYTES;
  uint64_t left_bytes;
  if (unlikely(block == NULL) && fits_zone && purge_for_request(this_thread.own, size_bytes, &left_bytes)) {
    block = take_run_or_large(size_bytes, alignment, clean);
    if (block == NULL) purge_served_nothing(left_bytes);
  }
  maintain(MAINTAIN_BIG_BLOCK);
  cache_slow_path_ends();
  return block;
}

static bool zeroes_all; /* set at start only */

void block_zero_all(void) {
  zeroes_all = true;
  cache_close();
}

/* zero:true */
static COLD void *zero_whole(void *block, bool *clean) {
  if (block != NULL && !*clean) memset(block, 0, block_size(block));
  *clean = block != NULL;
  return block;
}

/* The block of a request that is to be a sample. NULL: no memory in its arena; the request is then one like others. */
static COLD void *take_sampled(size_t alignment, size_t size_bytes, bool *clean) {
  void *block = NULL;
  bool contended;
  cache_slow_path_begins();
  if (guard_is_on()) {
    block = guard_take(alignment, size_bytes, clean);
  } else if (fence_is_on() && (block = fence_take(alignment, size_bytes, clean)) != NULL) {
    maintain(1);
  } else if (alignment <= 16 && size_bytes <= CLASS_MAX_BYTES) {
    *clean = false;
    slab_take(profile_arena, class_of(size_bytes), &block, 1, size_bytes, &contended);
    maintain(1);
  } else {
    block = take_big(size_bytes, alignment, clean);
  }
  profile_note(block, size_bytes);
  cache_slow_path_ends();
  return block;
}

static void *take_slow(size_t size_bytes, bool *clean) {
  if (aside_is_begun()) return aside_take(1, size_bytes);
  if (profile_is_due(size_bytes)) {
    void *block = take_sampled(1, size_bytes, clean);
    if (block != NULL) return block;
  }
  if (guard_is_on()) return guard_take(1, size_bytes, clean);
  if (size_bytes > CLASS_MAX_BYTES) return take_big(size_bytes, 1, clean);
  unsigned class_index = class_of(size_bytes);
  void *block = cache_pop(class_index); /* sizes above the fast path's have bins, too */
  if (block != NULL) return block;
  cache_slow_path_begins();
  block = cache_refill(class_index, size_bytes);
  maintain(1);
  cache_slow_path_ends();
  return likely(block != NULL) ? block : take_big(size_bytes, 1, clean);
}

void *block_take_slow(size_t size_bytes) {
  start_if_needed();
  bool clean = false;
  void *block = take_slow(size_bytes, &clean);
  return unlikely(zeroes_all) ? zero_whole(block, &clean) : block;
}

size_t block_whole_size(size_t alignment, size_t size_bytes) {
  size_t whole_bytes = fence_is_on() ? block_size_for(alignment, size_bytes) : 0;
  return whole_bytes != 0 ? whole_bytes : size_bytes;
}

void *block_take_whole_slow(size_t size_bytes) { return block_take_slow(block_whole_size(1, size_bytes)); }

void *block_take_zeroed_slow(size_t size_bytes) {
  bool clean = false;
  bool was_counted = size_bytes <= ZERO_INLINE_MAX_BYTES, may_have_bin = size_bytes <= CLASS_MAX_BYTES;
  void *block;
  start_if_needed();
  if (!was_counted && may_have_bin) {
    block = block_take(size_bytes);
  } else {
    block = take_slow(size_bytes, &clean);
  }
  return block != NULL && !clean ? memset(block, 0, block_size(block)) : block;
}

/* Slabs begin at a page: a class whose size is a multiple of the alignment has all its blocks aligned. Its size, 0 if
 * there is none. */
static size_t class_bytes_for(size_t alignment, size_t size_bytes) {
  if (alignment > PAGE_BYTES || size_bytes > CLASS_MAX_BYTES) return 0;
  if (alignment <= 16) return class_shapes[class_of(size_bytes)].size_bytes;
  size_t size = size_bytes != 0 ? size_bytes : 1;
  for (unsigned class_index = class_of(size); class_index < CLASS_COUNT; class_index++) {
    size_t class_bytes = class_shapes[class_index].size_bytes;
    if (class_bytes > 2 * round_up(size, alignment)) break;
    if (class_bytes % alignment == 0) return class_bytes;
  }
  return 0;
}

void *block_take_aligned(size_t alignment, size_t size_bytes, bool *clean) {
  *clean = false;
  if (alignment <= 16) return block_take(size_bytes);
  start_if_needed();
  if (aside_is_begun()) {
    void *aside = aside_take(alignment, size_bytes);
    return unlikely(zeroes_all) ? zero_whole(aside, clean) : aside;
  }
  size_t class_bytes = guard_is_on() ? 0 : class_bytes_for(alignment, size_bytes);
  if (class_bytes != 0) return block_take(class_bytes);
  if (size_bytes == 0 && !guard_is_on()) size_bytes = 1;
  void *block = NULL;
  if (size_bytes <= CLASS_SMALL_MAX_BYTES) cache_counts(size_bytes);
  if (profile_is_due(size_bytes)) block = take_sampled(alignment, size_bytes, clean);
  if (likely(block == NULL)) {
    block = guard_is_on() ? guard_take(alignment, size_bytes, clean) : take_big(size_bytes, alignment, clean);
  }
  return unlikely(zeroes_all) ? zero_whole(block, clean) : block;
}

size_t block_size_for(size_t alignment, size_t size_bytes) {
  start_if_needed();
  if (size_bytes > PTRDIFF_MAX || alignment > PTRDIFF_MAX) return 0;
  if (guard_is_on()) return size_bytes;
  size_t class_bytes = class_bytes_for(alignment, size_bytes);
  if (class_bytes != 0) return class_bytes;
  size_t unit = fits_run(size_bytes, alignment) ? PAGE_BYTES : zone.page_bytes;
  return round_up(size_bytes != 0 ? size_bytes : 1, unit);
}

/* ---- giving ---- */

/* Blocks of another malloc, which comes before ours: one that is linked into the program, say. It need not have all
 * our names, and a caller then reaches us by those it lacks: sdallocx, free_sized, C++'s sized delete. What is in our
 * zone, or comes back to us from there, is not theirs. Atomic: the compiler believes that libc's free never does. */
static __thread bool passes_on FIXED_TLS;
extern size_t malloc_usable_size(void *block);

static ALWAYS_INLINE bool free_is_theirs(void) { return AS_BOUND(free) != free_of_this_copy; }

/* Before the zone shrank; others may lie there since, but for a heap that is reserved. */
static COLD bool was_in_zone(const void *block) {
  return map_heap_is_reserved() && page_index(block) < pages_top_ever();
}

static COLD bool is_theirs(const void *block) {
  if (fence_holds(block) || aside_holds(block)) return false;
  if (!free_is_theirs() || __atomic_load_n(&passes_on, __ATOMIC_SEQ_CST)) return false;
  return page_index(block) >= zone_pages() && !was_in_zone(block);
}

static COLD void give_to_them(void *block) {
  __atomic_store_n(&passes_on, true, __ATOMIC_SEQ_CST);
  AS_BOUND(free)(block);
  __atomic_store_n(&passes_on, false, __ATOMIC_SEQ_CST);
}

static COLD size_t their_size(const void *block) {
  __atomic_store_n(&passes_on, true, __ATOMIC_SEQ_CST);
  size_t size_bytes = AS_BOUND(malloc_usable_size)((void *)block);
  __atomic_store_n(&passes_on, false, __ATOMIC_SEQ_CST);
  return size_bytes;
}

static _Noreturn COLD void fatal_not_a_block(const void *pointer) {
  size_t page = page_index(pointer);
  if (page < zone_pages()) {
    void *run = run_holding(pointer);
    if (run != NULL) fatal_interior_pointer(pointer, run, run_size(run));
    /* A page that was in use once has most likely been freed with its block. */
    if (page_kind(page) == 0 && page < pages_top()) fatal_double_free(pointer);
    fatal_foreign_pointer(pointer);
  }
  size_t size_bytes;
  void *around = guard_is_on() ? guard_block_around(pointer, &size_bytes) : NULL;
  if (around != NULL) fatal_interior_pointer(pointer, around, size_bytes);
  around = large_block_around(pointer);
  if (around != NULL) fatal_interior_pointer(pointer, around, large_size(around));
  if (large_was_freed(pointer) || was_in_zone(pointer)) fatal_double_free(pointer);
  fatal_foreign_pointer(pointer);
}

/* A free that KIND_JOINTS alone led past the fast path. False: it is more. */
static bool give_beside_joints(void *block, unsigned kind) {
  unsigned class_index = kind ^ KIND_JOINTS ^ this_thread.tag;
  return class_index < CLASS_COUNT && !slab_is_joined(block) && cache_push(class_index, block);
}

NEVER_INLINE void block_give_slow(void *block) {
  if (block == NULL) return;
  start_if_needed();
  if (unlikely(aside_is_begun() || aside_holds(block))) return give_aside(block);
  size_t page = page_index(block);
  unsigned kind = page < zone_pages() ? page_kind(page) : 0;
  if (is_class(kind) && give_beside_joints(block, kind)) return;
  cache_slow_path_begins();
  if (guard_is_on()) {
    profile_forget(block);
    if (guard_give(block)) {
      cache_slow_path_ends();
      return;
    }
  }
  profile_forget_kind(block, kind);
  if (is_class(kind)) {
    cache_flush(block, kind);
    maintain(1);
  } else {
    if (kind == KIND_RUN) {
      run_give(block);
    } else if (fence_holds(block)) {
      fence_give(block, profile_stack_here());
    } else if (page < zone_pages() || !large_give(block)) {
      if (!is_theirs(block)) fatal_not_a_block(block);
      cache_slow_path_ends();
      give_to_them(block);
      return;
    }
    maintain_freed_big();
  }
  cache_slow_path_ends();
}

/* ---- sizes ---- */

/* 0: there is none. */
static size_t size_of_large(const void *block) {
  if (aside_is_begun()) return large_size_amid(block);
  cache_slow_path_begins();
  size_t size_bytes = large_size(block);
  cache_slow_path_ends();
  return size_bytes;
}

size_t block_size(const void *block) {
  start_if_needed();
  size_t page = page_index(block), size_bytes;
  if (guard_is_on() && guard_size(block, &size_bytes)) return size_bytes;
  if (fence_holds(block)) return fence_size(block);
  if (aside_holds(block)) return aside_size(block);
  if (page >= zone_pages()) {
    size_bytes = size_of_large(block);
  } else {
    unsigned kind = page_kind(page);
    if (is_class(kind)) return slab_block_size(block);
    size_bytes = kind == KIND_RUN ? run_size(block) : 0; /* 0: not its start */
  }
  if (size_bytes != 0) return size_bytes;
  if (!is_theirs(block)) aside_is_begun() ? fatal_foreign_pointer(block) : fatal_not_a_block(block);
  return their_size(block);
}

/* Whether it is nobody's but theirs; what is wrong in our own is left to be found. */
static bool is_only_theirs(const void *block) {
  if (likely(!free_is_theirs()) || !is_theirs(block)) return false;
  size_t size_bytes;
  if (guard_is_on() && guard_size(block, &size_bytes)) return false;
  return size_of_large(block) == 0;
}

/* Set when a block stayed longer than asked for because there was no memory for a shorter one: then only lengths that
 * do not fit can be told from wrong ones. */
static bool some_blocks_are_too_long; /* atomic */

/* As asked for; by jemalloc's calls any size up to what nallocx() says, which is what they ask for then. An aligned
 * block may be a whole one of its class. */
static bool is_size_of_fenced(size_t block_bytes, size_t alignment, size_t size_bytes) {
  if (size_bytes == block_bytes || (alignment > 16 && size_bytes < block_bytes)) return true;
  size_t shorter = size_bytes < block_bytes ? size_bytes : block_bytes;
  size_t longer = size_bytes < block_bytes ? block_bytes : size_bytes;
  return longer <= block_size_for(alignment, shorter);
}

/* Whether a request of size_bytes could have got a block of block_bytes, not guarded: alignment may have made it up to
 * twice as long; resizing may have left a quarter unused. */
static bool could_get(size_t block_bytes, size_t alignment, size_t size_bytes) {
  size_t wanted = round_up(size_bytes != 0 ? size_bytes : 1, alignment > 16 ? alignment : 16);
  if (size_bytes > block_bytes) return false;
  if (block_bytes <= 16 || wanted >= block_bytes - block_bytes / 4) return true;
  if (block_bytes > CLASS_MAX_BYTES) return wanted + zone.page_bytes >= block_bytes;
  return alignment > 16 ? 2 * wanted >= block_bytes : wanted + wanted / 8 + 16 >= block_bytes;
}

/* The class that a joined block serves for may be shorter by a quarter (B9), and what was asked for is as above. */
static bool could_get_joined(const void *block, size_t block_bytes, size_t alignment, size_t size_bytes) {
  return page_index(block) < zone_pages() && slab_is_joined(block) &&
         could_get(block_bytes - block_bytes / 4, alignment, size_bytes);
}

void block_check_size(const void *block, size_t alignment, size_t size_bytes) {
  size_t block_bytes = block_size(block);
  if (aside_holds(block)) return;
  if (fence_holds(block)) {
    if (!is_size_of_fenced(block_bytes, alignment, size_bytes)) fatal_wrong_size(block, size_bytes, block_bytes);
    return;
  }
  bool guarded = guard_is_on() && guard_size(block, &block_bytes);
  bool whole_pages = page_index(block) >= zone_pages() || page_kind(page_index(block)) == KIND_RUN;
  bool stand_in = whole_pages && !guarded && block_bytes <= CLASS_MAX_BYTES; /* when no slab could be had; or aligned */
  bool is_too_long = stand_in || __atomic_load_n(&some_blocks_are_too_long, __ATOMIC_RELAXED);
  if (size_bytes <= block_bytes && is_too_long) return;
  bool fits = guarded ? size_bytes == block_bytes
                      : could_get(block_bytes, alignment, size_bytes) ||
                            could_get_joined(block, block_bytes, alignment, size_bytes);
  if (unlikely(!fits)) fatal_wrong_size(block, size_bytes, block_bytes);
}

void block_give_sized_slow(void *block, size_t alignment, size_t size_bytes) {
  if (block == NULL) return;
  if (unlikely(is_only_theirs(block))) return give_to_them(block);
  block_check_size(block, alignment, size_bytes);
  block_give(block);
}

/* Tries to resize a run or a large block without another block. */
static void *resize_big(void *block, size_t size_bytes, bool may_move) {
  if (page_index(block) >= zone_pages()) {
    if (size_bytes < LARGE_MIN_BYTES / 2 || is_only_theirs(block)) return NULL;
    if (may_move) return large_resize(block, size_bytes);
    return large_resize_in_place(block, size_bytes) ? block : NULL;
  }
  bool stays_run = size_bytes > CLASS_MAX_BYTES && size_bytes < LARGE_MIN_BYTES;
  return stays_run && run_resize(block, size_bytes) ? block : NULL;
}

/* A run or a large block that was resized counts as freed and requested anew, as one that moves does. */
static void count_resized(void *block, size_t size_bytes) {
  profile_forget(block);
  if (size_bytes <= CLASS_SMALL_MAX_BYTES) cache_counts(size_bytes);
  if (profile_is_due(size_bytes)) profile_note(block, size_bytes);
}

/* Tries to resize without another block. */
static void *resize_same(void *block, size_t block_bytes, size_t size_bytes, bool may_move) {
  if (page_index(block) < zone_pages() && page_kind(page_index(block)) != KIND_RUN) {
    size_t least_bytes = slab_is_joined(block) ? round_up(size_bytes, 16) : size_bytes; /* B9 */
    return size_bytes <= block_bytes && resize_keeps(block_bytes, least_bytes) ? block : NULL;
  }
  cache_slow_path_begins();
  if (may_move) profile_forget(block); /* before another block can begin where this one does */
  block = resize_big(block, size_bytes, may_move);
  if (block != NULL) {
    maintain(MAINTAIN_BIG_BLOCK);
    count_resized(block, size_bytes);
  }
  cache_slow_path_ends();
  if (unlikely(zeroes_all) && block != NULL && block_size(block) > block_bytes) {
    memset((char *)block + block_bytes, 0, block_size(block) - block_bytes);
  }
  return block;
}

bool block_resize_in_place(void *block, size_t size_bytes) {
  size_t block_bytes = block_size(block);
  if (size_bytes > PTRDIFF_MAX) return false;
  if (guard_is_on() && guard_size(block, &block_bytes)) return size_bytes == block_bytes;
  if (fence_holds(block)) return size_bytes == block_bytes;
  if (aside_holds(block) || aside_is_begun()) return size_bytes <= block_bytes;
  return resize_same(block, block_bytes, size_bytes, false) != NULL;
}

void block_move(void *block, size_t block_bytes, void *to, size_t size_bytes) {
  size_t kept_bytes = size_bytes < block_bytes ? block_size(to) : block_bytes;
  memcpy(to, block, kept_bytes < block_bytes ? kept_bytes : block_bytes);
  block_give(block);
}

void *block_resize(void *block, size_t size_bytes) {
  size_t block_bytes = block_size(block);
  if (size_bytes > PTRDIFF_MAX) return NULL;
  bool guarded = guard_is_on() && guard_size(block, &block_bytes); /* moves always: an old pointer then shows */
  guarded |= fence_holds(block) || aside_holds(block) || aside_is_begun();
  void *result = guarded ? NULL : resize_same(block, block_bytes, size_bytes, true);
  if (result != NULL) return result;
  result = block_take(size_bytes);
  if (result == NULL && size_bytes <= block_bytes) { /* a smaller block never fails */
    __atomic_store_n(&some_blocks_are_too_long, true, __ATOMIC_RELAXED);
    return block;
  }
  if (result != NULL) block_move(block, block_bytes, result, size_bytes);
  return result;
}
