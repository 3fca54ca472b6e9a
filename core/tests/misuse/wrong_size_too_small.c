/* free_sized of a block of 1000 bytes as if it had 100. */
#include "misuse.h"

void free_sized(void *block, size_t size_bytes);

int main(void) {
  char *block = block_of(1000);
  expect_wrong_size(block, 100);
  free_sized(hidden(block), 100);
  flush_cache(1000);
  return 0;
}
