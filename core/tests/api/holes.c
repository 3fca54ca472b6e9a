/* Small blocks of which most were freed, at random, leave holes that larger blocks can use (docs/decisions/0044):
 * memory hardly grows by them, and they are blocks like others to free, realloc, malloc_usable_size and sized frees. */
#include "../support/holes.h"

#include <dlfcn.h>
#include <pthread.h>

enum { LARGE = 20000, LARGE_BYTES = 200 };
static unsigned char *large[LARGE];

static void fill_holes(void) {
  for (size_t i = 0; i < LARGE; i++) {
    large[i] = (unsigned char *)hidden(malloc(LARGE_BYTES));
    REQUIRE(large[i] != NULL);
    size_t usable = malloc_usable_size(large[i]);
    CHECK_THAT(usable >= LARGE_BYTES && usable < 2 * LARGE_BYTES, "%zu usable bytes", usable);
    CHECK((uintptr_t)large[i] % 16 == 0);
    fill_pattern(large[i], usable, i);
  }
}

static void check_all(void) {
  for (size_t i = 0; i < SMALL; i++)
    CHECK_THAT(small[i] == NULL || pattern_mismatch(small[i], small_bytes, i) == small_bytes, "small block %zu", i);
  for (size_t i = 0; i < LARGE; i++)
    CHECK_THAT(pattern_mismatch(large[i], LARGE_BYTES, i) == LARGE_BYTES, "large block %zu", i);
}

TEST(larger_blocks_fill_the_holes_of_small_ones) {
  leave_holes();
  size_t before = resident_bytes();
  fill_holes();
  size_t grown = resident_bytes() - before;
  bool is_judged = snug_is_active() && !freed_blocks_wait() && getenv("TEST_EMULATED") == NULL;
  if (is_judged) {
    CHECK_THAT(grown < (size_t)LARGE * LARGE_BYTES / 2, "%zu KiB more for %zu KiB", grown / KIB,
               (size_t)LARGE * LARGE_BYTES / KIB);
  }
  check_all();
  for (size_t i = 0; i < LARGE; i++) free(large[i]);
  free_small();
}

/* A joined block that was freed serves smaller requests, too, and their sizes are right then. */
TEST(sized_frees_of_what_fills_holes_are_right) {
  void (*free_sized)(void *, size_t) = (void (*)(void *, size_t))dlsym(RTLD_DEFAULT, "free_sized");
  if (free_sized == NULL) SKIP("no free_sized here");
  leave_holes();
  fill_holes();
  for (size_t i = 0; i < LARGE; i += 2) {
    free(large[i]);
    large[i] = (unsigned char *)hidden(malloc(small_bytes));
    memset(large[i], 1, small_bytes);
  }
  for (size_t i = 0; i < LARGE; i++) free_sized(large[i], i % 2 == 0 ? small_bytes : LARGE_BYTES);
  free_small();
}

TEST(aligned_blocks_fill_holes_and_are_freed_by_their_size) {
  void (*free_aligned_sized)(void *, size_t, size_t) =
      (void (*)(void *, size_t, size_t))dlsym(RTLD_DEFAULT, "free_aligned_sized");
  if (free_aligned_sized == NULL) SKIP("no free_aligned_sized here");
  enum { EACH = 200 };
  void *blocks[EACH];
  leave_holes();
  for (size_t alignment = 16; alignment <= 1024; alignment *= 2) {
    for (size_t size_bytes = 1; size_bytes < 1024; size_bytes += 1 + size_bytes / 5) {
      for (size_t i = 0; i < EACH; i++) {
        blocks[i] = hidden(aligned_alloc(alignment, size_bytes));
        REQUIRE(blocks[i] != NULL && (uintptr_t)blocks[i] % alignment == 0);
        memset(blocks[i], 1, size_bytes);
      }
      for (size_t i = 0; i < EACH; i++) free_aligned_sized(blocks[i], alignment, size_bytes);
    }
  }
  free_small();
}

TEST(realloc_keeps_what_fills_holes) {
  static const size_t sizes[] = {250, 210, 190, 60, 50, 500, 3000, 1};
  leave_holes();
  fill_holes();
  for (size_t i = 0; i < LARGE; i++) {
    size_t size_bytes = sizes[i % COUNT_OF(sizes)], kept = size_bytes < LARGE_BYTES ? size_bytes : LARGE_BYTES;
    large[i] = (unsigned char *)hidden(realloc(large[i], size_bytes));
    REQUIRE(large[i] != NULL);
    CHECK(malloc_usable_size(large[i]) >= size_bytes);
    CHECK_THAT(pattern_mismatch(large[i], kept, i) == kept, "block %zu of now %zu bytes", i, size_bytes);
    fill_pattern(large[i], malloc_usable_size(large[i]), i);
  }
  for (size_t i = 0; i < LARGE; i++) {
    size_t size_bytes = sizes[i % COUNT_OF(sizes)];
    CHECK_THAT(pattern_mismatch(large[i], size_bytes, i) == size_bytes, "block %zu of %zu bytes", i, size_bytes);
    free(large[i]);
  }
  free_small();
}

/* All that can be used of what was asked for as zero, in holes that were written to. */
TEST(calloc_in_holes_is_zero_to_its_end) {
  if (!snug_is_active()) SKIP("not snug");
  static const size_t sizes[] = {80, 100, 128, 200, 257, 400, 700, 1000, 1500, 3000};
  leave_holes();
  for (size_t i = 0; i < LARGE; i++) {
    large[i] = (unsigned char *)hidden(calloc(1, sizes[i % COUNT_OF(sizes)]));
    REQUIRE(large[i] != NULL);
    size_t usable = malloc_usable_size(large[i]), nonzero = nonzero_offset(large[i], usable);
    CHECK_THAT(nonzero == usable, "%zu bytes: byte %zu of %zu", sizes[i % COUNT_OF(sizes)], nonzero, usable);
  }
  for (size_t i = 0; i < LARGE; i++) free(large[i]);
  free_small();
}

static void *replace_half(void *argument) {
  uint64_t state = (uint64_t)(uintptr_t)argument + 1;
  for (size_t round = 0; round < 4; round++) {
    for (size_t i = (size_t)(uintptr_t)argument; i < LARGE; i += 2) {
      CHECK_THAT(pattern_mismatch(large[i], LARGE_BYTES, i) == LARGE_BYTES, "block %zu", i);
      free(large[i]);
      large[i] = (unsigned char *)hidden(malloc(LARGE_BYTES + random_below(&state, 100)));
      REQUIRE(large[i] != NULL);
      fill_pattern(large[i], LARGE_BYTES, i);
    }
  }
  return NULL;
}

TEST(threads_take_and_free_what_fills_holes) {
  pthread_t threads[2];
  leave_holes();
  fill_holes();
  for (uintptr_t i = 0; i < 2; i++) REQUIRE(pthread_create(&threads[i], NULL, replace_half, (void *)i) == 0);
  for (size_t i = 0; i < 2; i++) pthread_join(threads[i], NULL);
  check_all();
  for (size_t i = 0; i < LARGE; i++) free(large[i]);
  free_small();
}

int main(int argc, char **argv) { return run_tests(argc, argv); }
