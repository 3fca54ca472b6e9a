/* realloc: contents kept over every transition between sizes, failure without loss, NULL and zero. */
#include "../support/test.h"

#include <malloc.h>

TEST(contents_survive_every_transition) {
  size_t sizes[256];
  size_t count = boundary_sizes(sizes, COUNT_OF(sizes), 256 * KIB);
  for (size_t from = 0; from < count; from++) {
    for (size_t to = 0; to < count; to++) {
      if (sizes[to] == 0) continue;
      unsigned char *block = (unsigned char *)hidden(malloc(sizes[from]));
      REQUIRE(block != NULL);
      size_t kept = sizes[from] < sizes[to] ? sizes[from] : sizes[to];
      /* Both ends of what must be kept: filling all of it for every pair would take minutes under emulation. */
      size_t head = kept < 512 ? kept : 512, tail = kept - head < 512 ? kept - head : 512;
      fill_pattern(block, head, from);
      fill_pattern(block + kept - tail, tail, to);
      block = (unsigned char *)hidden(realloc(block, sizes[to]));
      REQUIRE(block != NULL);
      CHECK_THAT(pattern_mismatch(block, head, from) == head, "head, %zu -> %zu", sizes[from], sizes[to]);
      CHECK_THAT(pattern_mismatch(block + kept - tail, tail, to) == tail, "tail, %zu -> %zu", sizes[from], sizes[to]);
      CHECK_THAT((uintptr_t)block % 16 == 0, "%zu -> %zu = %p", sizes[from], sizes[to], (void *)block);
      CHECK(malloc_usable_size(block) >= sizes[to]);
      free(block);
    }
  }
}

TEST(large_transitions_keep_every_byte) {
  const size_t sizes[] = {100,     31 * KIB, 33 * KIB, 200 * KIB, 1 * MIB - 1, 1 * MIB,
                          MIB + 1, 3 * MIB,  8 * MIB,  33 * MIB,  64 * MIB + 5};
  for (size_t from = 0; from < COUNT_OF(sizes); from++) {
    for (size_t to = 0; to < COUNT_OF(sizes); to++) {
      unsigned char *block = (unsigned char *)hidden(malloc(sizes[from]));
      REQUIRE(block != NULL);
      size_t kept = sizes[from] < sizes[to] ? sizes[from] : sizes[to];
      fill_pattern(block, sizes[from], from + to);
      block = (unsigned char *)hidden(realloc(block, sizes[to]));
      REQUIRE(block != NULL);
      size_t mismatch = pattern_mismatch(block, kept, from + to);
      CHECK_THAT(mismatch == kept, "%zu -> %zu differs at %zu", sizes[from], sizes[to], mismatch);
      block[sizes[to] - 1] = 1;
      free(block);
    }
  }
}

TEST(growing_byte_by_byte_keeps_the_string) {
  unsigned char *text = NULL;
  for (size_t length = 1; length <= 70000; length++) {
    text = (unsigned char *)hidden(realloc(text, length));
    REQUIRE(text != NULL);
    text[length - 1] = pattern_byte(3, length - 1);
  }
  CHECK(pattern_mismatch(text, 70000, 3) == 70000);
  for (size_t length = 70000; length > 0; length -= length > 100 ? 97 : 1) {
    text = (unsigned char *)hidden(realloc(text, length));
    REQUIRE(text != NULL);
    CHECK_THAT(text[length - 1] == pattern_byte(3, length - 1), "length %zu", length);
  }
  free(text);
}

/* How often a block moves that grows from 1 byte by one at a time. */
static size_t moves_of_growth(size_t to) {
  size_t moves = 0;
  char *block = (char *)hidden(malloc(1)), *before;
  for (size_t size_bytes = 2; size_bytes <= to; size_bytes++, moves += block != before) {
    before = block;
    size_t usable = malloc_usable_size(block);
    block = (char *)hidden(realloc(block, size_bytes));
    REQUIRE(block != NULL);
    CHECK_THAT(block == before || usable < size_bytes, "%zu bytes: %zu were usable, and it moved", size_bytes, usable);
  }
  free(block);
  return moves;
}

/* A block stays where it has room and no shorter one would do, as under glibc and jemalloc. */
TEST(what_fits_as_it_is_stays) {
  if (freed_blocks_wait()) SKIP("under guard:1 every block moves");
  for (size_t size_bytes = 1; size_bytes <= 5 * MIB; size_bytes += 1 + size_bytes / 700) {
    void *block = hidden(malloc(size_bytes)), *same = hidden(realloc(block, size_bytes));
    CHECK_THAT(same == block, "%zu bytes again: it moved", size_bytes);
    free(same);
  }
  size_t moves = moves_of_growth(1024);
  CHECK_THAT(moves <= 1024 / 16, "%zu moves from 1 to 1024 bytes", moves); /* glibc's lengths are 16 bytes apart */
}

/* And what shrinks much gives its memory back. */
TEST(what_shrinks_much_becomes_shorter) {
  if (!snug_is_active()) SKIP("not snug");
  for (size_t size_bytes = 32; size_bytes <= 3 * MIB; size_bytes += size_bytes / 3) {
    void *block = hidden(realloc(hidden(malloc(size_bytes)), size_bytes / 2));
    REQUIRE(block != NULL);
    size_t usable = malloc_usable_size(block);
    CHECK_THAT(usable * 4 <= size_bytes * 3 + 64, "half of %zu bytes: %zu are usable", size_bytes, usable);
    free(block);
  }
}

