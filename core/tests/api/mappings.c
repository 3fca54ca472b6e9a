/* A process that had as many mappings as the system allows (vm.max_map_count) has few again when its blocks are freed:
 * what could not be unmapped at first goes with its neighbours. Blocks that have no mapping of their own cost none. */
#include "../support/test.h"

#include <pthread.h>
#include <sys/mman.h>

/* Lines of /proc/self/maps, read without an allocation. */
static size_t count_mappings(void) {
  char text[65536];
  size_t lines = 0;
  int descriptor = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  REQUIRE(descriptor >= 0);
  ssize_t length;
  while ((length = read(descriptor, text, sizeof text)) > 0)
    for (ssize_t i = 0; i < length; i++) lines += text[i] == '\n';
  close(descriptor);
  return lines;
}

static size_t max_map_count(void) {
  char text[32] = "";
  int descriptor = open("/proc/sys/vm/max_map_count", O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return 0;
  if (read(descriptor, text, sizeof text - 1) < 0) text[0] = 0;
  close(descriptor);
  return strtoul(text, NULL, 10);
}

static void *do_nothing(void *argument) { return argument; }

enum { FORWARD, BACKWARD, RANDOM };

static void shuffle(void **blocks, size_t count, uint64_t seed) {
  for (size_t i = count - 1; i > 0; i--) {
    size_t other = random_below(&seed, i + 1);
    void *block = blocks[i];
    blocks[i] = blocks[other];
    blocks[other] = block;
  }
}

/* Nothing is written into the blocks: they are address space only. */
static void fill_and_empty(int order) {
  size_t limit = max_map_count(), count = limit * 2 + limit / 4, before = count_mappings();
  if (limit == 0 || limit > 200000) SKIP("more mappings are allowed here than a test can make");
  if (freed_blocks_wait()) SKIP("each block has a fence, which is a mapping of its own");
  const size_t size_bytes = MIB;
  void **blocks =
      (void **)mmap(NULL, count * sizeof *blocks, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(blocks != MAP_FAILED);
  for (size_t i = 0; i < count; i++) {
    blocks[i] = hidden(malloc(size_bytes));
    if (blocks[i] != NULL) continue;
    while (i > 0) free(blocks[--i]);
    munmap(blocks, count * sizeof *blocks);
    SKIP("not as much address space is available");
  }
  for (size_t i = 0; i < count; i += 2) free(blocks[i]);
  size_t most = count_mappings(), rest = 0;
  CHECK_THAT(most + 1000 > limit, "only %zu mappings of %zu", most, limit);
  for (size_t i = 1; i < count; i += 2) blocks[rest++] = blocks[i];
  if (order == RANDOM) shuffle(blocks, rest, 1);
  for (size_t i = 0; i < rest; i++) free(blocks[order == BACKWARD ? rest - 1 - i : i]);
  munmap(blocks, count * sizeof *blocks);
  pthread_t thread;
  int error = pthread_create(&thread, NULL, do_nothing, NULL);
  CHECK_THAT(error == 0, "pthread_create: %s", strerror(error));
  if (error == 0) pthread_join(thread, NULL);
  size_t after = count_mappings();
  CHECK_THAT(after <= before + 100, "%zu mappings, %zu before", after, before);
}

TEST(mappings_come_back_freed_in_order) { fill_and_empty(FORWARD); }
TEST(mappings_come_back_freed_backwards) { fill_and_empty(BACKWARD); }
TEST(mappings_come_back_freed_at_random) { fill_and_empty(RANDOM); }

enum {
  PHASES = 40,
  BLOCKS = 6000,
  LONGEST_BYTES = 1000 * 1024, /* below 1 MiB, from where on each has its mapping */
  OWN_MAX = 8,                 /* what the heap needs once, however it grows, is purged and shrinks */
};

/* Sizes are as often between 32 and 64 bytes as between 256 and 512 KiB. */
static size_t random_bytes(uint64_t *seed) {
  size_t bytes = (size_t)16 << random_below(seed, 17);
  bytes += random_below(seed, bytes);
  return bytes < LONGEST_BYTES ? bytes : LONGEST_BYTES;
}

static void check_few(size_t before, const char *when) {
  size_t now = count_mappings();
  CHECK_THAT(now <= before + OWN_MAX, "%s: %zu mappings, %zu before", when, now, before);
}

/* Fills the heap, punches holes into it, and has them purged. */
static void wander(void **blocks, size_t before, uint64_t *seed) {
  for (size_t i = 0; i < BLOCKS; i++) {
    if (blocks[i] != NULL) continue;
    size_t bytes = random_bytes(seed);
    blocks[i] = malloc(bytes);
    REQUIRE(blocks[i] != NULL);
    memset(blocks[i], 1, bytes < 4096 ? bytes : 4096);
  }
  check_few(before, "full");
  size_t keep = 1 + random_below(seed, 8);
  for (size_t i = 0; i < BLOCKS; i++) {
    if (random_below(seed, keep) != 0) continue;
    free(blocks[i]);
    blocks[i] = NULL;
  }
  trim_heap();
  check_few(before, "purged");
}

TEST(blocks_without_a_mapping_of_their_own_cost_none) {
  if (freed_blocks_wait()) SKIP("each block has a fence, which is a mapping of its own");
  static void *blocks[BLOCKS];
  uint64_t seed = 10;
  free(hidden(malloc(1)));
  size_t before = count_mappings();
  for (int phase = 0; phase < PHASES; phase++) {
    wander(blocks, before, &seed);
    if (phase % 10 != 9) continue;
    pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      wander(blocks, before, &seed);
      _exit(test_failed != 0);
    }
    int status;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK_THAT(status == 0, "the child ended with %d", status);
  }
  for (size_t i = 0; i < BLOCKS; i++) free(blocks[i]);
}

int main(int argc, char **argv) {
  if (getenv("TEST_EMULATED")) {
    test_print(1, "skip mappings: those of the emulator count, too\n");
    return 0;
  }
  return run_tests(argc, argv);
}
