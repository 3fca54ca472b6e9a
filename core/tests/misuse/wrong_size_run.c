/* free_sized of a page run with a size that has another number of pages. */
#include "misuse.h"

void free_sized(void *block, size_t size_bytes) __attribute__((weak)); /* C23's */

int main(void) {
  if (free_sized == NULL) {
    test_print(1, "skip no free_sized here\n");
    return 0;
  }
  char *block = block_of(100 * KIB);
  expect_wrong_size(block, 50 * KIB);
  free_sized(hidden(block), 50 * KIB);
  return 0;
}
