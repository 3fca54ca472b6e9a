/* Blocks that live for a moment leave the holes as they were (docs/decisions/0044): small blocks then find as much room
 * as without. A program of its own, since nothing is joined for some seconds after many joined blocks were freed. */
#include "../support/holes.h"

TEST(short_lived_blocks_use_no_holes_up) {
  enum { MORE = SMALL / 2 };
  static unsigned char *more[MORE];
  leave_holes();
  size_t before = resident_bytes();
  for (size_t i = 0; i < MORE; i++) {
    free(hidden(malloc(200)));
    more[i] = (unsigned char *)hidden(malloc(small_bytes));
    REQUIRE(more[i] != NULL);
    memset(more[i], 1, small_bytes);
  }
  size_t grown = resident_bytes() - before, table = sizeof more;
  bool is_judged = snug_is_active() && !freed_blocks_wait() && getenv("TEST_EMULATED") == NULL;
  if (is_judged) CHECK_THAT(grown < table + MIB, "%zu KiB more, %zu of them a table", grown / KIB, table / KIB);
  for (size_t i = 0; i < MORE; i++) free(more[i]);
  free_small();
}

int main(int argc, char **argv) { return run_tests(argc, argv); }
