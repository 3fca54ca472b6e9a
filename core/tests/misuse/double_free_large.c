/* A block with a mapping of its own (3 MiB) is freed twice. */
#include "misuse.h"

int main(void) {
  char *block = block_of(3 * MIB);
  expect_double_free(block);
  free(hidden(block));
  free(hidden(block));
  return 0;
}
