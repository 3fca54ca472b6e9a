/* mlockall: pages that must not leave memory. Giving them back fails (EINVAL), reserving counts against
 * RLIMIT_MEMLOCK, and what was purged without effect is not zero. The heap must stay right, and not lock the
 * whole reservation into memory, nor use up the limit of a program that drops its privileges. */
#include "../support/test.h"

#include <malloc.h>
#include <pthread.h>
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

/* ---- a heap that is small yet ---- */

enum { LIMIT_MIB = 64 };

/* Returns the limit. Containers may allow less. */
static size_t set_limit(void) {
  struct rlimit limit;
  REQUIRE(getrlimit(RLIMIT_MEMLOCK, &limit) == 0);
  if (limit.rlim_max > LIMIT_MIB * MIB) limit.rlim_max = LIMIT_MIB * MIB;
  limit.rlim_cur = limit.rlim_max;
  REQUIRE(setrlimit(RLIMIT_MEMLOCK, &limit) == 0);
  return limit.rlim_max;
}

static size_t locked_bytes(void) { return status_number("VmLck:") * KIB; }

static void *use_in_thread(void *argument) {
  void *block = hidden(malloc(10000));
  CHECK(block != NULL);
  free(block);
  return argument;
}

static void use_a_heap_of(size_t bytes) {
  enum { BLOCKS = 20000, BLOCK_BYTES = 1000 };
  static char *blocks[BLOCKS];
  size_t count = bytes / BLOCK_BYTES < BLOCKS ? bytes / BLOCK_BYTES : BLOCKS;
  for (size_t i = 0; i < count; i++) {
    blocks[i] = (char *)hidden(malloc(BLOCK_BYTES));
    REQUIRE(blocks[i] != NULL);
    blocks[i][BLOCK_BYTES - 1] = (char)i;
  }
  for (size_t i = 0; i < count; i++) CHECK(blocks[i][BLOCK_BYTES - 1] == (char)i);
  for (size_t i = 0; i < count; i++) free(blocks[i]);
}

/* As a daemon that locks itself into memory as root and then works as a user. */
static void work_as_user(size_t limit_bytes) {
  enum { STACK_BYTES = 256 * KIB };
  size_t locked = locked_bytes();
  CHECK_THAT(locked < 16 * MIB, "%zu MiB are locked", locked / MIB);
  REQUIRE(setgid(65534) == 0 && setuid(65534) == 0);
  if (locked + 2 * STACK_BYTES > limit_bytes) return; /* the program itself is that long */
  pthread_t thread;
  pthread_attr_t attributes;
  REQUIRE(pthread_attr_init(&attributes) == 0 && pthread_attr_setstacksize(&attributes, STACK_BYTES) == 0);
  int error = pthread_create(&thread, &attributes, use_in_thread, NULL);
  CHECK_THAT(error == 0, "pthread_create: error %d", error);
  if (error == 0) pthread_join(thread, NULL);
  if (limit_bytes - locked < 16 * MIB) return; /* the heap grows by 4 MiB */
  use_a_heap_of((limit_bytes - locked) / 2);
  fill_and_free();
}

static void lock_all_then_drop_root(void) {
  size_t limit_bytes = set_limit();
  REQUIRE(mlockall(MCL_CURRENT | MCL_FUTURE) == 0);
  work_as_user(limit_bytes);
}

TEST(locked_as_root_it_works_as_a_user) {
  if (getuid() != 0) SKIP("not root");
  run_in_child(lock_all_then_drop_root);
}

/* First without a limit, if there is none, so that all may stay reserved. */
static void limit_after_locking(void) {
  REQUIRE(mlockall(MCL_CURRENT | MCL_FUTURE) == 0);
  work_as_user(set_limit());
}

TEST(a_limit_may_come_later) {
  if (getuid() != 0) SKIP("not root");
  run_in_child(limit_after_locking);
}

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

static void lock_what_is_there_as_user(void) {
  size_t limit_bytes = set_limit();
  drop_capability_to_lock();
  bool done = mlockall(MCL_CURRENT) == 0;
  size_t mapped = address_space_bytes();
  CHECK_THAT(done || mapped > limit_bytes, "errno %d, %zu KiB are mapped", errno, mapped / KIB);
  CHECK_THAT(mapped < 16 * MIB, "%zu MiB are mapped", mapped / MIB);
  fill_and_free();
}

TEST(a_user_may_lock_what_is_there) { run_in_child(lock_what_is_there_as_user); }

/* ---- and one that has grown ---- */

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
