/* An address in a usable page of the heap that holds no block yet is freed. */
#include "misuse.h"

int main(void) {
  char *block = block_of(100 * KIB); /* page-granular: what follows is the heap's end or another page */
  char *unused = block + 2 * MIB;
  expect_foreign_pointer(unused);
  free(hidden(unused));
  return 0;
}
