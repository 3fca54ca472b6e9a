/* memory.c: what the core and its compiler call of <string.h>, by functions of our own.
 *
 * glibc chooses its own at run time (IFUNC). Its loader, which does not know that we need libc, can't do so for us
 * where libc stands before us in the load order, since libc has no addresses yet then: the program would end before
 * main (N4). These are hidden: no program gets them by name, and no other library takes their place, for the janitor
 * either (J2). */
#include <string.h>
#include <strings.h>

#include "base.h"

/* At any address, of any type. The empty statements keep compilers from making calls of the loops. */
typedef uint32_t half __attribute__((aligned(1), may_alias));
typedef uint64_t word __attribute__((aligned(1), may_alias));
typedef uint8_t vector __attribute__((vector_size(16), aligned(1), may_alias));

enum { STRIDE_BYTES = 4 * sizeof(vector) };

/* A stride, held in registers: copied only when all of it is read. */
#define MOVE_STRIDE(to, from)                                                        \
  do {                                                                               \
    vector part0 = ((const vector *)(from))[0], part1 = ((const vector *)(from))[1]; \
    vector part2 = ((const vector *)(from))[2], part3 = ((const vector *)(from))[3]; \
    ((vector *)(to))[0] = part0;                                                     \
    ((vector *)(to))[1] = part1;                                                     \
    ((vector *)(to))[2] = part2;                                                     \
    ((vector *)(to))[3] = part3;                                                     \
  } while (0)

/* ---- fill ---- */

static void fill_short(uint8_t *start, word pattern, size_t bytes) {
  uint8_t *end = start + bytes;
  if (bytes >= sizeof(word)) {
    *(word *)start = pattern;
    *(word *)(end - sizeof(word)) = pattern;
  } else if (bytes >= sizeof(half)) {
    *(half *)start = (half)pattern;
    *(half *)(end - sizeof(half)) = (half)pattern;
  } else {
    for (; start < end; start++) *(volatile uint8_t *)start = (uint8_t)pattern;
  }
}

HIDDEN NEVER_INLINE void *memset(void *to, int value, size_t bytes) {
  uint8_t *start = to, *end = start + bytes;
  word pattern = (uint8_t)value * 0x0101010101010101u;
  if (bytes < sizeof(vector)) {
    fill_short(start, pattern, bytes);
    return to;
  }
  uint8_t byte = (uint8_t)value;
  vector all = {byte, byte, byte, byte, byte, byte, byte, byte, byte, byte, byte, byte, byte, byte, byte, byte};
  for (; end - start > STRIDE_BYTES; start += STRIDE_BYTES) {
    for (int i = 0; i < STRIDE_BYTES / (int)sizeof(vector); i++) ((vector *)start)[i] = all;
    __asm__ volatile("");
  }
  for (; end - start > (ptrdiff_t)sizeof(vector); start += sizeof(vector)) {
    *(vector *)start = all;
    __asm__ volatile("");
  }
  *(vector *)(end - sizeof(vector)) = all;
  return to;
}

/* ---- copy ---- */

/* All is read before anything is written, so that both may overlap. */
static void copy_short(uint8_t *to, const uint8_t *from, size_t bytes) {
  if (bytes >= sizeof(vector)) {
    vector first = *(const vector *)from, last = *(const vector *)(from + bytes - sizeof(vector));
    *(vector *)to = first;
    *(vector *)(to + bytes - sizeof(vector)) = last;
  } else if (bytes >= sizeof(word)) {
    word first = *(const word *)from, last = *(const word *)(from + bytes - sizeof(word));
    *(word *)to = first;
    *(word *)(to + bytes - sizeof(word)) = last;
  } else if (bytes >= sizeof(half)) {
    half first = *(const half *)from, last = *(const half *)(from + bytes - sizeof(half));
    *(half *)to = first;
    *(half *)(to + bytes - sizeof(half)) = last;
  } else if (bytes > 0) {
    uint8_t first = from[0], middle = from[bytes / 2], last = from[bytes - 1];
    to[0] = first;
    to[bytes / 2] = middle;
    to[bytes - 1] = last;
  }
}

static void copy_middle(uint8_t *to, const uint8_t *from, size_t bytes) {
  const vector *first = (const vector *)from, *last = (const vector *)(from + bytes);
  vector parts[] = {first[0], first[1], last[-2], last[-1]};
  ((vector *)to)[0] = parts[0];
  ((vector *)to)[1] = parts[1];
  ((vector *)(to + bytes))[-2] = parts[2];
  ((vector *)(to + bytes))[-1] = parts[3];
}

