/* A block with a mapping of its own (3 MiB) is freed twice: nothing remembers it, so it counts as foreign. */
#include "misuse.h"

int main(void) {
  char *block = block_of(3 * MIB);
  expect_foreign_pointer(block);
  free(hidden(block));
  free(hidden(block));
  return 0;
}
