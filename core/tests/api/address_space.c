/* How much address space a process has mapped (VmSize). Servers end workers that have more than so much of it (uWSGI's
 * --reload-on-as), and supervisors limit it from outside, by prlimit(2), where no library of the process sees it. So
 * what is mapped must be near to what is used, at start, at a peak, and after it; and under such a limit threads,
 * mappings and blocks must be had up to it. */
#include "../support/test.h"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>

enum { BLOCK_BYTES = 100 * 1024, BLOCKS_MAX = 20000, SMALL_MIB = 160 };

static char *blocks[BLOCKS_MAX];

static size_t mapped_bytes(void) { return status_number("VmSize:") * KIB; }

static bool is_seen(void) { return getenv("TEST_EMULATED") == NULL; }

static size_t take_blocks(size_t most_bytes) {
  size_t count = 0;
  while (count < BLOCKS_MAX && count * BLOCK_BYTES < most_bytes) {
    blocks[count] = (char *)hidden(malloc(BLOCK_BYTES));
    if (blocks[count] == NULL) break;
    fill_pattern((unsigned char *)blocks[count], 64, count);
    count++;
  }
  return count;
}

static void give_blocks(size_t count) {
  while (count > 0) {
    count--;
    CHECK(pattern_mismatch((unsigned char *)blocks[count], 64, count) == 64);
    free(blocks[count]);
  }
}

/* The first test: nothing was allocated yet. */
TEST(a_small_program_has_little_mapped) {
  if (!is_seen()) SKIP("the emulator's own mappings count");
  free(hidden(malloc(100)));
  CHECK_THAT(mapped_bytes() < SMALL_MIB * MIB, "%zu MiB", mapped_bytes() / MIB);
}

TEST(what_is_mapped_follows_what_is_allocated) {
  if (!is_seen()) SKIP("the emulator's own mappings count");
  if (freed_blocks_wait()) SKIP("freed blocks stay mapped for a while");
  size_t before = mapped_bytes();
  for (size_t target = 64 * MIB; target <= GIB; target *= 4) {
    size_t count = take_blocks(target), now = mapped_bytes() - before, used = count * BLOCK_BYTES;
    REQUIRE(used >= target);
    CHECK_THAT(now < used + used / 4 + 96 * MIB, "%zu MiB for %zu MiB", now / MIB, used / MIB);
    give_blocks(count);
  }
  trim_heap();
  CHECK_THAT(mapped_bytes() < before + 64 * MIB, "%zu MiB, %zu before", mapped_bytes() / MIB, before / MIB);
}

static void *allocate_some(void *argument) {
  char *block = (char *)hidden(malloc(100 * KIB));
  if (block == NULL) return NULL;
  memset(block, 1, 100 * KIB);
  free(block);
  return argument;
}

static void check_threads(const char *when) {
  pthread_t threads[4];
  for (size_t i = 0; i < COUNT_OF(threads); i++) {
    int error = pthread_create(&threads[i], NULL, allocate_some, blocks);
    CHECK_THAT(error == 0, "%s: thread %zu: %s", when, i, strerror(error));
    void *result = NULL;
    if (error == 0) pthread_join(threads[i], &result);
    CHECK_THAT(result == blocks, "%s: thread %zu had no memory", when, i);
  }
}

/* As a supervisor does. */
static void limit_from_outside(size_t bytes) {
  pid_t target = getpid(), supervisor = fork();
  REQUIRE(supervisor >= 0);
  if (supervisor == 0) {
    struct rlimit limit = {bytes, bytes};
    _exit(prlimit(target, RLIMIT_AS, &limit, NULL) == 0 ? 0 : 1);
  }
  int status = -1;
  REQUIRE(waitpid(supervisor, &status, 0) == supervisor && status == 0);
}

static void live_under_a_limit(size_t heap_bytes) {
  give_blocks(take_blocks(heap_bytes));
  const size_t room = 400 * MIB;
  limit_from_outside(SMALL_MIB * MIB + heap_bytes + room);
  check_threads("under the limit");
  void *mapping = mmap(NULL, 64 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(mapping != MAP_FAILED);
  if (mapping != MAP_FAILED) munmap(mapping, 64 * MIB);
  size_t count = take_blocks(SIZE_MAX);
  CHECK_THAT(count * BLOCK_BYTES >= heap_bytes + room / 4 * 3, "%zu MiB of %zu", count * BLOCK_BYTES / MIB,
             (heap_bytes + room) / MIB);
  CHECK(hidden(malloc(GIB)) == NULL && hidden(malloc(BLOCK_BYTES)) == NULL);
  give_blocks(count);
  trim_heap();
  check_threads("after all was full");
  give_blocks(take_blocks(heap_bytes + room / 2));
}

static void live_with_a_small_heap(void) { live_under_a_limit(0); }
static void live_with_a_large_heap(void) { live_under_a_limit(600 * MIB); }

TEST(a_limit_that_another_process_sets_leaves_room_up_to_it) {
  if (!is_seen()) SKIP("the limit is the emulator's");
  if (freed_blocks_wait()) SKIP("each block has a mapping of its own");
  run_in_child(live_with_a_small_heap);
  run_in_child(live_with_a_large_heap);
}

int main(int argc, char **argv) { return run_tests(argc, argv); }
