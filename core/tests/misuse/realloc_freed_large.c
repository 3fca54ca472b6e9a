/* A freed block with a mapping of its own is given to realloc. */
#include "misuse.h"

int main(void) {
  char *block = block_of(3 * MIB);
  expect_double_free(block);
  free(hidden(block));
  *(char *)hidden(realloc(hidden(block), 5 * MIB)) = 1;
  return 0;
}
