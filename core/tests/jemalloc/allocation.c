/* allocation.c: mallocx and its relatives: each flag, sizes and alignments of every kind, contents, limits. */
#include "../../include/jemalloc/jemalloc.h"
#include "../support/test.h"

enum { BLOCKS = 64, STEPS = 20000 };

static const size_t sizes[] = {1,     8,     16,       17,        100,         112,     128,         1000,
                               1024,  1025,  4000,     4096,      4097,        8192,    16385,       32768,
                               32784, 32785, 50 * KIB, 100 * KIB, 1 * MIB - 1, 1 * MIB, 1 * MIB + 1, 2 * MIB};

static bool is_zero(const void *block, size_t size_bytes) { return nonzero_offset(block, size_bytes) == size_bytes; }

/* So that blocks which are used again are not zero by chance. */
static void dirty_heap(size_t size_bytes) {
  void *blocks[8];
  for (size_t i = 0; i < COUNT_OF(blocks); i++) {
    blocks[i] = hidden(malloc(size_bytes));
    REQUIRE(blocks[i] != NULL);
    memset(blocks[i], 0xee, size_bytes);
  }
  for (size_t i = 0; i < COUNT_OF(blocks); i++) free(blocks[i]);
}

TEST(the_macros_are_those_of_jemalloc) {
  CHECK(MALLOCX_LG_ALIGN(12) == 12 && MALLOCX_ALIGN(4096) == 12 && MALLOCX_ALIGN((size_t)1 << 40) == 40);
  CHECK(MALLOCX_ALIGN(1) == 0 && MALLOCX_ZERO == 0x40);
  CHECK(MALLOCX_TCACHE(0) == 0x200 && MALLOCX_TCACHE_NONE == 0x100 && MALLOCX_ARENA(0) == 0x100000);
  CHECK(MALLCTL_ARENAS_ALL == 4096);
}

TEST(blocks_are_as_long_as_nallocx_says) {
  for (size_t i = 0; i < COUNT_OF(sizes); i++) {
    void *block = mallocx(sizes[i], 0);
    REQUIRE(block != NULL);
    size_t usable = sallocx(block, 0);
    CHECK_THAT(usable >= sizes[i] && usable == nallocx(sizes[i], 0) && usable == malloc_usable_size(block),
               "%zu: usable %zu, nallocx %zu", sizes[i], usable, nallocx(sizes[i], 0));
    fill_pattern(block, usable, i);
    CHECK(pattern_mismatch(block, usable, i) == usable);
    dallocx(block, 0);
  }
}

TEST(alignments_are_kept) {
  for (int lg = 0; lg <= 23; lg++) {
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
      size_t alignment = (size_t)1 << lg;
      char *block = mallocx(sizes[i], MALLOCX_LG_ALIGN(lg));
      REQUIRE(block != NULL);
      CHECK_THAT((uintptr_t)block % alignment == 0, "%zu bytes at %zu: %p", sizes[i], alignment, (void *)block);
      CHECK_THAT(sallocx(block, MALLOCX_ALIGN(alignment)) == nallocx(sizes[i], MALLOCX_ALIGN(alignment)),
                 "%zu bytes at %zu: %zu, nallocx %zu", sizes[i], alignment, sallocx(block, 0),
                 nallocx(sizes[i], MALLOCX_ALIGN(alignment)));
      sdallocx(block, sizes[i], MALLOCX_ALIGN(alignment));
    }
  }
}

/* Every byte that can be used, of old memory as of new. */
TEST(zero_means_all_that_can_be_used) {
  for (size_t i = 0; i < COUNT_OF(sizes); i++) {
    dirty_heap(sizes[i]);
    for (int lg = 0; lg <= 13; lg += 13) {
      char *block = mallocx(sizes[i], MALLOCX_ZERO | MALLOCX_LG_ALIGN(lg));
      REQUIRE(block != NULL);
      CHECK_THAT(is_zero(block, sallocx(block, 0)), "%zu bytes, offset %zu", sizes[i],
                 nonzero_offset(block, sallocx(block, 0)));
      memset(block, 0xee, sallocx(block, 0));
      dallocx(block, 0);
    }
  }
}