/* To a lower address, or where nothing overlaps. The last stride is read first: the loop may overwrite it. */
static void copy_upward(uint8_t *to, const uint8_t *from, size_t bytes) {
  const vector *end = (const vector *)(from + bytes);
  vector last[] = {end[-4], end[-3], end[-2], end[-1]};
  size_t done = 0;
  for (; bytes - done > STRIDE_BYTES; done += STRIDE_BYTES) {
    MOVE_STRIDE(to + done, from + done);
    __asm__ volatile("");
  }
  for (int i = 0; i < 4; i++) ((vector *)(to + bytes))[i - 4] = last[i];
}

static void copy_downward(uint8_t *to, const uint8_t *from, size_t bytes) {
  const vector *start = (const vector *)from;
  vector first[] = {start[0], start[1], start[2], start[3]};
  size_t left = bytes;
  for (; left > STRIDE_BYTES; left -= STRIDE_BYTES) {
    MOVE_STRIDE(to + left - STRIDE_BYTES, from + left - STRIDE_BYTES);
    __asm__ volatile("");
  }
  for (int i = 0; i < 4; i++) ((vector *)to)[i] = first[i];
}

/* Compilers know that memmove is memcpy where nothing overlaps, and would make memcpy call itself. */
static ALWAYS_INLINE void *copy(void *to, const void *from, size_t bytes) {
  if (bytes <= 2 * sizeof(vector)) {
    copy_short(to, from, bytes);
  } else if (bytes <= STRIDE_BYTES) {
    copy_middle(to, from, bytes);
  } else if ((uintptr_t)to - (uintptr_t)from >= bytes) {
    copy_upward(to, from, bytes);
  } else {
    copy_downward(to, from, bytes);
  }
  return to;
}

HIDDEN NEVER_INLINE void *memmove(void *to, const void *from, size_t bytes) { return copy(to, from, bytes); }
HIDDEN NEVER_INLINE void *memcpy(void *restrict to, const void *restrict from, size_t bytes) {
  return copy(to, from, bytes);
}

/* ---- compare ---- */

static int compare_bytes(const void *left, const void *right, size_t bytes) {
  const uint8_t *l = left, *r = right;
  size_t i = 0;
  while (bytes - i >= sizeof(word) && *(const word *)(l + i) == *(const word *)(r + i)) i += sizeof(word);
  for (; i < bytes; i++) {
    if (l[i] != r[i]) return l[i] - r[i];
    __asm__ volatile("");
  }
  return 0;
}

HIDDEN NEVER_INLINE int memcmp(const void *left, const void *right, size_t bytes) {
  return compare_bytes(left, right, bytes);
}

/* clang asks this where only equality counts. */
HIDDEN NEVER_INLINE int bcmp(const void *left, const void *right, size_t bytes) {
  return compare_bytes(left, right, bytes);
}

static int compare_strings(const char *left, const char *right, size_t bytes) {
  for (size_t i = 0; i < bytes; i++) {
    if (left[i] != right[i] || left[i] == '\0') return (uint8_t)left[i] - (uint8_t)right[i];
    __asm__ volatile("");
  }
  return 0;
}

HIDDEN NEVER_INLINE int strncmp(const char *left, const char *right, size_t bytes) {
  return compare_strings(left, right, bytes);
}
HIDDEN NEVER_INLINE int strcmp(const char *left, const char *right) { return compare_strings(left, right, SIZE_MAX); }

/* ---- search ---- */

HIDDEN NEVER_INLINE size_t strlen(const char *string) {
  size_t length = 0;
  for (; string[length] != '\0'; length++) __asm__ volatile("");
  return length;
}

HIDDEN NEVER_INLINE char *strchr(const char *string, int c) {
  for (; *string != (char)c; string++) {
    if (*string == '\0') return NULL;
    __asm__ volatile("");
  }
  return (char *)string;
}

HIDDEN NEVER_INLINE size_t strcspn(const char *string, const char *ends) {
  size_t length = 0;
  while (string[length] != '\0' && strchr(ends, string[length]) == NULL) length++;
  return length;
}

HIDDEN NEVER_INLINE char *strstr(const char *string, const char *part) {
  size_t length = strlen(part);
  for (; strncmp(string, part, length) != 0; string++) {
    if (*string == '\0') return NULL;
  }
  return (char *)string;
}
