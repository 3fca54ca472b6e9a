/* guard_test.c: guarded blocks: those before them, reuse of their pages, purges, kernels that refuse, threads, forks.
 * What each mistake leads to is tested by core/tests/misuse. */
#include "../../src/sys.c"

/* A kernel that splits no mappings any more, on demand. */
static bool refuse_fences;
static bool decommit_or_refuse(void *start, size_t bytes) { return !refuse_fences && sys_decommit(start, bytes); }
#define sys_decommit decommit_or_refuse

/* One that gives no memory. */
#include "large_pages.h"

static bool refuse_memory;
static void *map_or_refuse(size_t bytes) { return refuse_memory ? NULL : sys_map(bytes); }
static bool commit_or_refuse(void *start, size_t bytes) { return !refuse_memory && sys_commit(start, bytes); }
#undef sys_map
#define sys_map map_or_refuse
#define sys_commit commit_or_refuse
#include "above_sys.h"
#include "unit.h"

enum { MANY = 600 };

static struct block {
  char *start;
  size_t size_bytes;
  uint64_t seed;
} older[MANY];

static const size_t sizes[] = {0, 1, 24, 100, 1000, 1024, 5000, 32768, 32784, 50000, 300000, 2000000};

static struct block new_block(size_t size_bytes, uint64_t seed) {
  struct block block = {malloc(size_bytes), size_bytes, seed};
  REQUIRE(block.start != NULL && (uintptr_t)block.start % 16 == 0);
  fill_pattern(block.start, size_bytes, seed);
  return block;
}

static void end_block(const struct block *block) {
  CHECK(pattern_mismatch(block->start, block->size_bytes, block->seed) == block->size_bytes);
  free(block->start);
}

static uint32_t stage; /* of the thread that has a cache already */
static void *long_lived(void *argument) {
  for (int i = 0; i < 1000; i++) free(malloc(64)); /* an open bin, with something in it */
  struct block mine = new_block(100, 7);
  __atomic_store_n(&stage, 1, __ATOMIC_RELEASE);
  while (__atomic_load_n(&stage, __ATOMIC_ACQUIRE) != 2) sched_yield();
  end_block(&mine);
  for (int i = 0; i < 1000; i++) free(malloc(64));
  CHECK(this_thread.own == NULL);
  size_t size_bytes;
  struct block guarded = new_block(77, 8);
  CHECK(guard_size(guarded.start, &size_bytes) && size_bytes == 77);
  end_block(&guarded);
  return argument;
}

/* Once for all tests: blocks and a thread from before. */
static void guard(void) {
  static bool done;
  if (done) return;
  done = true;
  pthread_t thread;
  for (size_t i = 0; i < MANY; i++) older[i] = new_block(sizes[i % COUNT_OF(sizes)], i);
  REQUIRE(pthread_create(&thread, NULL, long_lived, NULL) == 0);
  while (__atomic_load_n(&stage, __ATOMIC_ACQUIRE) != 1) sched_yield();
  REQUIRE(guard_start() && guard_is_on());
  __atomic_store_n(&stage, 2, __ATOMIC_RELEASE);
  pthread_join(thread, NULL);
}

TEST(older_blocks_stay_what_they_were) {
  guard();
  for (size_t i = 0; i < MANY; i++) {
    size_t size_bytes;
    CHECK(!guard_size(older[i].start, &size_bytes) && malloc_usable_size(older[i].start) >= older[i].size_bytes);
    if (i % 3 != 0) continue;
    older[i].start = realloc(older[i].start, older[i].size_bytes + 1 + i);
    size_t kept = older[i].size_bytes;
    CHECK(older[i].start != NULL && pattern_mismatch(older[i].start, kept, older[i].seed) == kept);
  }
  for (size_t i = 0; i < MANY; i++) end_block(&older[i]);
  CHECK(this_thread.own == NULL && steal_caches(0, NULL) == 0);
  snug_check();
}

TEST(blocks_are_as_long_as_asked_for) {
  guard();
  for (size_t alignment = 16; alignment <= 4 * MIB; alignment *= 4) {
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
      char *block = memalign(alignment, sizes[i]);
      REQUIRE(block != NULL && (uintptr_t)block % alignment == 0);
      CHECK_THAT(malloc_usable_size(block) == sizes[i], "%zu for %zu", malloc_usable_size(block), sizes[i]);
      memset(block, 1, sizes[i]);
      free_aligned_sized(block, alignment, sizes[i]);
    }
  }
  for (size_t i = 0; i < COUNT_OF(sizes); i++) {
    char *block = calloc(1, sizes[i]);
    for (size_t k = 0; k < sizes[i]; k++) REQUIRE(block[k] == 0);
    memset(block, 1, sizes[i]);
    block = realloc(block, sizes[i] + 3);
    CHECK(malloc_usable_size(block) == sizes[i] + 3 && (sizes[i] == 0 || block[sizes[i] - 1] == 1));
    free_sized(block, sizes[i] + 3);
  }
}

