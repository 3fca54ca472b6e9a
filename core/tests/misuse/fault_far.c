/* SNUG=guard:1: a write far beyond a small block, where the heap has not come to. The last block before is named. */
#include "misuse.h"

int main(int argc, char **argv) {
  (void)argc;
  run_guarded(argv);
  char *block = block_of(100), *last = block_of(100);
  if (last < block) last = block;
  expect_overrun(last + 64 * MIB, 64 * MIB, last, 100);
  last[hidden_size(64 * MIB)] = 1;
  return 0;
}
