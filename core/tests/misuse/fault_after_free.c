/* SNUG=guard:1: a write to a block with a mapping of its own, after its free. */
#include "misuse.h"

int main(int argc, char **argv) {
  (void)argc;
  run_guarded(argv);
  char *block = block_of(40 * KIB);
  free(block);
  expect_use_after_free(block + 70, block, 40 * KIB);
  block[hidden_size(70)] = 1;
  return 0;
}
