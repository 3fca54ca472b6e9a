/* SNUG=guard:1: bytes behind a block that is never freed show at the next call. */
#include "misuse.h"

int main(int argc, char **argv) {
  (void)argc;
  run_guarded(argv);
  char *block = block_of(100);
  static const char zeros[132];
  expect_overflow(block, 0);
  memcpy(block, zeros, hidden_size(sizeof zeros));
  free(block_of(5000));
  return 0;
}
