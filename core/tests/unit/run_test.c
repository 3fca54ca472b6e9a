/* run_test.c: blocks of whole pages against a list of them. */
#include "../../src/sys.c"
#include "../../src/fatal.c"
#include "../../src/rights.c"
#include "../../src/lock.c"
#include "../../src/options.c"
#include "../../src/map.c"
#include "../../src/huge.c"
#include "../../src/pages.c"
#include "../../src/run.c"
#include "unit.h"

struct snug_counters snug_counters; /* stats.c has the real one */

enum { BLOCKS = 200 };

static struct block {
  char *start;
  size_t size_bytes;
  uint64_t seed;
} blocks[BLOCKS];
static size_t block_count;
static uint64_t random_state = 1;

static void init_once(void) {
  if (zone.base == NULL) REQUIRE(map_init());
}

static size_t pages_of(size_t size_bytes) { return (size_bytes + PAGE_BYTES - 1) / PAGE_BYTES; }

/* Marks both ends of the block, which tell when another one overlaps it. */
static void mark(struct block *block) {
  block->seed = random_next(&random_state);
  size_t ends = block->size_bytes < 128 ? block->size_bytes / 2 : 64;
  fill_pattern(block->start, ends, block->seed);
  fill_pattern(block->start + block->size_bytes - ends, ends, block->seed);
}

static void check_block(const struct block *block) {
  size_t ends = block->size_bytes < 128 ? block->size_bytes / 2 : 64;
  CHECK(pattern_mismatch(block->start, ends, block->seed) == ends);
  CHECK(pattern_mismatch(block->start + block->size_bytes - ends, ends, block->seed) == ends);
  CHECK(run_size(block->start) == pages_of(block->size_bytes) * PAGE_BYTES);
  const char *inside = block->start + random_below(&random_state, pages_of(block->size_bytes) * PAGE_BYTES);
  CHECK(run_holding(inside) == block->start);
  size_t inner_page = 1 + random_below(&random_state, pages_of(block->size_bytes));
  if (inner_page < pages_of(block->size_bytes)) {
    CHECK(page_kind(page_index(block->start) + inner_page) == 0);
  }
  CHECK(page_kind(page_index(block->start)) == KIND_RUN && run_size(block->start + 16) == 0);
}

/* The counters are exact, for what was asked as well as for what was given. */
static void compare(void) {
  uint64_t bytes = 0, requested_bytes = 0;
  for (size_t i = 0; i < block_count; i++) {
    bytes += pages_of(blocks[i].size_bytes) * PAGE_BYTES;
    requested_bytes += blocks[i].size_bytes;
  }
  CHECK(snug_counters.run_blocks == block_count && snug_counters.run_bytes == bytes);
  CHECK(snug_counters.run_requested_bytes == requested_bytes);
  CHECK(pages_used() * PAGE_BYTES == bytes);
  pages_check();
}

static void take(size_t size_bytes, size_t alignment) {
  bool clean;
  struct block block = {run_take(size_bytes, alignment, &clean), size_bytes, 0};
  REQUIRE(block.start != NULL);
  CHECK_THAT((uintptr_t)block.start % alignment == 0, "%p is no multiple of %zu", (void *)block.start, alignment);
  size_t bytes = pages_of(size_bytes) * PAGE_BYTES;
  if (clean) CHECK(nonzero_offset(block.start, bytes) == bytes);
  for (size_t i = 0; i < block_count; i++) {
    CHECK(block.start + bytes <= blocks[i].start ||
          blocks[i].start + pages_of(blocks[i].size_bytes) * PAGE_BYTES <= block.start);
  }
  mark(&block);
  blocks[block_count++] = block;
}

static void give(size_t i) {
  check_block(&blocks[i]);
  run_give(blocks[i].start);
  blocks[i] = blocks[--block_count];
}

static void resize(size_t i, size_t size_bytes) {
  struct block *block = &blocks[i];
  check_block(block);
  size_t next = page_index(block->start) + pages_of(block->size_bytes),
         end = page_index(block->start) + pages_of(size_bytes);
  bool can = page_index(block->start) / CHUNK_PAGES == (end - 1) / CHUNK_PAGES;
  for (size_t page = next; can && page < end; page++) can = bits_test(zone.free_bits, page);
  bool done = run_resize(block->start, size_bytes);
  CHECK_THAT(done == can, "from %zu to %zu: %d", block->size_bytes, size_bytes, done);
  if (!done) return check_block(block);
  size_t kept = size_bytes < 64 ? size_bytes : 64;
  CHECK(block->size_bytes < 128 || pattern_mismatch(block->start, kept, block->seed) == kept);
  block->size_bytes = size_bytes;
  mark(block);
}

static size_t random_size(void) {
  size_t limit = random_below(&random_state, 4) == 0 ? RUN_MAX_BYTES : 20 * PAGE_BYTES;
  return 1 + random_below(&random_state, limit);
}

TEST(random_operations_agree_with_the_model) {
  init_once();
  for (int step = 0; step < 5000; step++) {
    size_t choice = random_below(&random_state, 100);
    size_t i = block_count != 0 ? random_below(&random_state, block_count) : 0;
    if (choice < 40 && block_count < (step / 1000 % 2 ? 30 : BLOCKS)) {
      take(random_size(), choice < 10 ? (size_t)PAGE_BYTES << random_below(&random_state, 9) : 16);
    } else if (choice < 70 && block_count != 0) {
      give(i);
    } else if (choice < 98 && block_count != 0) {
      resize(i, random_size());
    } else {
      pages_purge(random_below(&random_state, pages_dirty() + 1), false);
    }
    compare();
    if (test_failed) return;
  }
  while (block_count != 0) give(0);
  compare();
  CHECK(snug_counters.run_bytes == 0 && snug_counters.run_requested_bytes == 0);
}

TEST(the_largest_and_the_smallest) {
  init_once();
  take(1, 1);
  take(RUN_MAX_BYTES, 1);
  take(RUN_MAX_BYTES, RUN_MAX_BYTES);
  compare();
  while (block_count != 0) give(0);
}

static char *block_of_4_pages;
static void give_inside_the_first_page(void) { run_give(block_of_4_pages + 16); }
static void give_with_a_broken_length(void) {
  zone.owner[page_index(block_of_4_pages)] = 0;
  run_give(block_of_4_pages);
}

TEST(misuse_ends_the_process) {
  init_once();
  bool clean;
  block_of_4_pages = run_take(4 * PAGE_BYTES, 1, &clean);
  check_dies(give_inside_the_first_page, "free of a pointer inside a block");
  check_dies(give_inside_the_first_page, "in the block of 16384 bytes");
  check_dies(give_with_a_broken_length, "heap metadata is corrupted");
  run_give(block_of_4_pages);
}