TEST(interleaved_growth_of_large_blocks_keeps_contents) {
  enum { COUNT = 8 };
  unsigned char *blocks[COUNT] = {0};
  size_t sizes[COUNT] = {0};
  uint64_t random = 5;
  for (int step = 0; step < 400; step++) {
    size_t i = random_below(&random, COUNT);
    size_t kept = sizes[i];
    size_t wanted = random_below(&random, 4) == 0 ? 1 + random_below(&random, 100000)
                                                  : sizes[i] + 1 + random_below(&random, 700000);
    if (wanted > 16 * MIB) wanted = 1;
    blocks[i] = (unsigned char *)hidden(realloc(blocks[i], wanted));
    REQUIRE(blocks[i] != NULL);
    if (kept > wanted) kept = wanted;
    size_t mismatch = pattern_mismatch(blocks[i], kept, i);
    CHECK_THAT(mismatch == kept, "step %d, block of %zu bytes differs at %zu", step, wanted, mismatch);
    sizes[i] = wanted;
    fill_pattern(blocks[i], wanted, i);
  }
  for (size_t i = 0; i < COUNT; i++) free(blocks[i]);
}

TEST(realloc_of_null_allocates) {
  void *block = hidden(realloc(hidden(NULL), 100));
  CHECK(block != NULL && malloc_usable_size(block) >= 100);
  free(block);
  block = hidden(realloc(hidden(NULL), 0));
  CHECK(block != NULL);
  free(block);
}

/* glibc's manual page: realloc(p, 0) with p not NULL is free(p) and returns NULL. The loop would run out of memory if
 * the block were neither freed nor returned. */
TEST(realloc_to_zero_frees) {
  size_t before = resident_bytes();
  for (int round = 0; round < 4000; round++) {
    void *block = hidden(malloc(200 * KIB));
    REQUIRE(block != NULL);
    memset(block, 1, 200 * KIB);
    errno = 4321;
    void *result = hidden(realloc(block, hidden_size(0)));
#ifdef __GLIBC__
    CHECK_THAT(result == NULL && errno == 4321, "realloc(p, 0) = %p, errno %d", result, errno);
#endif
    free(result);
  }
  CHECK_THAT(resident_bytes() < before + 100 * MIB, "resident grew from %zu to %zu", before, resident_bytes());
}

TEST(failed_growth_leaves_the_block) {
  const size_t sizes[] = {1, 100, 5000, 50000, 2 * MIB};
  const size_t impossible[] = {SIZE_MAX, SIZE_MAX - 4096, (size_t)PTRDIFF_MAX + 1, (size_t)1 << 60};
  for (size_t i = 0; i < COUNT_OF(sizes); i++) {
    unsigned char *block = (unsigned char *)hidden(malloc(sizes[i]));
    REQUIRE(block != NULL);
    fill_pattern(block, sizes[i], i);
    for (size_t k = 0; k < COUNT_OF(impossible); k++) {
      errno = 0;
      void *grown = hidden(realloc(block, hidden_size(impossible[k])));
      CHECK_THAT(grown == NULL && errno == ENOMEM, "realloc(.., %zu) = %p, errno %d", impossible[k], grown, errno);
      CHECK(pattern_mismatch(block, sizes[i], i) == sizes[i]);
    }
    free(block);
  }
}

TEST(usable_bytes_beyond_the_request_survive_realloc_within_them) {
  /* Programs that use malloc_usable_size rely on it (sds in Redis, GLib). */
  for (size_t size = 1; size <= 300 * KIB; size += size / 3 + 1) {
    unsigned char *block = (unsigned char *)hidden(malloc(size));
    REQUIRE(block != NULL);
    size_t usable = malloc_usable_size(block);
    fill_pattern(block, usable, size);
    block = (unsigned char *)hidden(realloc(block, usable));
    REQUIRE(block != NULL);
    CHECK_THAT(pattern_mismatch(block, usable, size) == usable, "size %zu, usable %zu", size, usable);
    free(block);
  }
}

TEST(aligned_blocks_keep_contents_through_realloc) {
  for (size_t alignment = 32; alignment <= 4 * MIB; alignment *= 4) {
    for (size_t size = 1; size <= 3 * MIB; size = size * 5 + 3) {
      void *aligned = NULL;
      REQUIRE(posix_memalign(&aligned, alignment, size) == 0);
      fill_pattern(aligned, size, alignment);
      const size_t targets[] = {size / 2 + 1, size + 1, size * 2 + 100};
      for (size_t i = 0; i < COUNT_OF(targets); i++) {
        aligned = hidden(realloc(aligned, targets[i]));
        REQUIRE(aligned != NULL);
        size_t kept = size / 2 + 1 < size ? size / 2 + 1 : size;
        CHECK_THAT(pattern_mismatch(aligned, kept, alignment) == kept, "alignment %zu, %zu -> %zu", alignment, size,
                   targets[i]);
      }
      free(aligned);
    }
  }
}

int main(int argc, char **argv) { return run_tests(argc, argv); }
