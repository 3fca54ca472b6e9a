/* free_sized of a small block with the size of a larger object. */
#include "misuse.h"

void free_sized(void *block, size_t size_bytes) __attribute__((weak)); /* C23's */

int main(void) {
  if (free_sized == NULL) {
    test_print(1, "skip no free_sized here\n");
    return 0;
  }
  char *block = block_of(100);
  expect_wrong_size(block, 1000);
  free_sized(hidden(block), 1000);
  flush_cache(100);
  return 0;
}
