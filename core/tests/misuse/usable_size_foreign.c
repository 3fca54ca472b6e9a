/* malloc_usable_size is asked about a pointer to static data. */
#include "misuse.h"

static char data[4096] __attribute__((aligned(16)));

int main(void) {
  *block_of(100) = 1;
  expect_foreign_pointer(data);
  return malloc_usable_size(hidden(data)) == 12345;
}
