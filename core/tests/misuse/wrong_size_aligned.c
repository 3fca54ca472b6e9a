/* free_aligned_sized with a size the block was not allocated with. */
#include "misuse.h"

void free_aligned_sized(void *block, size_t alignment, size_t size_bytes) __attribute__((weak)); /* C23's */

int main(void) {
  if (free_aligned_sized == NULL) {
    test_print(1, "skip no free_aligned_sized here\n");
    return 0;
  }
  char *block = hidden(aligned_alloc(64, 640));
  REQUIRE(block != NULL);
  expect_wrong_size(block, 6400);
  free_aligned_sized(hidden(block), 64, 6400);
  trim_heap();
  return 0;
}
