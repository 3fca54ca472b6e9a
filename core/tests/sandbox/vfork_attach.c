/* vfork_attach: a vfork child is the first to allocate in its thread, whose memory it shares. What it set up for "its"
 * thread is the parent thread's afterwards, although the child's id, under which it may have noted it, is nobody's. If
 * that is taken back as a vanished thread's and given to another, two threads use one cache. */
#include "../support/test.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/syscall.h>

enum { THREADS = 12, ROUNDS = 6, BLOCKS = 200, TURNS = 3000 };

static atomic_uint stage;

static void reach(unsigned wanted) {
  while (atomic_load(&stage) < wanted) usleep(1000);
}

/* Whatever two threads both think of as theirs shows here. */
static void use_heap(uint64_t seed) {
  unsigned char *blocks[BLOCKS] = {NULL};
  size_t sizes[BLOCKS] = {0};
  for (int i = 0; i < TURNS; i++) {
    size_t slot = random_below(&seed, BLOCKS);
    if (blocks[slot] != NULL) {
      REQUIRE(pattern_mismatch(blocks[slot], sizes[slot], (uintptr_t)blocks + slot) == sizes[slot]);
      free(blocks[slot]);
    }
    sizes[slot] = 1 + random_below(&seed, 600);
    blocks[slot] = (unsigned char *)hidden(malloc(sizes[slot]));
    REQUIRE(blocks[slot] != NULL);
    fill_pattern(blocks[slot], sizes[slot], (uintptr_t)blocks + slot);
  }
  for (size_t i = 0; i < BLOCKS; i++) free(blocks[i]);
}

static void *vfork_first(void *argument) {
  pid_t child = vfork();
  if (child == 0) {
    for (size_t i = 1; i < 300; i++) free(hidden(malloc(i * 3)));
    _exit(0);
  }
  REQUIRE(child > 0);
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child && status == 0);
  reach(1);
  use_heap((uintptr_t)argument);
  return NULL;
}

static void *come_later(void *argument) {
  use_heap((uintptr_t)argument);
  return NULL;
}

/* Slow calls for some ticks, so that caches of threads that are gone are looked for. */
static void let_ticks_pass(void) {
  for (double end_s = now_s() + 0.5; now_s() < end_s;) {
    for (int i = 0; i < 200; i++) {
      void *blocks[50];
      for (size_t j = 0; j < COUNT_OF(blocks); j++) blocks[j] = hidden(malloc(9000));
      for (size_t j = 0; j < COUNT_OF(blocks); j++) free(blocks[j]);
    }
  }
}

TEST(first_allocation_in_a_vfork_child) {
  for (unsigned round = 0; round < ROUNDS; round++) {
    pthread_t first[THREADS], later[THREADS];
    atomic_store(&stage, 0);
    for (uintptr_t i = 0; i < THREADS; i++) REQUIRE(pthread_create(&first[i], NULL, vfork_first, (void *)(i + 1)) == 0);
    let_ticks_pass();
    for (uintptr_t i = 0; i < THREADS; i++) REQUIRE(pthread_create(&later[i], NULL, come_later, (void *)(i + 99)) == 0);
    atomic_store(&stage, 1);
    for (size_t i = 0; i < THREADS; i++) pthread_join(first[i], NULL);
    for (size_t i = 0; i < THREADS; i++) pthread_join(later[i], NULL);
  }
}

int main(int argc, char **argv) { return run_tests(argc, argv); }
