/* SNUG=guard:1: a block of no bytes has none to write to. The next call shows it. */
#include "misuse.h"

int main(int argc, char **argv) {
  (void)argc;
  run_guarded(argv);
  char *block = (char *)hidden(malloc(hidden_size(0)));
  expect_overflow(block, 0);
  block[hidden_size(0)] = 1;
  free(block_of(5000));
  return 0;
}