TEST(hints_are_hints) {
  static const int hints[] = {MALLOCX_TCACHE_NONE, MALLOCX_ARENA(0), MALLOCX_ARENA(0) | MALLOCX_TCACHE_NONE};
  for (size_t i = 0; i < COUNT_OF(hints); i++) {
    char *block = mallocx(100, hints[i] | MALLOCX_ZERO);
    REQUIRE(block != NULL);
    CHECK(is_zero(block, 100));
    block = rallocx(block, 5000, hints[i]);
    REQUIRE(block != NULL);
    CHECK(sallocx(block, hints[i]) >= 5000 && is_zero(block, 100));
    sdallocx(block, 5000, hints[i]);
  }
  if (!snug_is_active()) SKIP("numbers of arenas and caches that never were end jemalloc");
  void *block = mallocx(100, MALLOCX_ARENA(77) | MALLOCX_TCACHE(12));
  REQUIRE(block != NULL);
  dallocx(block, MALLOCX_TCACHE(3));
}

/* From and to each size: contents stay, what is new is zero if asked for, the alignment is that of the flags. */
static void resize_each(int flags) {
  for (size_t from = 0; from < COUNT_OF(sizes); from++) {
    for (size_t to = 0; to < COUNT_OF(sizes); to++) {
      if (sizes[to] < MIB) dirty_heap(sizes[to] / 4 + 1);
      char *block = mallocx(sizes[from], flags);
      REQUIRE(block != NULL);
      size_t old_usable = sallocx(block, 0), kept = old_usable < sizes[to] ? old_usable : sizes[to];
      fill_pattern(block, old_usable, from * 100 + to);
      block = rallocx(block, sizes[to], flags);
      REQUIRE(block != NULL);
      size_t usable = sallocx(block, 0);
      CHECK_THAT(usable >= sizes[to] && (uintptr_t)block % ((size_t)1 << (flags & 63)) == 0, "%zu to %zu: %zu at %p",
                 sizes[from], sizes[to], usable, (void *)block);
      CHECK(pattern_mismatch(block, kept, from * 100 + to) == kept);
      if ((flags & MALLOCX_ZERO) && usable > old_usable) {
        CHECK_THAT(is_zero(block + old_usable, usable - old_usable), "%zu to %zu", sizes[from], sizes[to]);
      }
      sdallocx(block, sizes[to], flags);
    }
  }
}

TEST(rallocx_keeps_contents) { resize_each(0); }
TEST(rallocx_zeroes_what_is_new) { resize_each(MALLOCX_ZERO); }
TEST(rallocx_keeps_alignment) { resize_each(MALLOCX_ALIGN(256) | MALLOCX_ZERO); }

/* Nothing moves; the answer is what sallocx says, and no byte in use is touched. */
TEST(xallocx_resizes_in_place) {
  for (size_t from = 0; from < COUNT_OF(sizes); from++) {
    for (size_t to = 0; to < COUNT_OF(sizes); to++) {
      for (size_t extra = 0; extra <= 200 * KIB; extra += 100 * KIB) {
        if (sizes[to] < MIB) dirty_heap(sizes[to] / 4 + 1);
        char *block = mallocx(sizes[from], 0);
        REQUIRE(block != NULL);
        size_t old_usable = sallocx(block, 0), kept = old_usable < sizes[to] ? old_usable : sizes[to];
        fill_pattern(block, old_usable, from * 100 + to);
        size_t usable = xallocx(block, sizes[to], extra, MALLOCX_ZERO);
        CHECK_THAT(usable == sallocx(block, 0), "%zu to %zu: %zu, sallocx %zu", sizes[from], sizes[to], usable,
                   sallocx(block, 0));
        CHECK_THAT(usable <= old_usable || usable >= sizes[to], "%zu to %zu: %zu", sizes[from], sizes[to], usable);
        if (usable < kept) kept = usable;
        CHECK(pattern_mismatch(block, kept, from * 100 + to) == kept);
        if (usable > old_usable) CHECK(is_zero(block + old_usable, usable - old_usable));
        dallocx(block, 0);
      }
    }
  }
}

TEST(xallocx_really_grows_and_shrinks) {
  if (!snug_is_active() || freed_blocks_wait()) SKIP("not snug, or every block is as long as asked for");
  char *block = mallocx(200 * KIB, 0);
  REQUIRE(block != NULL);
  CHECK(xallocx(block, 100 * KIB, 0, 0) == 100 * KIB);
  CHECK(xallocx(block, 152 * KIB, 0, 0) == 152 * KIB);
  dallocx(block, 0);
}

