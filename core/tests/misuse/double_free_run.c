/* A page run (100 KiB) is freed twice. */
#include "misuse.h"

int main(void) {
  char *block = block_of(100 * KIB);
  keep_neighbours(100 * KIB);
  expect_double_free(block);
  free(hidden(block));
  free(hidden(block));
  return 0;
}
