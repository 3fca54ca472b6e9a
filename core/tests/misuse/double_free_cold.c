/* A small block is freed twice with another free and a malloc of other sizes in between, in a class that is not busy:
 * found at the second free. */
#include "misuse.h"

int main(void) {
  char *block = block_of(100), *next = block_of(100);
  keep_neighbours(100);
  expect_double_free(block);
  free(hidden(block));
  free(hidden(next));
  keep_neighbours(200);
  free(hidden(block));
  return 0;
}
