/* A block with a mapping of its own is freed again after the mapping went back to the kernel: snug remembers
 * the addresses of the last few. */
#include "misuse.h"

int main(void) {
  char *block = block_of(3 * MIB);
  expect_double_free(block);
  free(hidden(block));
  trim_heap();
  free(hidden(block));
  return 0;
}
