/* SNUG=guard:1: a write to a freed small block, found when its time of waiting is over. */
#include "misuse.h"

int main(int argc, char **argv) {
  (void)argc;
  run_guarded(argv);
  char *block = block_of(100);
  expect_write_after_free(block + 50, block);
  free(hidden(block));
  block[hidden_size(50)] = 0;
  for (int i = 0; i < 10000; i++) free(block_of(200));
  return 0;
}
