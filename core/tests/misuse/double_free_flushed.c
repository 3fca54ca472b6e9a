/* A small block is freed again after the cache gave it back to its slab. */
#include "misuse.h"

int main(void) {
  keep_neighbours(100);
  char *block = block_of(100);
  keep_neighbours(100);
  expect_double_free(block);
  free(hidden(block));
  trim_heap();
  free(hidden(block));
  trim_heap();
  return 0;
}
