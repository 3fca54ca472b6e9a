/* A small block is freed again after the cache gave it back to its slab. */
#include "misuse.h"

int main(void) {
  keep_neighbours(100);
  char *block = block_of(100);
  keep_neighbours(100);
  expect_double_free(block);
  free(hidden(block));
  malloc_trim(0);
  free(hidden(block));
  malloc_trim(0);
  return 0;
}
