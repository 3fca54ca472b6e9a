/* filled.h: blocks that hold memory, for the programs that run in a container's limit. */
#ifndef SNUG_CONTAINER_FILLED_H
#define SNUG_CONTAINER_FILLED_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A block of so many bytes, all written to. The program ends where there is none. */
static inline void *filled(size_t size_bytes) {
  void *block = malloc(size_bytes);
  if (block == NULL) {
    puts("malloc returned NULL");
    exit(1);
  }
  return memset(block, 1, size_bytes);
}

#endif
