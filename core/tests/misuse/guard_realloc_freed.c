/* SNUG=guard:1: realloc of a freed block. */
#include "misuse.h"

int main(int argc, char **argv) {
  (void)argc;
  run_guarded(argv);
  char *block = block_of(100);
  expect_double_free(block);
  free(hidden(block));
  *(void *volatile *)block_of(10) = realloc(hidden(block), 200);
  return 0;
}
