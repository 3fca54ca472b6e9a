/* An address far above all blocks is freed: inside the range that snug reserved, but never in use. */
#include "misuse.h"

int main(void) {
  char *block = block_of(100);
  expect_foreign_pointer(block + 4 * GIB);
  free(hidden(block + 4 * GIB));
  return 0;
}
