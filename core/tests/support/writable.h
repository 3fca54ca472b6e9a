/* writable.h: whether a page of this process can be written to, as /proc/self/maps says. Allocates nothing. */
#ifndef SNUG_WRITABLE_H
#define SNUG_WRITABLE_H

#include "test.h"

/* The list as it was when it was read last. */
static char mappings_text[1 << 20];

static inline void read_mappings(void) {
  size_t length = 0;
  int descriptor = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  REQUIRE(descriptor >= 0);
  ssize_t got;
  while ((got = read(descriptor, mappings_text + length, sizeof mappings_text - 1 - length)) > 0) length += (size_t)got;
  close(descriptor);
  REQUIRE(length > 0 && length < sizeof mappings_text - 1);
  mappings_text[length] = '\0';
}

static inline int is_writable(const void *address) {
  for (const char *line = mappings_text; *line != '\0'; line = strchr(line, '\n') + 1) {
    char *at;
    uintptr_t start = strtoull(line, &at, 16), end = strtoull(at + 1, &at, 16);
    if ((uintptr_t)address >= start && (uintptr_t)address < end) return at[2] == 'w';
  }
  return 0;
}

#endif
