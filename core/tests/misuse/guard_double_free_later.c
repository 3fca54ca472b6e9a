/* SNUG=guard:1: a double free after a thousand other frees and mallocs. */
#include "misuse.h"

int main(int argc, char **argv) {
  (void)argc;
  run_guarded(argv);
  char *block = block_of(100);
  expect_double_free(block);
  free(hidden(block));
  for (int i = 0; i < 1000; i++) free(block_of(100));
  free(hidden(block));
  return 0;
}
