/* A pointer to static data is freed. */
#include "misuse.h"

static char data[4096] __attribute__((aligned(4096)));

int main(void) {
  *block_of(100) = 1;
  expect_foreign_pointer(data);
  free(hidden(data));
  return 0;
}
