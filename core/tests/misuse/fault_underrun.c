/* SNUG=guard:1: a byte before a block that begins at a page, without a free. */
#include "misuse.h"

int main(int argc, char **argv) {
  (void)argc;
  run_guarded(argv);
  char *block = block_of(40 * KIB);
  expect_underrun(block - 1, 1, block, 40 * KIB);
  (block - hidden_size(1))[0] = 1;
  return 0;
}
