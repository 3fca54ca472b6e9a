/* A freed page run is given to realloc. */
#include "misuse.h"

int main(void) {
  char *block = block_of(100 * KIB);
  keep_neighbours(100 * KIB);
  expect_double_free(block);
  free(hidden(block));
  *(char *)hidden(realloc(hidden(block), 200 * KIB)) = 1;
  return 0;
}
