/* malloc, free, malloc_usable_size: alignment, zero, limits, errno, and that blocks are one's own. */
#include "../support/test.h"

#include <malloc.h>

TEST(every_size_is_aligned_to_16) {
  for (size_t size = 0; size <= 40 * KIB; size += size < 2 * KIB ? 1 : 61) {
    void *block = hidden(malloc(size));
    REQUIRE(block != NULL);
    CHECK_THAT((uintptr_t)block % 16 == 0, "malloc(%zu) = %p", size, block);
    free(block);
  }
  for (size_t size = 64 * KIB; size <= 64 * MIB; size *= 2) {
    for (int around = -1; around <= 1; around++) {
      void *block = hidden(malloc(size + (size_t)around));
      REQUIRE(block != NULL);
      CHECK_THAT((uintptr_t)block % 16 == 0, "malloc(%zu) = %p", size + (size_t)around, block);
      free(block);
    }
  }
}

TEST(live_small_blocks_are_aligned_too) {
  enum { COUNT = 512 };
  static void *blocks[COUNT];
  for (size_t size = 1; size <= 256; size++) {
    for (size_t i = 0; i < COUNT; i++) {
      blocks[i] = hidden(malloc(size));
      REQUIRE(blocks[i] != NULL);
      CHECK_THAT((uintptr_t)blocks[i] % 16 == 0, "malloc(%zu) = %p", size, blocks[i]);
    }
    for (size_t i = 0; i < COUNT; i++) free(blocks[i]);
  }
}

TEST(zero_size_gives_distinct_freeable_blocks) {
  void *first = hidden(malloc(0));
  void *second = hidden(malloc(0));
  CHECK(first != NULL && second != NULL);
  CHECK(first != second);
  free(first);
  free(second);
}

TEST(free_of_null_does_nothing) {
  errno = 4321;
  free(hidden(NULL));
  CHECK_THAT(errno == 4321, "errno is %d", errno);
}

TEST(sizes_beyond_ptrdiff_max_fail_with_enomem) {
  const size_t sizes[] = {SIZE_MAX,
                          SIZE_MAX - 1,
                          SIZE_MAX - 15,
                          SIZE_MAX - 16,
                          SIZE_MAX - 4095,
                          SIZE_MAX - 4096,
                          SIZE_MAX - 65536,
                          SIZE_MAX / 2 + 4096,
                          (size_t)PTRDIFF_MAX + 1,
                          (size_t)PTRDIFF_MAX,
                          (size_t)PTRDIFF_MAX - 4096};
  for (size_t i = 0; i < COUNT_OF(sizes); i++) {
    errno = 0;
    void *block = hidden(malloc(hidden_size(sizes[i])));
    CHECK_THAT(block == NULL, "malloc(%zu) = %p", sizes[i], block);
    CHECK_THAT(errno == ENOMEM, "malloc(%zu) set errno %d", sizes[i], errno);
  }
}

TEST(unbackable_sizes_fail_with_enomem) {
  /* More than any address space of today's machines (57 bits) but less than PTRDIFF_MAX. */
  for (unsigned bits = 58; bits < 63; bits++) {
    errno = 0;
    void *block = hidden(malloc(hidden_size((size_t)1 << bits)));
    CHECK_THAT(block == NULL && errno == ENOMEM, "malloc(2^%u) = %p, errno %d", bits, block, errno);
  }
}

TEST(free_keeps_errno) {
  size_t sizes[256];
  size_t count = boundary_sizes(sizes, COUNT_OF(sizes), 32 * MIB);
  for (size_t i = 0; i < count; i++) {
    void *block = hidden(malloc(sizes[i]));
    REQUIRE(block != NULL);
    memset(block, 1, sizes[i]);
    errno = 4321;
    free(block);
    CHECK_THAT(errno == 4321, "free of %zu bytes set errno %d", sizes[i], errno);
  }
}

TEST(free_of_many_keeps_errno) {
  /* Enough frees that caches are flushed, slabs emptied and pages purged on the way. */
  enum { COUNT = 20000 };
  static void *blocks[COUNT];
  for (size_t i = 0; i < COUNT; i++) {
    blocks[i] = hidden(malloc(16 + i % 3000));
    REQUIRE(blocks[i] != NULL);
    memset(blocks[i], 1, 16 + i % 3000);
  }
  errno = 4321;
  for (size_t i = 0; i < COUNT; i++) free(blocks[i]);
  CHECK_THAT(errno == 4321, "errno is %d", errno);
}

TEST(usable_size_covers_the_request_and_is_writable) {
  size_t sizes[256];
  size_t count = boundary_sizes(sizes, COUNT_OF(sizes), 8 * MIB);
  for (size_t i = 0; i < count; i++) {
    unsigned char *block = (unsigned char *)hidden(malloc(sizes[i]));
    unsigned char *neighbour = (unsigned char *)hidden(malloc(sizes[i]));
    REQUIRE(block != NULL && neighbour != NULL);
    size_t usable = malloc_usable_size(block);
    CHECK_THAT(usable >= sizes[i], "usable size of %zu is %zu", sizes[i], usable);
    size_t neighbour_usable = malloc_usable_size(neighbour);
    fill_pattern(neighbour, neighbour_usable, i);
    memset(block, 0xa5, usable);
    CHECK_THAT(pattern_mismatch(neighbour, neighbour_usable, i) == neighbour_usable, "size %zu", sizes[i]);
    CHECK_THAT(malloc_usable_size(block) == usable, "size %zu", sizes[i]);
    free(block);
    free(neighbour);
  }
  CHECK(malloc_usable_size(NULL) == 0);
}

TEST(blocks_keep_their_contents_among_many) {
  enum { COUNT = 5000 };
  static unsigned char *blocks[COUNT];
  static size_t sizes[COUNT];
  uint64_t random = 7;
  memset(blocks, 0, sizeof blocks);
  for (int step = 0; step < 100000; step++) {
    size_t i = random_below(&random, COUNT);
    if (blocks[i] != NULL) {
      size_t mismatch = pattern_mismatch(blocks[i], sizes[i], i);
      CHECK_THAT(mismatch == sizes[i], "block of %zu bytes differs at %zu", sizes[i], mismatch);
      free(blocks[i]);
    }
    sizes[i] = (size_t)1 << random_below(&random, 15);
    sizes[i] += random_below(&random, sizes[i]);
    blocks[i] = (unsigned char *)hidden(malloc(sizes[i]));
    REQUIRE(blocks[i] != NULL);
    fill_pattern(blocks[i], sizes[i], i);
  }
  for (size_t i = 0; i < COUNT; i++) free(blocks[i]);
}

TEST(large_blocks_of_every_page_count_hold_their_last_byte) {
  for (size_t pages = 1; pages <= 600; pages++) {
    size_t size = pages * 4096;
    unsigned char *block = (unsigned char *)hidden(malloc(size));
    REQUIRE(block != NULL);
    block[0] = 1;
    block[size - 1] = 2;
    CHECK(block[0] == 1 && block[size - 1] == 2);
    free(block);
  }
}

int main(int argc, char **argv) { return run_tests(argc, argv); }
