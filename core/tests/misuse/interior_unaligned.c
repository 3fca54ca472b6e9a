/* A pointer that is not even aligned, into a small block, is freed. */
#include "misuse.h"

int main(void) {
  keep_neighbours(16);
  char *block = block_of(16);
  keep_neighbours(16);
  expect_interior_pointer(block + 1, block);
  free(hidden(block + 1));
  flush_cache(16);
  return 0;
}
