/* A pointer into a small block is freed. */
#include "misuse.h"

int main(void) {
  keep_neighbours(100);
  char *block = block_of(100);
  keep_neighbours(100);
  expect_interior_pointer(block + 16, block);
  free(hidden(block + 16));
  flush_cache(100);
  return 0;
}
