/* SNUG=guard:1: a byte behind a block with a mapping of its own. */
#include "misuse.h"

int main(int argc, char **argv) {
  (void)argc;
  run_guarded(argv);
  char *block = block_of(100001);
  expect_overflow(block, 100001);
  block[hidden_size(100001)] = 0;
  free(hidden(block));
  return 0;
}
