/* SNUG=guard:1: a double free of a mapping of its own. */
#include "misuse.h"

int main(int argc, char **argv) {
  (void)argc;
  run_guarded(argv);
  char *block = block_of(100000);
  expect_double_free(block);
  free(hidden(block));
  free(block_of(100000));
  free(hidden(block));
  return 0;
}
