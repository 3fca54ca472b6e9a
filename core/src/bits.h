/* bits.h: searches in words of bits, bit 0 of word 0 first. */
#ifndef SNUG_BITS_H
#define SNUG_BITS_H

#include "base.h"

static ALWAYS_INLINE unsigned bits_lowest(uint64_t word) { return (unsigned)__builtin_ctzll(word); }

/* A word with `count` ones from `first` up; first + count <= 64, count >= 1. */
static ALWAYS_INLINE uint64_t bits_mask(unsigned first, unsigned count) {
  return (~(uint64_t)0 >> (64 - count)) << first;
}

/* How many of the `count` bits of a mask are one in `word`. Without an instruction for it counting is a call, which all
 * or none mostly save. */
static inline size_t bits_ones(uint64_t word, uint64_t mask, unsigned count) {
  uint64_t ones = word & mask;
  return ones == mask ? count : ones == 0 ? 0 : (size_t)__builtin_popcountll(ones);
}

static inline bool bits_test(const uint64_t *words, size_t bit) { return words[bit / 64] >> (bit % 64) & 1; }

/* Sets (or clears) `count` bits from `first` up. Returns how many of them changed. */
static inline size_t bits_set(uint64_t *words, size_t first, size_t count, bool value) {
  size_t changed = 0;
  while (count != 0) {
    unsigned offset = first % 64;
    unsigned here = count < 64 - offset ? (unsigned)count : 64 - offset;
    uint64_t mask = bits_mask(offset, here);
    uint64_t old = words[first / 64];
    changed += bits_ones(value ? ~old : old, mask, here);
    words[first / 64] = value ? old | mask : old & ~mask;
    first += here;
    count -= here;
  }
  return changed;
}

/* How many of the `count` bits from `first` up are one. */
static inline size_t bits_count(const uint64_t *words, size_t first, size_t count) {
  size_t ones = 0;
  while (count != 0) {
    unsigned offset = first % 64;
    unsigned here = count < 64 - offset ? (unsigned)count : 64 - offset;
    ones += bits_ones(words[first / 64], bits_mask(offset, here), here);
    first += here;
    count -= here;
  }
  return ones;
}

/* First bit at or after `from` and before `end` that equals value; end if there is none. */
static inline size_t bits_find(const uint64_t *words, size_t from, size_t end, bool value) {
  while (from < end) {
    uint64_t word = value ? words[from / 64] : ~words[from / 64];
    word &= ~(uint64_t)0 << (from % 64);
    if (word != 0) {
      size_t found = from / 64 * 64 + bits_lowest(word);
      return found < end ? found : end;
    }
    from = (from / 64 + 1) * 64;
  }
  return end;
}

/* First bit of the run of ones that ends just below `end`; `end` itself when the bit there is zero. */
static inline size_t bits_run_start(const uint64_t *words, size_t end) {
  while (end > 0) {
    size_t last = end - 1;
    uint64_t zeros = ~words[last / 64] & bits_mask(0, last % 64 + 1);
    if (zeros != 0) return last / 64 * 64 + 64 - (size_t)__builtin_clzll(zeros);
    end = last / 64 * 64;
  }
  return 0;
}

#endif
