/* SNUG=guard:1: 32 bytes behind a block whose slot has no slack. */
#include "misuse.h"

int main(int argc, char **argv) {
  (void)argc;
  run_guarded(argv);
  char *block = block_of(24);
  expect_overflow(block, 0);
  memset(block + hidden_size(24), 7, 32);
  free(hidden(block));
  return 0;
}
