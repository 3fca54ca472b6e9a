/* A library to be preloaded beside the allocator, before or after it: it allocates in its constructor and destructor,
 * and has fork handlers that allocate, whichever side of the allocator's own they end up on. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static unsigned char *kept[100];

static void use_heap(void) {
  for (size_t i = 1; i < 100; i++) {
    unsigned char *block = malloc(i * i * 10);
    if (block == NULL) abort();
    memset(block, (int)i, i * i * 10);
    if (block[i * i * 10 - 1] != (unsigned char)i) abort();
    free(block);
  }
}

__attribute__((constructor(101))) static void open_library(void) {
  if (pthread_atfork(use_heap, use_heap, use_heap) != 0) abort();
  for (size_t i = 0; i < 100; i++) {
    kept[i] = malloc(i * 100 + 1);
    if (kept[i] == NULL) abort();
    kept[i][i * 100] = (unsigned char)i;
  }
  use_heap();
}

__attribute__((destructor)) static void close_library(void) {
  for (size_t i = 0; i < 100; i++) {
    if (kept[i][i * 100] != (unsigned char)i) abort();
    free(kept[i]);
  }
  use_heap();
}
