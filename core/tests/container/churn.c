/* Fills 60 MB with small blocks, frees most of them, and then needs 60 MB for large ones, three times over: the heap
 * holds as much in free pages as the program then asks for, which together exceeds the limit of the container. The
 * large ones come at 50 MB/s, so that a look every 100 ms is soon enough. Prints "done". */
#include "filled.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MIB ((size_t)1 << 20)

enum { ROUNDS = 3, SMALL_BYTES = 3000, SMALL_BLOCKS = 60 * 1024 * 1024 / SMALL_BYTES, KEPT = 50, LARGE_BLOCKS = 30 };

int main(void) {
  static char *small[SMALL_BLOCKS], *large[LARGE_BLOCKS];
  struct timespec pause = {0, 40 * 1000 * 1000};
  for (int round = 0; round < ROUNDS; round++) {
    for (size_t i = 0; i < SMALL_BLOCKS; i++) small[i] = filled(SMALL_BYTES);
    for (size_t i = 0; i < SMALL_BLOCKS; i++) {
      if (i % KEPT != 0) free(small[i]);
    }
    for (size_t i = 0; i < LARGE_BLOCKS; i++) {
      large[i] = filled(2 * MIB);
      for (size_t j = 0; j < 200; j++) free(filled(SMALL_BYTES)); /* the program goes on meanwhile */
      nanosleep(&pause, NULL);
    }
    for (size_t i = 0; i < LARGE_BLOCKS; i++) free(large[i]);
    for (size_t i = 0; i < SMALL_BLOCKS; i += KEPT) free(small[i]);
  }
  puts("done");
  return 0;
}
