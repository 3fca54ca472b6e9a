/* Limits of the process: huge requests under RLIMIT_AS, exhaustion and recovery. Each in a forked child. */
#include "../support/test.h"

#include <sys/mman.h>
#include <sys/resource.h>

/* An allocator that reserves address space gives up what it does not use when a limit is set: so first a far one. */
static void limit_address_space(size_t extra_bytes) {
  struct rlimit far_limit = {(rlim_t)1 << 46, RLIM_INFINITY};
  REQUIRE(setrlimit(RLIMIT_AS, &far_limit) == 0);
  struct rlimit limit = {address_space_bytes() + extra_bytes, address_space_bytes() + extra_bytes};
  REQUIRE(setrlimit(RLIMIT_AS, &limit) == 0);
}

static void huge_request_fails(void) {
  limit_address_space(256 * MIB);
  errno = 0;
  void *block = hidden(malloc(2 * GIB));
  CHECK_THAT(block == NULL && errno == ENOMEM, "malloc(2 GiB) = %p, errno %d", block, errno);
  errno = 0;
  block = hidden(calloc(2 * GIB, 1));
  CHECK_THAT(block == NULL && errno == ENOMEM, "calloc(2 GiB) = %p, errno %d", block, errno);
  CHECK(posix_memalign(&block, 64, 2 * GIB) == ENOMEM);
  unsigned char *small = (unsigned char *)hidden(malloc(1000));
  REQUIRE(small != NULL);
  fill_pattern(small, 1000, 1);
  errno = 0;
  CHECK(hidden(realloc(small, 2 * GIB)) == NULL && errno == ENOMEM);
  CHECK(pattern_mismatch(small, 1000, 1) == 1000);
  unsigned char *large = (unsigned char *)hidden(malloc(4 * MIB));
  REQUIRE(large != NULL);
  fill_pattern(large, 4 * MIB, 1);
  errno = 0;
  CHECK(hidden(realloc(large, 2 * GIB)) == NULL && errno == ENOMEM);
  CHECK(pattern_mismatch(large, 4 * MIB, 1) == 4 * MIB);
  free(small);
  free(large);
}

TEST(huge_requests_fail_cleanly_under_an_address_space_limit) {
  if (getenv("TEST_EMULATED")) SKIP("the emulator knows no such limit");
  run_in_child(huge_request_fails);
}

/* Takes blocks of one size until NULL or a bound, checks and frees them; the heap must serve again afterwards. */
static void exhaust_and_recover(size_t size_bytes) {
  enum { CAPACITY = 4096 };
  static unsigned char *blocks[CAPACITY];
  for (int round = 0; round < 3; round++) {
    size_t count = 0;
    errno = 0;
    while (count < CAPACITY && (blocks[count] = (unsigned char *)hidden(malloc(size_bytes))) != NULL) {
      fill_pattern(blocks[count], 64, count);
      fill_pattern(blocks[count] + size_bytes - 64, 64, count + 1);
      count++;
    }
    CHECK_THAT(count == CAPACITY || errno == ENOMEM, "errno %d after %zu blocks", errno, count);
    CHECK_THAT(count * size_bytes >= 32 * MIB, "only %zu blocks of %zu bytes", count, size_bytes);
    for (size_t i = 0; i < count; i++) {
      CHECK(pattern_mismatch(blocks[i], 64, i) == 64);
      CHECK(pattern_mismatch(blocks[i] + size_bytes - 64, 64, i + 1) == 64);
      free(blocks[i]);
    }
  }
}

static void exhaust_large(void) {
  limit_address_space(128 * MIB);
  exhaust_and_recover(3 * MIB);
}

static void exhaust_runs(void) {
  limit_address_space(128 * MIB);
  exhaust_and_recover(100 * KIB);
}

static void exhaust_slabs(void) {
  limit_address_space(128 * MIB);
  exhaust_and_recover(16000);
}

/* ---- requests that are too large ---- */

static long faults(void) {
  struct rusage usage;
  REQUIRE(getrusage(RUSAGE_SELF, &usage) == 0);
  return usage.ru_minflt;
}

/* What fails between a program's usual blocks costs no page faults with these. */
static void fail_often(size_t size_bytes, const char *what) {
  enum { TURNS = 1000 };
  void *kept[64];
  for (size_t i = 0; i < COUNT_OF(kept); i++) kept[i] = memset(hidden(malloc(100 * KIB)), 1, 100 * KIB);
  long before = faults();
  for (int turn = 0; turn < TURNS; turn++) {
    CHECK_THAT(hidden(malloc(size_bytes - (size_t)turn)) == NULL, "malloc(%zu)", size_bytes - (size_t)turn);
    free(memset(hidden(malloc(64 * KIB)), 1, 64 * KIB));
    free(memset(hidden(malloc(3000)), 1, 3000));
    free(memset(hidden(malloc(2 * MIB)), 1, 64 * KIB));
  }
  long more = faults() - before;
  CHECK_THAT(more < 10 * TURNS, "%ld faults in %d requests of %s", more, TURNS, what);
  for (size_t i = 0; i < COUNT_OF(kept); i++) free(kept[i]);
}

static void probe_for_memory(void) {
  limit_address_space(256 * MIB);
  size_t most = 256 * MIB; /* that is served now */
  for (void *block; (block = hidden(malloc(most))) == NULL || (free(block), false);) most -= MIB;
  fail_often(2 * GIB, "2 GiB");
  fail_often(most + 2 * MIB, "a little more than there is");
}

TEST(requests_that_are_too_large_leave_memory_where_it_is) {
  if (getenv("TEST_EMULATED")) SKIP("the emulator knows no such limit");
  if (freed_blocks_wait()) SKIP("freed blocks are not used again at once");
  run_in_child(probe_for_memory);
}

