/* SNUG=guard:1: a write to a small block that waited, found when it is taken again. */
#include "misuse.h"

int main(int argc, char **argv) {
  (void)argc;
  run_guarded(argv);
  char *block = block_of(100);
  expect_write_after_free(block + 8, block);
  free(hidden(block));
  for (int i = 0; i < 5000; i++) free(block_of(200));
  memset(block + hidden_size(8), 0, 8);
  for (int i = 0; i < 5000; i++) block_of(100);
  return 0;
}
