/* SNUG=guard:1: free_sized with a length that is one too small. */
#include "misuse.h"

void free_sized(void *block, size_t size_bytes) __attribute__((weak)); /* C23's */

int main(int argc, char **argv) {
  (void)argc;
  run_guarded(argv);
  if (free_sized == NULL) {
    test_print(1, "skip no free_sized here\n");
    return 0;
  }
  char *block = block_of(100);
  expect_wrong_size(block, 99);
  free_sized(hidden(block), 99);
  return 0;
}
