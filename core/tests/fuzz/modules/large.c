/* large.c: blocks with mappings of their own, beside a list of them and of what each contains. */
#include "world.h"

#include "../../../src/large.h"
#include "../../../src/purge.h"
#include "blocks.h"

enum { LARGE_SLOTS = 24 };

enum large_operation {
  LARGE_TAKE,
  LARGE_TAKE_ALIGNED,
  LARGE_GIVE,
  LARGE_RESIZE,
  LARGE_RESIZE_IN_PLACE,
  LARGE_PURGE,
  LARGE_PURGE_AGED,
  LARGE_AGE,
  LARGE_RETRY,
  LARGE_LOOK,
};

static const char *const large_operations[] = {
    "take", "take_aligned", "give", "resize", "resize_in_place", "purge", "purge_aged", "age", "retry", "look", NULL,
};

static struct large_block {
  char *start; /* NULL: none */
  size_t bytes;
  uint64_t seed;
} blocks[LARGE_SLOTS];
static uint64_t seeds;

static void check_block(const struct large_block *block, size_t common) {
  size_t at = mark_mismatch(block->start, block->bytes, common, block->seed);
  if (at != SIZE_MAX) fuzz_fail("the block %p of %zu bytes has changed at %zu", (void *)block->start, block->bytes, at);
}

static void keep(struct large_block *block, char *start, size_t bytes) {
  if (large_size(start) < bytes) fuzz_fail("%zu usable bytes of %zu", large_size(start), bytes);
  *block = (struct large_block){start, bytes, ++seeds};
  mark(start, bytes, block->seed);
}

static void take(struct large_block *block, size_t bytes, size_t alignment) {
  uint64_t refused = refused_calls;
  bool clean = false;
  if (block->start != NULL) return;
  char *start = large_take(bytes, alignment, &clean);
  if (start == NULL) {
    if (refused == refused_calls) fuzz_fail("no memory for %zu bytes", bytes);
    fuzz_counts->failed++;
    return;
  }
  if ((uintptr_t)start % alignment != 0) fuzz_fail("%p is at no multiple of %zu", (void *)start, alignment);
  if (clean && !reads_as_zero(start, 0, bytes)) fuzz_fail("the block %p is not clean", (void *)start);
  keep(block, start, bytes);
}

static void give(struct large_block *block) {
  if (block->start == NULL) return;
  check_block(block, block->bytes);
  char *start = block->start;
  block->start = NULL;
  if (!large_give(start)) fuzz_fail("the block %p is unknown", (void *)start);
  if (large_give(start)) fuzz_fail("the block %p can be given twice", (void *)start);
}

static void resize(struct large_block *block, size_t bytes, bool in_place) {
  uint64_t refused = refused_calls;
  if (block->start == NULL) return;
  check_block(block, block->bytes);
  struct large_block before = *block;
  char *start = before.start;
  if (in_place && !large_resize_in_place(start, bytes)) start = NULL;
  if (!in_place) start = large_resize(start, bytes);
  if (start == NULL) {
    if (!in_place && refused == refused_calls) fuzz_fail("no memory to resize to %zu bytes", bytes);
    fuzz_counts->failed += !in_place;
    check_block(block, block->bytes);
    return;
  }
  before.start = start;
  check_block(&before, before.bytes < bytes ? before.bytes : bytes);
  keep(block, start, bytes);
}

static void look(const struct large_block *block, size_t offset) {
  if (block->start == NULL) return;
  const char *inside = block->start + offset % block->bytes;
  if (large_block_around(inside) != block->start) fuzz_fail("%p is in no block", (const void *)inside);
  if (inside != block->start && large_size(inside) != 0) fuzz_fail("a block begins at %p", (const void *)inside);
}

static void purge_large(size_t keep_pages, bool only_aged) {
  size_t before = large_retained_pages(), gone = large_purge(keep_pages, only_aged), left = large_retained_pages();
  if (left != before - gone) fuzz_fail("%zu of %zu retained pages went, %zu are left", gone, before, left);
  if (!only_aged && left > keep_pages) fuzz_fail("%zu pages are retained of %zu", left, keep_pages);
}

static void large_begin(void) {
  begin_core();
  if (!purge_try_lock()) fuzz_fail("the purge lock is taken"); /* so nobody else purges */
}

static void large_step(unsigned operation, unsigned a, unsigned b) {
  struct large_block *block = &blocks[a % LARGE_SLOTS];
  size_t bytes = (size_t)LARGE_MIN_BYTES + ((size_t)(b & 1023) << (10 + b / 1024 % 5));
  switch ((enum large_operation)operation) {
    case LARGE_TAKE: return take(block, bytes, 16);
    case LARGE_TAKE_ALIGNED: return take(block, bytes, (size_t)16 << b % 20);
    case LARGE_GIVE: return give(block);
    case LARGE_RESIZE: return resize(block, bytes, false);
    case LARGE_RESIZE_IN_PLACE: return resize(block, bytes, true);
    case LARGE_PURGE: return purge_large(b % 8192, false);
    case LARGE_PURGE_AGED: return purge_large(b % 8192, true);
    case LARGE_AGE: return large_age();
    case LARGE_RETRY: return large_retry_unmaps();
    case LARGE_LOOK: return look(block, (size_t)b * 97);
  }
}

static void large_check_all(void) {
  for (size_t i = 0; i < LARGE_SLOTS; i++)
    if (blocks[i].start != NULL) check_block(&blocks[i], blocks[i].bytes);
  large_check();
}

static void large_end(void) {
  for (size_t i = 0; i < LARGE_SLOTS; i++) give(&blocks[i]);
  purge_large(0, false);
  large_check_all();
}

static void large_spoil(void) {
  fuzz_refuse(0, 0);
  take(&blocks[0], LARGE_MIN_BYTES, 16);
  blocks[0].start[0] ^= 1;
}

const struct fuzz_module large_module = {"large",         large_operations, large_begin, large_step,
                                         large_check_all, large_end,        large_spoil};
