/* free_sized of a block with a mapping of its own as if it were small. */
#include "misuse.h"

void free_sized(void *block, size_t size_bytes) __attribute__((weak)); /* C23's */

int main(void) {
  if (free_sized == NULL) {
    test_print(1, "skip no free_sized here\n");
    return 0;
  }
  char *block = block_of(3 * MIB);
  expect_wrong_size(block, 64);
  free_sized(hidden(block), 64);
  return 0;
}
