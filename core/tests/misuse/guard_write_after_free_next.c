/* SNUG=guard:1: a write to the block that was freed last shows at the next call. */
#include "misuse.h"

int main(int argc, char **argv) {
  (void)argc;
  run_guarded(argv);
  char *block = block_of(4000);
  free(block);
  expect_write_after_free(block + 70, block);
  block[hidden_size(70)] = 1;
  free(block_of(100));
  return 0;
}
