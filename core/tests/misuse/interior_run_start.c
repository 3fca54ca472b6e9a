/* A pointer a few bytes into the first page of a page run is freed. */
#include "misuse.h"

int main(void) {
  char *block = block_of(100 * KIB);
  expect_interior_pointer(block + 16, block);
  free(hidden(block + 16));
  return 0;
}
