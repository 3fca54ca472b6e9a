/* SNUG=guard:1: 8 bytes before the start of a block with a mapping of its own. */
#include "misuse.h"

int main(int argc, char **argv) {
  (void)argc;
  run_guarded(argv);
  char *block = block_of(100000);
  expect_underflow(block);
  memset(block - hidden_size(8), 0, 8);
  free(hidden(block));
  return 0;
}
