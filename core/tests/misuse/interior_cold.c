/* A pointer into a small block is freed, in a class that is not busy: found there and then. */
#include "misuse.h"

int main(void) {
  char *block = block_of(100);
  keep_neighbours(100);
  expect_interior_pointer(block + 48, block);
  free(hidden(block + 48));
  return 0;
}
