/* A small block is freed twice in a row, in a class whose bin is open: found at the second free. */
#include "misuse.h"

int main(void) {
  flush_cache(100);
  char *block = block_of(100);
  expect_double_free(block);
  free(hidden(block));
  free(hidden(block));
  return 0;
}
