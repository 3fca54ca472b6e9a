/* text.h: composes short texts without allocating. A text that does not fit is cut, never overrun. */
#ifndef SNUG_TEXT_H
#define SNUG_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct text {
  char *start;
  size_t length_bytes;
  size_t capacity_bytes; /* start[length_bytes] is always a terminating zero: length < capacity */
};

static inline struct text text_in(char *buffer, size_t capacity_bytes) {
  buffer[0] = '\0';
  return (struct text){buffer, 0, capacity_bytes};
}

static inline void text_char(struct text *text, char c) {
  if (text->length_bytes + 1 >= text->capacity_bytes) return;
  text->start[text->length_bytes++] = c;
  text->start[text->length_bytes] = '\0';
}

static inline void text_string(struct text *text, const char *string) {
  while (*string != '\0') text_char(text, *string++);
}

static inline void text_number(struct text *text, uint64_t number) {
  char digits[20];
  int count = 0;
  do {
    digits[count++] = (char)('0' + number % 10);
    number /= 10;
  } while (number != 0);
  while (count > 0) text_char(text, digits[--count]);
}

static inline void text_address(struct text *text, const void *address) {
  text_string(text, "0x");
  int shift = 60;
  while (shift > 0 && ((uintptr_t)address >> shift & 15) == 0) shift -= 4;
  for (; shift >= 0; shift -= 4) text_char(text, "0123456789abcdef"[(uintptr_t)address >> shift & 15]);
}

/* As strlen, strncmp and strchr, which are another library's to define: the janitor calls none of theirs (J2). The
 * empty statements keep the compiler from making such calls of the loops. */
static inline size_t string_length(const char *string) {
  size_t length = 0;
  for (; string[length] != '\0'; length++) __asm__ volatile("");
  return length;
}

static inline bool string_begins(const char *string, const char *beginning) {
  for (; *beginning != '\0'; string++, beginning++) {
    if (*string != *beginning) return false;
    __asm__ volatile("");
  }
  return true;
}

/* The first such character; NULL when there is none. */
static inline const char *string_find(const char *string, char c) {
  for (; *string != '\0'; string++) {
    if (*string == c) return string;
    __asm__ volatile("");
  }
  return NULL;
}

#endif
