/* SNUG=guard:1: a double free of a block that was written to in between, all of it. */
#include "misuse.h"

int main(int argc, char **argv) {
  (void)argc;
  run_guarded(argv);
  char *block = block_of(104);
  expect_double_free(block);
  free(hidden(block));
  for (int i = 0; i < 10; i++) free(block_of(100)); /* each call looks at the last ones */
  memset(block, 7, hidden_size(112));
  free(hidden(block));
  return 0;
}
