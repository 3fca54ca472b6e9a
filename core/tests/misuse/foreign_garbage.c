/* A number that is no address of user space at all is freed. */
#include "misuse.h"

int main(void) {
  *block_of(100) = 1;
  char *garbage = (char *)(uintptr_t)0xdeadbeefdeadbee0u;
  expect_foreign_pointer(garbage);
  free(hidden(garbage));
  return 0;
}
