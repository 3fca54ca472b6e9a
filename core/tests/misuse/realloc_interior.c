/* A pointer into a small block is given to realloc. */
#include "misuse.h"

int main(void) {
  keep_neighbours(100);
  char *block = block_of(100);
  keep_neighbours(100);
  expect_interior_pointer(block + 32, block);
  *(char *)hidden(realloc(hidden(block + 32), 5000)) = 1;
  trim_heap();
  return 0;
}
