/* A small block is freed twice in a row, while the thread's cache still holds it. */
#include "misuse.h"

int main(void) {
  keep_neighbours(100);
  char *block = block_of(100);
  keep_neighbours(100);
  expect_double_free(block);
  free(hidden(block));
  free(hidden(block));
  flush_cache(100);
  return 0;
}
