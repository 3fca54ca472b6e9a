/* A pointer to the stack is freed. */
#include "misuse.h"

int main(void) {
  char local[64] __attribute__((aligned(16)));
  *block_of(100) = 1;
  expect_foreign_pointer(local);
  free(hidden(local));
  return 0;
}
