/* A freed small block is given to realloc. */
#include "misuse.h"

int main(void) {
  keep_neighbours(100);
  char *block = block_of(100);
  keep_neighbours(100);
  expect_double_free(block);
  free(hidden(block));
  malloc_trim(0);
  *(char *)hidden(realloc(hidden(block), 5000)) = 1;
  malloc_trim(0);
  return 0;
}
