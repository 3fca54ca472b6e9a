/* blocks.h: what a block contains: a pattern at some places of it, its begin and its end among them. Another block over
 * it, a purge of its pages or a wrong copy change the pattern. */
#ifndef SNUG_FUZZ_BLOCKS_H
#define SNUG_FUZZ_BLOCKS_H

/* Places of long blocks are multiples of those of longer ones, so that a place that is to be zero is one that was
 * written to, if any was. */
static inline size_t stride_of(size_t bytes) {
  size_t stride = bytes <= 1024 ? 8 : bytes <= 64 * KIB ? 256 : PAGE_BYTES;
  while (bytes > 64 * KIB && bytes / stride > 64) stride *= 2;
  return stride;
}

static inline uint64_t word_at(uint64_t seed, size_t offset) {
  return (seed + offset) * UINT64_C(0x9e3779b97f4a7c15) | 1;
}

static inline void mark(char *block, size_t bytes, uint64_t seed) {
  size_t stride = stride_of(bytes);
  for (size_t i = 0; i + 8 <= bytes; i += stride) {
    uint64_t word = word_at(seed, i);
    memcpy(block + i, &word, 8);
  }
  for (size_t i = bytes < 8 ? 0 : bytes - 8; i < bytes; i++) block[i] = (char)pattern_byte(seed, i);
}

/* Of a block that was marked when it was `bytes` long, the first `common`. The offset of what is wrong, or SIZE_MAX. */
static inline size_t mark_mismatch(const char *block, size_t bytes, size_t common, uint64_t seed) {
  size_t stride = stride_of(bytes), tail = bytes < 8 ? 0 : bytes - 8;
  for (size_t i = 0; i + 8 <= common && i + 8 <= tail; i += stride) {
    uint64_t word = word_at(seed, i);
    if (memcmp(block + i, &word, 8) != 0) return i;
  }
  for (size_t i = tail; i < bytes && i < common; i++)
    if (block[i] != (char)pattern_byte(seed, i)) return i;
  return SIZE_MAX;
}

/* Whether a block reads as zero from an offset on: all of a short one, else where marks were. */
static inline bool reads_as_zero(const char *block, size_t from, size_t bytes) {
  if (from >= bytes) return true;
  if (bytes <= 64 * KIB) return nonzero_offset(block + from, bytes - from) == bytes - from;
  static const char zeros[8];
  for (size_t i = round_up(from, stride_of(bytes)); i + 8 <= bytes; i += stride_of(bytes))
    if (memcmp(block + i, zeros, 8) != 0) return false;
  return memcmp(block + bytes - 8, zeros, 8) == 0;
}

#endif
