/* varint.h: whole numbers in as few bytes as they need. Knows nothing of traces.
 *
 * Seven bits per byte, lowest first; the top bit says that another byte follows. Signed numbers are folded
 * first (0, -1, 1, -2 ... become 0, 1, 2, 3 ...), so that small differences of either sign stay small.
 *
 * Invariants
 *  V1  byte_reader never reads at or past `end`. What is missing reads as 0 and sets `failed`, so a caller may
 *      check once after several reads.
 *  V2  put_varint writes at most VARINT_BYTES_MAX bytes; room for them is the caller's duty.
 */
#ifndef SNUG_TRACES_VARINT_H
#define SNUG_TRACES_VARINT_H

#include <stdbool.h>
#include <stdint.h>

enum { VARINT_BYTES_MAX = 10 };

struct byte_reader {
  const uint8_t *next;
  const uint8_t *end;
  bool failed;
};

static inline uint8_t *put_varint(uint8_t *out, uint64_t value) {
  while (value >= 0x80) {
    *out++ = (uint8_t)(value | 0x80);
    value >>= 7;
  }
  *out++ = (uint8_t)value;
  return out;
}

static inline uint64_t fold_sign(int64_t value) { return ((uint64_t)value << 1) ^ (uint64_t)(value >> 63); }

static inline int64_t unfold_sign(uint64_t value) { return (int64_t)(value >> 1) ^ -(int64_t)(value & 1); }

static inline uint8_t read_byte(struct byte_reader *reader) {
  if (reader->next >= reader->end) {
    reader->failed = true;
    return 0;
  }
  return *reader->next++;
}

static inline uint64_t read_varint(struct byte_reader *reader) {
  uint64_t value = 0;
  for (unsigned shift = 0; shift < 64; shift += 7) {
    uint8_t byte = read_byte(reader);
    value |= (uint64_t)(byte & 0x7f) << shift;
    if (!(byte & 0x80)) return value;
  }
  reader->failed = true; /* more than 64 bits */
  return 0;
}

#endif
