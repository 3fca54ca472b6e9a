/* Blocks that fill holes may be longer than their class (docs/decisions/0044), and stay where they are when realloc is
 * given the size that was asked for. A program of its own, since what was joined before counts. */
#include "../support/holes.h"

TEST(realloc_to_the_same_size_moves_nothing) {
  enum { EACH = 1000 };
  static unsigned char *blocks[EACH];
  if (freed_blocks_wait()) SKIP("realloc always moves under guard:1");
  small_bytes = 40; /* two of their slots are a third more than the shortest block of 80 bytes is asked for */
  leave_holes();
  for (size_t size_bytes = 65; size_bytes < 300; size_bytes += 13) {
    for (size_t i = 0; i < EACH; i++) {
      blocks[i] = (unsigned char *)hidden(malloc(size_bytes));
      REQUIRE(blocks[i] != NULL);
      unsigned char *same = (unsigned char *)hidden(realloc(blocks[i], size_bytes));
      CHECK_THAT(same == blocks[i], "a block of %zu bytes moved", size_bytes);
      blocks[i] = same;
    }
    for (size_t i = 0; i < EACH; i++) free(blocks[i]);
  }
  free_small();
}

int main(int argc, char **argv) { return run_tests(argc, argv); }
