/* free_sized of a block of 1000 bytes as if it had 100. */
#include "misuse.h"

void free_sized(void *block, size_t size_bytes) __attribute__((weak)); /* C23's */

int main(void) {
  if (free_sized == NULL) {
    test_print(1, "skip no free_sized here\n");
    return 0;
  }
  char *block = block_of(1000);
  expect_wrong_size(block, 100);
  free_sized(hidden(block), 100);
  flush_cache(1000);
  return 0;
}
