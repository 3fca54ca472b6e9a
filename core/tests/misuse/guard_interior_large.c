/* SNUG=guard:1: a free inside of a mapping of its own. */
#include "misuse.h"

int main(int argc, char **argv) {
  (void)argc;
  run_guarded(argv);
  char *block = block_of(100000);
  expect_interior_pointer(block + 50000, block);
  free(hidden(block + 50000));
  return 0;
}
