/* mlockall: pages that must not leave memory. Giving them back fails (EINVAL), reserving counts against
 * RLIMIT_MEMLOCK, and what was purged without effect is not zero. The heap must stay right, and not lock the
 * whole reservation into memory. */
#include "../support/test.h"

#include <malloc.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>

static void fill_and_free(void) {
  enum { COUNT = 2000 };
  static unsigned char *blocks[COUNT];
  for (int round = 0; round < 3; round++) {
    for (size_t i = 0; i < COUNT; i++) {
      size_t size = i % 100 == 0 ? 2 * MIB : 1 + i * 17;
      blocks[i] = (unsigned char *)hidden(calloc(1, size));
      if (blocks[i] == NULL) continue; /* a limit: allowed */
      CHECK_THAT(nonzero_offset(blocks[i], size) == size, "calloc(1, %zu) is not zero in round %d", size, round);
      memset(blocks[i], 0xff, size);
    }
    for (size_t i = 0; i < COUNT; i++) free(blocks[i]);
    trim_heap();
    if (round == 1) sleep_ms(600); /* idle: the allocator tries to give back */
  }
}

static void lock_all_as_root(void) {
  size_t before = resident_bytes();
  if (mlockall(MCL_CURRENT | MCL_FUTURE) != 0) SKIP("not allowed to lock memory");
  size_t locked = resident_bytes();
  CHECK_THAT(locked < before + 200 * MIB, "locking made %zu MiB resident", locked / MIB);
  fill_and_free();
  void *small = hidden(malloc(1000));
  CHECK(small != NULL);
  free(small);
  munlockall();
  fill_and_free();
}

TEST(everything_locked) { lock_all_as_root(); }

TEST(everything_locked_in_a_child) { run_in_child(lock_all_as_root); }

/* Without the capability the limit holds. Dropped by hand: no library for that is at hand. */
static void drop_capability_to_lock(void) {
  struct {
    uint32_t version;
    int pid;
  } header = {0x20080522, 0};
  struct {
    uint32_t effective, permitted, inheritable;
  } none[2] = {{0, 0, 0}, {0, 0, 0}};
  REQUIRE(syscall(SYS_capset, &header, none) == 0);
}

static void lock_under_a_limit(void) {
  struct rlimit limit;
  REQUIRE(getrlimit(RLIMIT_MEMLOCK, &limit) == 0);
  if (limit.rlim_max > 64 * MIB) limit.rlim_max = 64 * MIB;
  limit.rlim_cur = limit.rlim_max;
  REQUIRE(setrlimit(RLIMIT_MEMLOCK, &limit) == 0);
  drop_capability_to_lock();
  if (mlockall(MCL_FUTURE) != 0) return; /* refused: nothing is locked then, and that is right, too */
  unsigned char *small = (unsigned char *)hidden(malloc(1000));
  CHECK(small != NULL);
  errno = 0;
  unsigned char *large = (unsigned char *)hidden(malloc(512 * MIB));
  CHECK_THAT(large == NULL && errno == ENOMEM, "512 MiB under a lock limit: %p, errno %d", (void *)large, errno);
  fill_and_free();
  if (small != NULL) memset(small, 1, 1000);
  free(small);
}

TEST(future_locked_under_a_limit) { run_in_child(lock_under_a_limit); }

int main(int argc, char **argv) { return run_tests(argc, argv); }
