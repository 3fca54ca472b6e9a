/* calloc and reallocarray: zeroed memory whatever was there before, and products that overflow. */
#include "../support/test.h"

#include <malloc.h>

static void check_zeroed(size_t size_bytes) {
  unsigned char *block = (unsigned char *)hidden(calloc(1, size_bytes));
  REQUIRE(block != NULL);
  size_t offset = nonzero_offset(block, size_bytes);
  CHECK_THAT(offset == size_bytes, "calloc(1, %zu) has %d at %zu", size_bytes, block[offset], offset);
  memset(block, 0xff, malloc_usable_size(block));
  free(block);
}

TEST(fresh_blocks_are_zero) {
  size_t sizes[256];
  size_t count = boundary_sizes(sizes, COUNT_OF(sizes), 32 * MIB);
  for (size_t i = 0; i < count; i++) check_zeroed(sizes[i]);
}

TEST(reused_dirty_blocks_are_zero) {
  enum { COUNT = 64 };
  size_t sizes[256];
  void *blocks[COUNT];
  size_t count = boundary_sizes(sizes, COUNT_OF(sizes), 2 * MIB);
  for (size_t i = 0; i < count; i++) {
    size_t copies = sizes[i] > 64 * KIB ? 4 : COUNT;
    for (int round = 0; round < 3; round++) {
      for (size_t k = 0; k < copies; k++) {
        blocks[k] = hidden(malloc(sizes[i]));
        REQUIRE(blocks[k] != NULL);
        memset(blocks[k], 0xff, malloc_usable_size(blocks[k]));
      }
      for (size_t k = 0; k < copies; k++) free(blocks[k]);
      for (size_t k = 0; k < copies; k++) check_zeroed(sizes[i]);
    }
  }
}

TEST(memory_that_served_other_sizes_is_zero) {
  uint64_t random = 11;
  enum { COUNT = 400 };
  static void *blocks[COUNT];
  memset(blocks, 0, sizeof blocks);
  for (int step = 0; step < 30000; step++) {
    size_t i = random_below(&random, COUNT);
    free(blocks[i]);
    size_t size = (size_t)1 << random_below(&random, 18);
    size += random_below(&random, size);
    blocks[i] = hidden(random_below(&random, 2) ? calloc(1, size) : malloc(size));
    REQUIRE(blocks[i] != NULL);
    if (step % 2) {
      free(blocks[i]);
      blocks[i] = hidden(calloc(size, 1));
      REQUIRE(blocks[i] != NULL);
      size_t offset = nonzero_offset(blocks[i], size);
      CHECK_THAT(offset == size, "calloc(%zu, 1) is dirty at %zu", size, offset);
    }
    memset(blocks[i], 0xff, malloc_usable_size(blocks[i]));
  }
  for (size_t i = 0; i < COUNT; i++) free(blocks[i]);
}

TEST(tail_freed_by_shrinking_is_zero_when_reused) {
  for (size_t size = 64 * KIB; size <= 8 * MIB; size *= 2) {
    void *block = hidden(malloc(size));
    REQUIRE(block != NULL);
    memset(block, 0xff, size);
    block = hidden(realloc(block, size / 4));
    REQUIRE(block != NULL);
    for (size_t part = 4 * KIB; part <= size; part *= 2) check_zeroed(part);
    free(block);
  }
}

TEST(memory_given_back_and_taken_again_is_zero) {
  enum { COUNT = 300 };
  static void *blocks[COUNT];
  for (int round = 0; round < 3; round++) {
    for (size_t i = 0; i < COUNT; i++) {
      blocks[i] = hidden(malloc((i % 100 + 1) * KIB));
      REQUIRE(blocks[i] != NULL);
      memset(blocks[i], 0xff, malloc_usable_size(blocks[i]));
    }
    for (size_t i = 0; i < COUNT; i += 2) free(blocks[i]);
    trim_heap();
    for (size_t i = 0; i < COUNT; i += 2) {
      size_t size = (i % 100 + 1) * KIB;
      blocks[i] = hidden(calloc(1, size));
      REQUIRE(blocks[i] != NULL);
      CHECK_THAT(nonzero_offset(blocks[i], size) == size, "size %zu", size);
    }
    for (size_t i = 0; i < COUNT; i++) free(blocks[i]);
  }
}

TEST(products_that_overflow_fail_with_enomem) {
  const size_t pairs[][2] = {{SIZE_MAX, 2},
                             {2, SIZE_MAX},
                             {SIZE_MAX, SIZE_MAX},
                             {SIZE_MAX / 2 + 1, 2},
                             {(size_t)1 << 32, (size_t)1 << 32},
                             {((size_t)1 << 32) + 1, (size_t)1 << 32},
                             {SIZE_MAX / 16 + 1, 16},
                             {SIZE_MAX / 16 + 2, 16},
                             {1, (size_t)PTRDIFF_MAX + 1},
                             {(size_t)PTRDIFF_MAX / 8 + 1, 8},
                             {SIZE_MAX / 3, 3}};
  for (size_t i = 0; i < COUNT_OF(pairs); i++) {
    size_t count = hidden_size(pairs[i][0]), size = hidden_size(pairs[i][1]);
    errno = 0;
    void *block = hidden(calloc(count, size));
    CHECK_THAT(block == NULL && errno == ENOMEM, "calloc(%zu, %zu) = %p, errno %d", count, size, block, errno);
    errno = 0;
    block = hidden(reallocarray(NULL, count, size));
    CHECK_THAT(block == NULL && errno == ENOMEM, "reallocarray(%zu, %zu) = %p, errno %d", count, size, block, errno);
  }
}

TEST(zero_products_give_freeable_blocks) {
  void *blocks[] = {hidden(calloc(0, 0)), hidden(calloc(0, hidden_size(SIZE_MAX))),
                    hidden(calloc(hidden_size(SIZE_MAX), 0))};
  for (size_t i = 0; i < COUNT_OF(blocks); i++) {
    CHECK_THAT(blocks[i] != NULL, "case %zu", i);
    for (size_t k = 0; k < i; k++) CHECK(blocks[i] != blocks[k]);
  }
  for (size_t i = 0; i < COUNT_OF(blocks); i++) free(blocks[i]);
}

TEST(reallocarray_grows_and_leaves_the_block_when_it_overflows) {
  unsigned char *block = (unsigned char *)hidden(reallocarray(NULL, 10, 10));
  REQUIRE(block != NULL);
  fill_pattern(block, 100, 1);
  block = (unsigned char *)hidden(reallocarray(block, 1000, 1000));
  REQUIRE(block != NULL);
  CHECK(pattern_mismatch(block, 100, 1) == 100);
  errno = 0;
  CHECK(hidden(reallocarray(hidden(block), hidden_size(SIZE_MAX / 2), 3)) == NULL && errno == ENOMEM);
  CHECK(pattern_mismatch(block, 100, 1) == 100);
  free(block);
}

int main(int argc, char **argv) { return run_tests(argc, argv); }
