/* SNUG=guard:1: a byte in front of a small block, which the block before ends with. */
#include "misuse.h"

int main(int argc, char **argv) {
  (void)argc;
  run_guarded(argv);
  char *blocks[16], *after = NULL;
  for (int i = 0; i < 16; i++) blocks[i] = block_of(100);
  for (int i = 0; i < 16; i++)
    if (blocks[i] == blocks[0] + 112) after = blocks[i];
  REQUIRE(after != NULL);
  expect_underflow(after);
  after[-(long)hidden_size(1)] = 0;
  free(hidden(after));
  return 0;
}
