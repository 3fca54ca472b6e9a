/* free_sized of a block with a mapping of its own as if it were small. */
#include "misuse.h"

void free_sized(void *block, size_t size_bytes);

int main(void) {
  char *block = block_of(3 * MIB);
  expect_wrong_size(block, 64);
  free_sized(hidden(block), 64);
  return 0;
}
