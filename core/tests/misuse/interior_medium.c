/* A pointer into another page of a 20000-byte block is freed. */
#include "misuse.h"

int main(void) {
  keep_neighbours(20000);
  char *block = block_of(20000);
  keep_neighbours(20000);
  expect_interior_pointer(block + 8192, block);
  free(hidden(block + 8192));
  flush_cache(20000);
  return 0;
}
