/* The guarantees between threads that every drop-in must give: any thread may free any block, also after its
 * allocating thread has ended, and what a thread reads in a block is what another wrote there. */
#include "../support/test.h"

#include <malloc.h>
#include <pthread.h>
#include <sys/mman.h>

enum { BLOCKS = 20000 };
static unsigned char *blocks[BLOCKS];

static size_t size_of(size_t i) { return i % 200 == 3 ? 200 * KIB : 1 + i * 37 % 3000; }

static void *allocate_all(void *argument) {
  (void)argument;
  for (size_t i = 0; i < BLOCKS; i++) {
    blocks[i] = (unsigned char *)hidden(malloc(size_of(i)));
    REQUIRE(blocks[i] != NULL);
    fill_pattern(blocks[i], size_of(i), i);
  }
  return NULL;
}

static void *check_and_free_all(void *argument) {
  (void)argument;
  for (size_t i = 0; i < BLOCKS; i++) {
    CHECK_THAT(pattern_mismatch(blocks[i], size_of(i), i) == size_of(i), "block %zu of %zu bytes", i, size_of(i));
    free(blocks[i]);
  }
  return NULL;
}

static void *grow_all(void *argument) {
  (void)argument;
  for (size_t i = 0; i < BLOCKS; i++) {
    blocks[i] = (unsigned char *)hidden(realloc(blocks[i], size_of(i) * 2));
    REQUIRE(blocks[i] != NULL);
  }
  return NULL;
}

static void run_thread(void *(*body)(void *)) {
  pthread_t thread;
  REQUIRE(pthread_create(&thread, NULL, body, NULL) == 0);
  REQUIRE(pthread_join(thread, NULL) == 0);
}

TEST(blocks_outlive_their_thread) {
  run_thread(allocate_all);
  check_and_free_all(NULL);
}

TEST(any_thread_may_free) {
  allocate_all(NULL);
  run_thread(check_and_free_all);
}

TEST(any_thread_may_realloc) {
  for (int round = 0; round < 3; round++) {
    run_thread(allocate_all);
    run_thread(grow_all);
    run_thread(check_and_free_all);
  }
}

TEST(a_chain_of_threads_does_not_grow_the_heap) {
  run_thread(allocate_all);
  run_thread(check_and_free_all);
  size_t before = resident_bytes();
  for (int round = 0; round < 30; round++) {
    run_thread(allocate_all);
    run_thread(check_and_free_all);
  }
  size_t after = resident_bytes();
  CHECK_THAT(after < before + 40 * MIB, "resident %zu -> %zu KiB over 30 rounds of 50 MB", before / KIB, after / KIB);
}

enum { STACK_BYTES = 256 * 1024, GUARD_BYTES = 64 * 1024, STACK_LEFT_BYTES = 8 * 1024, SMALL_STACK_MS = 1300 };

/* What lies below is out of bounds: an overflow ends the program. */
static char *small_stack;

static __attribute__((noinline)) void allocate_for_a_while(void) {
  static void *some[200];
  for (double end_s = now_s() + SMALL_STACK_MS * 1e-3; now_s() < end_s;) {
    for (size_t i = 0; i < COUNT_OF(some); i++) some[i] = hidden(malloc(size_of(i * 100 + 3)));
    for (size_t i = 0; i < COUNT_OF(some); i++) free(some[i]);
  }
}

static void *leave_little_stack(void *argument) {
  size_t room = (size_t)((char *)__builtin_frame_address(0) - small_stack);
  REQUIRE(room > STACK_LEFT_BYTES);
  hidden(__builtin_alloca(room - STACK_LEFT_BYTES));
  allocate_for_a_while();
  return argument;
}

/* Housekeeping, of which the rarest comes once a second, runs on the stacks of the program's threads; coroutines and
 * helper threads have little. */
TEST(a_small_stack_suffices) {
  char *region = (char *)mmap(NULL, GUARD_BYTES + STACK_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(region != MAP_FAILED);
  small_stack = region + GUARD_BYTES;
  REQUIRE(mprotect(small_stack, STACK_BYTES, PROT_READ | PROT_WRITE) == 0);
  pthread_attr_t attributes;
  pthread_t thread;
  pthread_attr_init(&attributes);
  REQUIRE(pthread_attr_setstack(&attributes, small_stack, STACK_BYTES) == 0);
  REQUIRE(pthread_create(&thread, &attributes, leave_little_stack, NULL) == 0);
  pthread_join(thread, NULL);
  munmap(region, GUARD_BYTES + STACK_BYTES);
}

int main(int argc, char **argv) { return run_tests(argc, argv); }