/* After a request that failed, what is freed serves at once, with what is left of the limit. */
static void free_what_is_missing(void) {
  enum { BLOCKS = 900 };
  static void *blocks[BLOCKS];
  limit_address_space(128 * MIB);
  for (int turn = 0; turn < 5; turn++) {
    for (size_t i = 0; i < BLOCKS; i++) blocks[i] = memset(hidden(malloc(100 * KIB)), 1, 100 * KIB);
    for (int i = 0; i < 10; i++) CHECK(hidden(malloc(60 * MIB)) == NULL);
    for (size_t i = BLOCKS / 2; i < BLOCKS; i++) free(blocks[i]);
    void *large = hidden(malloc(60 * MIB));
    CHECK_THAT(large != NULL, "turn %d", turn);
    free(large);
    for (size_t i = 0; i < BLOCKS / 2; i++) free(blocks[i]);
    large = hidden(malloc(100 * MIB));
    CHECK_THAT(large != NULL, "turn %d", turn);
    free(large);
  }
}

TEST(what_is_freed_after_a_failed_request_serves_the_next_at_once) {
  if (getenv("TEST_EMULATED")) SKIP("the emulator knows no such limit");
  if (address_space_bytes() > 64 * GIB) SKIP("the heap was reserved before the limit, which does not count it");
  run_in_child(free_what_is_missing);
}

TEST(large_blocks_run_out_and_come_back) { run_in_child(exhaust_large); }
TEST(page_runs_run_out_and_come_back) { run_in_child(exhaust_runs); }
TEST(slab_blocks_run_out_and_come_back) { run_in_child(exhaust_slabs); }

static void limited_data_segment(void) {
  /* RLIMIT_DATA counts private writable memory since Linux 4.7. */
  struct rlimit limit = {64 * MIB, 64 * MIB};
  REQUIRE(setrlimit(RLIMIT_DATA, &limit) == 0);
  enum { CAPACITY = 2000 };
  static unsigned char *blocks[CAPACITY];
  size_t count = 0;
  errno = 0;
  while (count < CAPACITY && (blocks[count] = (unsigned char *)hidden(malloc(100 * KIB))) != NULL) {
    memset(blocks[count], 1, 100 * KIB);
    count++;
  }
  CHECK_THAT(count > 100 && count < CAPACITY && errno == ENOMEM, "%zu blocks of 100 KiB, errno %d", count, errno);
  for (size_t i = 0; i < count; i++) free(blocks[i]);
  void *again = hidden(malloc(10 * MIB));
  CHECK(again != NULL);
  free(again);
}

TEST(data_limit_is_met_with_null_not_with_a_signal) {
  if (getenv("TEST_EMULATED")) SKIP("the limit would be the emulator's");
  run_in_child(limited_data_segment);
}

/* ---- what others may have when a peak is over ---- */

enum { PEAK_BLOCKS = 140000, PEAK_BLOCK_BYTES = 1000 };

/* A peak of 140 MB under a limit of data, which is freed. */
static void have_a_peak(void) {
  static void *blocks[PEAK_BLOCKS];
  struct rlimit limit = {192 * MIB, 192 * MIB};
  REQUIRE(setrlimit(RLIMIT_DATA, &limit) == 0);
  for (size_t i = 0; i < PEAK_BLOCKS; i++) {
    blocks[i] = hidden(malloc(PEAK_BLOCK_BYTES));
    REQUIRE(blocks[i] != NULL);
    memset(blocks[i], 1, PEAK_BLOCK_BYTES);
  }
  for (size_t i = 0; i < PEAK_BLOCKS; i++) free(blocks[i]);
}

static bool others_can_map(size_t bytes) {
  void *mapping = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping == MAP_FAILED) return false;
  munmap(mapping, bytes);
  return true;
}

/* What idles in a program with libsnug-prefixed.a gives memory back by hand. */
#ifdef malloc
enum { WITHOUT_HELPER = 1 };
#else
enum { WITHOUT_HELPER = 0 };
#endif

static void map_after_trim(void) {
  have_a_peak();
  trim_heap();
  CHECK_THAT(others_can_map(100 * MIB), "errno %d", errno);
}

static void map_after_an_idle_moment(void) {
  have_a_peak();
  bool can = false;
  for (int i = 0; i < 100 && !can; i++) {
    sleep_ms(100);
    can = others_can_map(100 * MIB);
  }
  CHECK_THAT(can, "errno %d after ten seconds", errno);
}

/* The program never idles for long enough: ticks alone give back. */
static void map_while_little_is_done(void) {
  have_a_peak();
  bool can = false;
  for (int i = 0; i < 1000 && !can; i++) {
    void *some[100];
    for (size_t k = 0; k < COUNT_OF(some); k++) some[k] = memset(hidden(malloc(3000)), 1, 3000);
    for (size_t k = 0; k < COUNT_OF(some); k++) free(some[k]);
    sleep_ms(10);
    can = others_can_map(100 * MIB);
  }
  CHECK_THAT(can, "errno %d after ten seconds", errno);
}

TEST(after_a_peak_others_have_what_the_limit_of_data_allows) {
  if (getenv("TEST_EMULATED")) SKIP("the limit would be the emulator's");
  if (freed_blocks_wait()) SKIP("freed blocks count as live for a while");
  if (can_trim_heap()) run_in_child(map_after_trim);
  if (!WITHOUT_HELPER) run_in_child(map_after_an_idle_moment);
  run_in_child(map_while_little_is_done);
}

int main(int argc, char **argv) { return run_tests(argc, argv); }
