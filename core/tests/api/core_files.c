/* What a core file has: live blocks, and not what is only reserved, which gcore(1) would write page by page. */
#include "../support/test.h"

#include <stdio.h>

enum { BLOCKS = 20000, BLOCK_BYTES = 3000, MOST_MIB = 256 };

static char *blocks[BLOCKS];
static unsigned char dumped[BLOCKS];

/* Marks the blocks that lie in mappings which are dumped; returns the bytes of all of these. */
static uint64_t read_mappings(void) {
  FILE *file = fopen("/proc/self/smaps", "r");
  REQUIRE(file != NULL);
  char line[512];
  uintptr_t start = 0, end = 0;
  uint64_t bytes = 0;
  while (fgets(line, sizeof line, file) != NULL) {
    unsigned long first, after;
    if (sscanf(line, "%lx-%lx ", &first, &after) == 2) start = first, end = after;
    if (strncmp(line, "VmFlags:", 8) != 0 || strstr(line, " dd") != NULL) continue;
    bytes += end - start;
    for (int i = 0; i < BLOCKS; i++) dumped[i] |= (uintptr_t)blocks[i] >= start && (uintptr_t)blocks[i] < end;
  }
  fclose(file);
  return bytes;
}

static void check(size_t block_bytes) {
  for (int i = 0; i < BLOCKS; i++) blocks[i] = (char *)memset(malloc(block_bytes), 1, block_bytes);
  memset(dumped, 0, sizeof dumped);
  uint64_t bytes = read_mappings();
  for (int i = 0; i < BLOCKS; i++) CHECK_THAT(dumped[i], "block %d is left out", i);
  if (getenv("TEST_EMULATED") == NULL && snug_is_active())
    CHECK_THAT(bytes >> 20 < MOST_MIB, "%llu MiB would be written", (unsigned long long)(bytes >> 20));
  for (int i = 0; i < BLOCKS; i++) free(blocks[i]);
}

TEST(live_blocks_are_dumped_and_reservations_are_not) { check(BLOCK_BYTES); }

TEST(neither_are_they_when_the_heap_grew_shrank_and_grew) {
  for (int round = 0; round < 3; round++) {
    check(BLOCK_BYTES + 1500 * (size_t)round);
    trim_heap();
  }
}

int main(int argc, char **argv) { return run_tests(argc, argv); }
