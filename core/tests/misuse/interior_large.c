/* A pointer into a block with a mapping of its own is freed. */
#include "misuse.h"

int main(void) {
  char *block = block_of(3 * MIB);
  expect_interior_pointer(block + 4096, block);
  free(hidden(block + 4096));
  return 0;
}
