/* A pointer to a later page of a page run is freed. */
#include "misuse.h"

int main(void) {
  char *block = block_of(100 * KIB);
  expect_interior_pointer(block + 12288, block);
  free(hidden(block + 12288));
  return 0;
}
