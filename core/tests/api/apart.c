/* The allocator's tables lie apart from blocks: a write that runs on beyond the end of a large block, which is a
 * mapping of its own, comes to other blocks or to a page that can't be touched, never to a table or to the variables
 * of a thread. And they lie at another distance from the heap each time that a program starts: whoever can write at a
 * distance of his choice from a block does not know where they are. */
#include "../support/writable.h"

#include <malloc.h>

#include "../../include/snug_counters.h"

extern struct snug_counters snug_counters __attribute__((weak));

enum { BLOCKS = 300, STARTS = 16, ROW_BYTES = 24 };

static char *blocks[BLOCKS];

static bool is_snug(void) { return snug_is_active() && &snug_counters != NULL; }

static bool is_in_a_block(const char *address) {
  for (size_t i = 0; i < BLOCKS; i++) {
    if (blocks[i] != NULL && address >= blocks[i] && address < blocks[i] + malloc_usable_size(blocks[i])) return true;
  }
  return false;
}

static void check_apart(const char *what, const char *start, size_t bytes) {
  CHECK_THAT(!is_writable(start - 1) && !is_writable(start + bytes), "%s: a byte beside it can be written to", what);
}

/* The first test: the process has no other large blocks. */
TEST(beyond_a_large_block_lie_others_or_nothing) {
  if (!is_snug()) SKIP("not snug");
  if (freed_blocks_wait()) SKIP("each block has a page of its own that can't be touched");
  if (getenv("TEST_EMULATED") != NULL) SKIP("the mappings are the emulator's, too");
  for (size_t i = 0; i < BLOCKS; i++) {
    blocks[i] = (char *)hidden(malloc(MIB + i % 7 * 16 * KIB));
    REQUIRE(blocks[i] != NULL);
  }
  read_mappings();
  size_t others = 0;
  for (size_t i = 0; i < BLOCKS; i++) {
    const char *end = blocks[i] + malloc_usable_size(blocks[i]);
    others += is_writable(end) && !is_in_a_block(end);
  }
  CHECK_THAT(others == 0, "%zu of %d blocks end where something else begins", others, BLOCKS);
  size_t table_bytes = snug_counters.large_table_rows * ROW_BYTES, page_bytes = snug_counters.page_size_bytes;
  CHECK(snug_counters.large_table_rows > BLOCKS);
  check_apart("table of large blocks", (const char *)(uintptr_t)snug_counters.large_table_address,
              (table_bytes + page_bytes - 1) / page_bytes * page_bytes);
  for (size_t i = 0; i < BLOCKS; i++) free(blocks[i]);
}

static uint64_t distance(void) { return snug_counters.heap_address - snug_counters.tables[0].address; }

static uint64_t distance_of_another_start(void) {
  char text[32] = "";
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    dup2(ends[1], 1);
    execl("/proc/self/exe", "apart", "--distance", (char *)NULL);
    _exit(127);
  }
  close(ends[1]);
  ssize_t length = read(ends[0], text, sizeof text - 1);
  close(ends[0]);
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child && status == 0 && length > 0);
  return strtoull(text, NULL, 10);
}

TEST(tables_lie_at_another_distance_at_each_start) {
  if (!is_snug()) SKIP("not snug");
  if (getenv("TEST_EMULATED") != NULL) SKIP("the emulator starts no other program");
  size_t others = 0;
  for (size_t i = 0; i < STARTS; i++) others += distance_of_another_start() != distance();
  CHECK_THAT(others > STARTS / 2, "%zu of %d starts had another distance", others, STARTS);
}

int main(int argc, char **argv) {
  if (argc != 2 || strcmp(argv[1], "--distance") != 0) return run_tests(argc, argv);
  free(hidden(malloc(100)));
  test_print(1, "%llu\n", (unsigned long long)distance());
  return 0;
}
