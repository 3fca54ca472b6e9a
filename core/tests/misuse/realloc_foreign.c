/* A pointer to static data is given to realloc. */
#include "misuse.h"

static char data[4096] __attribute__((aligned(16)));

int main(void) {
  *block_of(100) = 1;
  expect_foreign_pointer(data);
  *(char *)hidden(realloc(hidden(data), 100)) = 1;
  return 0;
}
