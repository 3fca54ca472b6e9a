/* A page run (100 KiB) is freed again after all free memory has gone, and with it the end of the heap. */
#include "misuse.h"

int main(void) {
  enum { COUNT = 100 };
  static char *blocks[COUNT];
  for (int i = 0; i < COUNT; i++) blocks[i] = memset(block_of(100 * KIB), 1, 100 * KIB);
  expect_double_free(blocks[COUNT - 1]);
  for (int i = 0; i < COUNT; i++) free(hidden(blocks[i]));
  malloc_trim(0);
  free(hidden(blocks[COUNT - 1]));
  return 0;
}
