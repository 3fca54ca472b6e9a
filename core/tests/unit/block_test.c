/* block_test.c: which way a size goes, how long its block is, and when it stays where it is, against the table of
 * block.h and plain arithmetic. */
#include "../../src/sys.c"
#include "above_sys.h"
#include "unit.h"

enum way { BY_CLASS, BY_RUN, BY_MAPPING };

static enum way way_of(size_t size_bytes) {
  return size_bytes <= CLASS_MAX_BYTES ? BY_CLASS : size_bytes < LARGE_MIN_BYTES ? BY_RUN : BY_MAPPING;
}

static enum way way_taken(const void *block) {
  size_t page = page_index(block);
  if (page >= zone_pages()) return BY_MAPPING;
  return page_kind(page) == KIND_RUN ? BY_RUN : BY_CLASS;
}

static bool all_zero(const char *block, size_t length_bytes) {
  for (size_t i = 0; i < length_bytes; i++) {
    if (block[i] != 0) return false;
  }
  return true;
}

/* The sizes on both sides of every border, and some between. */
static size_t size_number(size_t i) {
  if (i < 2 * CLASS_COUNT) return class_shapes[i / 2].size_bytes + i % 2;
  i -= 2 * CLASS_COUNT;
  size_t borders[] = {100 * KIB, LARGE_MIN_BYTES - 1, LARGE_MIN_BYTES, LARGE_MIN_BYTES + 1, 3 * MIB + 5};
  return i < COUNT_OF(borders) ? borders[i] : SIZE_MAX;
}

TEST(sizes_go_their_way_and_waste_at_most_an_eighth) {
  for (size_t i = 0, size_bytes; (size_bytes = size_number(i)) != SIZE_MAX; i++) {
    char *block = block_take(size_bytes);
    REQUIRE(block != NULL);
    size_t length = block_size(block), page = way_of(size_bytes) == BY_CLASS ? 16 : zone.page_bytes;
    CHECK_THAT(way_taken(block) == way_of(size_bytes), "%zu bytes went way %d", size_bytes, way_taken(block));
    CHECK_THAT(length >= size_bytes && length <= size_bytes + size_bytes / 8 + page, "%zu bytes for %zu", length,
               size_bytes);
    CHECK((uintptr_t)block % 16 == 0);
    memset(block, 1, length);
    block_give(block);
  }
}

TEST(zeroed_blocks_are_zero_after_dirty_ones) {
  for (size_t i = 0, size_bytes; (size_bytes = size_number(i)) != SIZE_MAX; i++) {
    char *dirty = block_take(size_bytes);
    REQUIRE(dirty != NULL);
    memset(dirty, 0xff, block_size(dirty));
    block_give(dirty);
    char *block = block_take_zeroed(size_bytes);
    REQUIRE(block != NULL);
    CHECK_THAT(all_zero(block, size_bytes), "%zu bytes", size_bytes);
    block_give(block);
  }
}

TEST(small_blocks_are_zeroed_whole_and_no_further) {
  _Alignas(16) char block[ZERO_INLINE_MAX_BYTES + 16];
  for (size_t size_bytes = 0; size_bytes <= ZERO_INLINE_MAX_BYTES; size_bytes++) {
    memset(block, 0xff, sizeof block);
    zero_small(block, size_bytes);
    size_t end = size_bytes <= 16 ? 16 : round_up(size_bytes, 16);
    CHECK_THAT(all_zero(block, end) && block[end] != 0, "%zu bytes", size_bytes);
  }
}

TEST(aligned_blocks_are_aligned) {
  for (size_t alignment = 16; alignment <= 4 * MIB; alignment *= 2) {
    for (size_t size_bytes = 1; size_bytes < 200 * KIB; size_bytes = size_bytes * 5 / 2 + 1) {
      bool clean;
      char *block = block_take_aligned(alignment, size_bytes, &clean);
      REQUIRE(block != NULL);
      CHECK((uintptr_t)block % alignment == 0 && block_size(block) >= size_bytes);
      block_check_size(block, alignment, size_bytes);
      block_give(block);
    }
  }
}

/* A class block stays while it has room and at most a quarter would be unused; contents always stay. */
TEST(resized_blocks_keep_their_contents) {
  uint64_t random_state = 5;
  for (int step = 0; step < 3000; step++) {
    size_t from = 1 + random_below(&random_state, step % 10 == 0 ? 2 * MIB : 60 * KIB);
    size_t to = 1 + random_below(&random_state, step % 7 == 0 ? 2 * MIB : 60 * KIB), kept = from < to ? from : to;
    char *block = block_take(from);
    REQUIRE(block != NULL);
    size_t length = block_size(block);
    fill_pattern(block, from, (uint64_t)step);
    bool stays = way_of(from) == BY_CLASS && to <= length && to >= length - length / 4;
    CHECK(block_stays(block, to) == stays);
    char *moved = block_resize(block, to);
    REQUIRE(moved != NULL);
    CHECK_THAT(!stays || moved == block, "%zu to %zu bytes moved", from, to);
    CHECK_THAT(pattern_mismatch(moved, kept, (uint64_t)step) == kept, "%zu to %zu bytes", from, to);
    CHECK(block_size(moved) >= to);
    block_give_sized(moved, 1, to);
  }
  snug_check();
}
