/* SNUG=guard:1: a byte behind a block that ends at a page. */
#include "misuse.h"

int main(int argc, char **argv) {
  (void)argc;
  run_guarded(argv);
  char *block = block_of(40 * KIB);
  expect_overrun(block + 40 * KIB, 40 * KIB, block, 40 * KIB);
  block[hidden_size(40 * KIB)] = 1;
  return 0;
}
