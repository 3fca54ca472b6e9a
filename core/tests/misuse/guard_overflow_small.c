/* SNUG=guard:1: a NUL behind a string that has no room for it. */
#include "misuse.h"

int main(int argc, char **argv) {
  (void)argc;
  run_guarded(argv);
  char *block = block_of(100);
  expect_overflow(block, 100);
  block[hidden_size(100)] = 0;
  free(hidden(block));
  return 0;
}
