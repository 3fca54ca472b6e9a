/* bits_test.c: words of bits against an array of bools. */
#include "../../src/bits.h"
#include "unit.h"

enum { WORDS = 5, BITS = WORDS * 64 };

static uint64_t words[WORDS];
static bool model[BITS];

static size_t model_set(size_t first, size_t count, bool value) {
  size_t changed = 0;
  for (size_t i = first; i < first + count; i++) {
    changed += model[i] != value;
    model[i] = value;
  }
  return changed;
}

static size_t model_count(size_t first, size_t count) {
  size_t ones = 0;
  for (size_t i = first; i < first + count; i++) ones += model[i];
  return ones;
}

static size_t model_find(size_t from, size_t end, bool value) {
  while (from < end && model[from] != value) from++;
  return from < end ? from : end;
}

static size_t first_difference(void) {
  size_t i = 0;
  while (i < BITS && bits_test(words, i) == model[i]) i++;
  return i;
}

TEST(masks_have_count_ones_from_first) {
  for (unsigned first = 0; first < 64; first++) {
    for (unsigned count = 1; first + count <= 64; count++) {
      uint64_t mask = bits_mask(first, count);
      CHECK_THAT((unsigned)__builtin_popcountll(mask) == count && bits_lowest(mask) == first &&
                     (mask >> first) == (~(uint64_t)0 >> (64 - count)),
                 "first %u, count %u", first, count);
    }
  }
}

TEST(random_operations_agree_with_the_model) {
  uint64_t random = 1;
  for (int step = 0; step < 100000; step++) {
    size_t first = random_below(&random, BITS), count = random_below(&random, BITS - first + 1);
    if (random_below(&random, 4) != 0 && count > 9) count = random_below(&random, 9);
    bool value = random_below(&random, 2);
    switch (random_below(&random, 3)) {
      case 0: CHECK(bits_set(words, first, count, value) == model_set(first, count, value)); break;
      case 1: CHECK(bits_count(words, first, count) == model_count(first, count)); break;
      default: CHECK(bits_find(words, first, first + count, value) == model_find(first, first + count, value));
    }
    size_t differs = first_difference();
    CHECK_THAT(differs == BITS, "bit %zu after step %d", differs, step);
    if (test_failed) return;
  }
}

TEST(a_flipped_bit_is_found) {
  for (size_t i = 0; i < BITS; i++) {
    words[i / 64] ^= (uint64_t)1 << (i % 64);
    CHECK(first_difference() == i);
    words[i / 64] ^= (uint64_t)1 << (i % 64);
  }
}

TEST(an_empty_range_finds_its_end) {
  for (size_t i = 0; i <= BITS; i++) {
    CHECK(bits_find(words, i, i, true) == i && bits_find(words, i, i, false) == i);
    CHECK(bits_count(words, i, 0) == 0 && bits_set(words, i, 0, true) == 0);
  }
}
