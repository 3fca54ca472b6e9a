/* A block of 20000 bytes, too big for the caches but still in a slab, is freed twice. */
#include "misuse.h"

int main(void) {
  keep_neighbours(20000);
  char *block = block_of(20000);
  keep_neighbours(20000);
  expect_double_free(block);
  free(hidden(block));
  free(hidden(block));
  flush_cache(20000);
  return 0;
}
