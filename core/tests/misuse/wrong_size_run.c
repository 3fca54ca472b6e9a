/* free_sized of a page run with a size that has another number of pages. */
#include "misuse.h"

void free_sized(void *block, size_t size_bytes);

int main(void) {
  char *block = block_of(100 * KIB);
  expect_wrong_size(block, 50 * KIB);
  free_sized(hidden(block), 50 * KIB);
  return 0;
}
