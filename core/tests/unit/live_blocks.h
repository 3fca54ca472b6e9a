/* live_blocks.h: a list of blocks in use, against which slabs are tested: nobody else writes into them. */
#ifndef SNUG_UNIT_LIVE_BLOCKS_H
#define SNUG_UNIT_LIVE_BLOCKS_H

#include "slabs.h"

enum { LIVE_MAX = 200000, BATCH = 40 };

struct block {
  char *start;
  unsigned class_index; /* that it was taken for */
  uint64_t seed;
};
static struct block live[LIVE_MAX];
static size_t live_count;
static uint64_t random_state; /* the test file gives it its first value */

static inline size_t size_of(unsigned class_index) { return class_shapes[class_index].size_bytes; }

/* First and last eight bytes of all that the block may use: another block over this one, or a purge of its pages, would
 * change them. */
static inline void mark(struct block *block) {
  block->seed = random_next(&random_state);
  memcpy(block->start, &block->seed, 8);
  memcpy(block->start + slab_block_size(block->start) - 8, &block->seed, 8);
}

static inline bool is_marked(const struct block *block) {
  return memcmp(block->start, &block->seed, 8) == 0 &&
         memcmp(block->start + slab_block_size(block->start) - 8, &block->seed, 8) == 0;
}

static inline void keep(void *start, unsigned class_index) {
  struct block block = {start, class_index, 0};
  REQUIRE(live_count < LIVE_MAX);
  mark(&block);
  live[live_count++] = block;
}

/* Frees some, at random. */
static inline void give_some(size_t wanted) {
  void *blocks[BATCH];
  size_t count = 0;
  for (; count < wanted && live_count != 0; count++) {
    size_t i = random_below(&random_state, live_count);
    CHECK_THAT(is_marked(&live[i]), "block %p of class %u was overwritten", (void *)live[i].start, live[i].class_index);
    blocks[count] = live[i].start;
    live[i] = live[--live_count];
  }
  CHECK(!slab_give(blocks, count));
}

/* The same, until so many are left. */
static inline void give_until(size_t left) {
  while (live_count > left) give_some(live_count - left < BATCH ? live_count - left : BATCH);
}

#endif