TEST(too_much_is_refused_and_changes_nothing) {
  static const size_t too_long[] = {SIZE_MAX, SIZE_MAX - 4095, (size_t)PTRDIFF_MAX + 1};
  char *block = mallocx(1000, 0);
  REQUIRE(block != NULL);
  fill_pattern(block, 1000, 1);
  for (size_t i = 0; i < COUNT_OF(too_long); i++) {
    size_t size_bytes = hidden_size(too_long[i]);
    CHECK(mallocx(size_bytes, 0) == NULL && mallocx(size_bytes, MALLOCX_ZERO | MALLOCX_ALIGN(64)) == NULL);
    CHECK(rallocx(block, size_bytes, 0) == NULL && rallocx(block, size_bytes, MALLOCX_ALIGN(4096)) == NULL);
    CHECK(nallocx(size_bytes, 0) == 0);
    CHECK(xallocx(block, 500, SIZE_MAX - 500, 0) >= 500);
  }
  CHECK(pattern_mismatch(block, 1000, 1) == 1000);
  dallocx(block, 0);
  if (!snug_is_active()) SKIP("the rest is asked of snug alone");
  for (int lg = 48; lg < 64; lg++) CHECK_THAT(mallocx(100, MALLOCX_LG_ALIGN(lg)) == NULL, "2^%d", lg);
}

TEST(what_jemalloc_leaves_undefined_does_no_harm) {
  if (!snug_is_active()) SKIP("not snug");
  void *block = mallocx(0, 0);
  REQUIRE(block != NULL);
  block = rallocx(block, 0, MALLOCX_ZERO);
  REQUIRE(block != NULL);
  CHECK(xallocx(block, 0, 0, 0) >= 1);
  dallocx(block, 0);
  dallocx(NULL, 0);
  sdallocx(NULL, 10, 0);
  CHECK(sallocx(NULL, 0) == 0);
  block = rallocx(NULL, 100, 0);
  REQUIRE(block != NULL);
  dallocx(block, 0);
}

/* Blocks of one call go to any other, malloc's own among them. */
TEST(calls_mix) {
  struct {
    char *block;
    size_t size_bytes, seed;
  } live[BLOCKS] = {{0}};
  uint64_t random = 11;
  for (size_t step = 0; step < STEPS; step++) {
    size_t i = random_below(&random, BLOCKS), size = 1 + random_below(&random, step % 16 == 0 ? 300 * KIB : 3000);
    int flags = MALLOCX_LG_ALIGN((int)random_below(&random, 10));
    if (live[i].block != NULL) {
      CHECK(pattern_mismatch(live[i].block, live[i].size_bytes, live[i].seed) == live[i].size_bytes);
      size_t kept = live[i].size_bytes < size ? live[i].size_bytes : size;
      switch (random_below(&random, 5)) {
        case 0: free(live[i].block); break;
        case 1: dallocx(live[i].block, 0); break;
        case 2: sdallocx(live[i].block, sallocx(live[i].block, 0), 0); break;
        case 3: live[i].block = rallocx(live[i].block, size, flags); goto resized;
        default: live[i].block = realloc(live[i].block, size); goto resized;
      }
      live[i].block = NULL;
      continue;
    resized:
      REQUIRE(live[i].block != NULL);
      CHECK(pattern_mismatch(live[i].block, kept, live[i].seed) == kept);
    } else {
      live[i].block = step % 3 == 0 ? malloc(size) : mallocx(size, flags);
      REQUIRE(live[i].block != NULL);
    }
    live[i].size_bytes = size;
    live[i].seed = step;
    fill_pattern(live[i].block, size, step);
  }
  for (size_t i = 0; i < BLOCKS; i++) free(live[i].block);
}

/* jemalloc leaves it undefined. */
TEST(nothing_is_freed) {
  if (!snug_is_active()) SKIP("not snug");
  dallocx(NULL, 0);
  sdallocx(NULL, 50, MALLOCX_ALIGN(64));
  free(hidden(malloc(50)));
  dallocx(NULL, MALLOCX_TCACHE_NONE);
  sdallocx(NULL, 5 * MIB, 0);
  CHECK(sallocx(NULL, 0) == 0);
}

int main(int argc, char **argv) { return run_tests(argc, argv); }
