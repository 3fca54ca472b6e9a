/* A pointer to static data is freed before the program itself ever allocated. */
#include "misuse.h"

static char data[4096] __attribute__((aligned(16)));

int main(void) {
  expect_foreign_pointer(data + 16);
  free(hidden(data + 16));
  return 0;
}