/* Classes follow one another on the same pages, and what one leaves there must not look like another's mark or fill. */
TEST(pages_change_classes) {
  guard();
  static struct block blocks[3000];
  uint64_t random = 5;
  for (int round = 0; round < 60; round++) {
    size_t base = 8 + 16 * random_below(&random, 60);
    for (size_t i = 0; i < COUNT_OF(blocks); i++) blocks[i] = new_block(base + random_below(&random, 8), i);
    for (size_t i = 0; i < COUNT_OF(blocks); i++) end_block(&blocks[i]);
    if (round % 2 == 0) guard_end_waits();
    if (round % 5 == 0) snug_purge();
  }
  snug_check();
}

TEST(purged_slots_may_be_taken) {
  guard();
  static struct block blocks[200];
  for (int round = 0; round < 20; round++) {
    for (size_t i = 0; i < COUNT_OF(blocks); i++) blocks[i] = new_block(6000, i);
    for (size_t i = 0; i < COUNT_OF(blocks); i++)
      if (i % 16 != 0) end_block(&blocks[i]);
    guard_end_waits();
    slab_purge(0, false, 100000, SIZE_MAX);
    for (size_t i = 0; i < COUNT_OF(blocks); i++)
      if (i % 16 != 0) blocks[i] = new_block(6000, i);
    for (size_t i = 0; i < COUNT_OF(blocks); i++) end_block(&blocks[i]);
  }
}

static void overflow_without_a_fence(void) {
  char *block = malloc(100000);
  memset(block + 100000, 0, 100);
  free(block);
}

TEST(without_fences_the_bytes_behind_are_checked) {
  guard();
  char text[512];
  refuse_fences = true;
  struct block block = new_block(100000, 3);
  CHECK(!header_of(block.start, false)->fenced);
  end_block(&block);
  CHECK(WIFSIGNALED(run_and_listen(overflow_without_a_fence, text, sizeof text)));
  CHECK_THAT(strstr(text, "write beyond the end of a block") != NULL, "%s", text);
  refuse_fences = false;
}

static void write_through_an_old_pointer(void) {
  char *volatile block = malloc(100000);
  free(block);
  block[5000] = 1;
}

TEST(freed_mappings_cannot_be_touched_and_hold_no_memory) {
  guard();
  char text[512];
  int status = run_and_listen(write_through_an_old_pointer, text, sizeof text);
  CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
  struct block block = new_block(MIB, 1);
  end_block(&block);
  CHECK(is_emulated() || !is_resident(block.start + MIB / 2)); /* QEMU does not say of pages that can't be read */
}

/* Slots that wait after they were freed are then taken. */
TEST(zeroed_blocks_are_zero_when_memory_runs_out) {
  enum { SIZE = 100, FREED = 60, MOST = 200000 };
  static char *blocks[MOST];
  guard();
  for (size_t i = 0; i < FREED; i++) blocks[i] = memset(malloc(SIZE), 0xff, SIZE);
  for (size_t i = 0; i < FREED; i++) free(blocks[i]);
  size_t count = 0, dirty = 0;
  refuse_memory = true;
  while (count < MOST && (blocks[count] = calloc(1, SIZE)) != NULL) {
    dirty += first_other(blocks[count], SIZE, 0) != NULL;
    count++;
  }
  refuse_memory = false;
  CHECK_THAT(count > 0 && count < MOST && dirty == 0, "%zu of %zu zeroed blocks are not zero", dirty, count);
  while (count > 0) free(blocks[--count]);
}

static void *exchange_blocks(void *argument) {
  static char *shared[64];
  uint64_t random = (uintptr_t)argument;
  for (int i = 0; i < 20000; i++) {
    size_t size_bytes = random_below(&random, 100) == 0 ? 40000 : 1 + random_below(&random, 2000);
    char *block = malloc(size_bytes);
    memset(block, 1, size_bytes);
    free(__atomic_exchange_n(&shared[random_below(&random, 64)], block, __ATOMIC_ACQ_REL));
  }
  return NULL;
}

TEST(threads_and_forks) {
  guard();
  pthread_t threads[4];
  for (uintptr_t i = 0; i < 4; i++) REQUIRE(pthread_create(&threads[i], NULL, exchange_blocks, (void *)(i + 1)) == 0);
  for (int i = 0; i < 10; i++) {
    pid_t child = fork();
    if (child == 0) {
      if (is_emulated()) options.background = 0; /* QEMU 7.2 dies of a new thread in a child of several */
      exchange_blocks((void *)(uintptr_t)99);
      _exit(test_failed);
    }
    int status = 1;
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
  }
  for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
  snug_check();
}
