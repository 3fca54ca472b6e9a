/* A freed small block is given to realloc. */
#include "misuse.h"

int main(void) {
  keep_neighbours(100);
  char *block = block_of(100);
  keep_neighbours(100);
  expect_double_free(block);
  free(hidden(block));
  trim_heap();
  *(char *)hidden(realloc(hidden(block), 5000)) = 1;
  trim_heap();
  return 0;
}
