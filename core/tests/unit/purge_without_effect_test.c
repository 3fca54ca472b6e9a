/* purge_without_effect_test.c: the whole core where madvise(MADV_DONTNEED) succeeds and does nothing, as in qemu-user
 * before 7.1, or under a seccomp filter that says so: memory that was given back reads as it was; calloc is zero. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "../../src/sys.h"

#include <stdbool.h>
#include <sys/syscall.h>
#include "../../src/syscall_raw.h"

static long advices;

static long syscall_of_kernel(long number, long a, long b, long c, long d, long e, long f) {
  if (number != SYS_madvise) return syscall_raw(number, a, b, c, d, e, f);
  __atomic_fetch_add(&advices, 1, __ATOMIC_RELAXED);
  return 0;
}
#define syscall_raw syscall_of_kernel
#include "../../src/sys.c"
#undef syscall_raw
#include "above_sys.h"
#include "unit.h"

#include <pthread.h>

enum { ZEROED = 0x40, AT_64 = 6 }; /* flags of mallocx */
enum { SIZES = 400, LARGEST_BYTES = 5 * MIB, ROUNDS = 6 };

static void check_zero(const unsigned char *block, size_t size, int round) {
  REQUIRE(block != NULL);
  size_t offset = nonzero_offset(block, size);
  CHECK_THAT(offset == size, "byte %zu of %zu is not zero in round %d", offset, size, round);
}

/* All live at once, then all gone and given back, then again, so that later blocks lie where others were. */
static void fill_and_purge(void) {
  static size_t sizes[SIZES];
  static unsigned char *blocks[SIZES][3];
  size_t count = boundary_sizes(sizes, SIZES, LARGEST_BYTES);
  for (int round = 0; round < ROUNDS; round++) {
    for (size_t i = 0; i < count; i++) {
      size_t size = sizes[round % 2 == 0 ? i : count - 1 - i];
      blocks[i][0] = calloc(1, size);
      blocks[i][1] = mallocx(size + 1, ZEROED | AT_64);
      blocks[i][2] = rallocx(mallocx(size / 2 + 1, ZEROED), size + 1, ZEROED);
      check_zero(blocks[i][0], size, round);
      check_zero(blocks[i][1], size + 1, round);
      check_zero(blocks[i][2], size + 1, round);
      memset(blocks[i][0], 0xff, malloc_usable_size(blocks[i][0]));
      memset(blocks[i][1], 0xff, malloc_usable_size(blocks[i][1]));
      memset(blocks[i][2], 0xff, malloc_usable_size(blocks[i][2]));
    }
    for (size_t i = 0; i < count; i++) {
      for (size_t j = 0; j < 3; j++) free(blocks[i][j]);
      if (i % 16 == 0) tick_if_due(NULL, false);
    }
    snug_purge();
    snug_check();
  }
}

TEST(what_was_given_back_is_zeroed_by_hand) { fill_and_purge(); }

TEST(a_child_zeroes_by_hand) { run_in_child(fill_and_purge); }

static void *fill_in_thread(void *argument) {
  unsigned char *blocks[300];
  for (int round = 0; round < ROUNDS; round++) {
    for (size_t i = 0; i < COUNT_OF(blocks); i++) {
      check_zero(blocks[i] = calloc(i + 1, 333), (i + 1) * 333, round);
      memset(blocks[i], 0xff, (i + 1) * 333);
    }
    for (size_t i = 0; i < COUNT_OF(blocks); i++) free(blocks[i]);
    malloc_trim(0);
  }
  return argument;
}

TEST(threads_beside_the_helper_thread_zero_by_hand) {
  pthread_t threads[3];
  options.background = 1;
  for (size_t i = 0; i < COUNT_OF(threads); i++) REQUIRE(pthread_create(&threads[i], NULL, fill_in_thread, NULL) == 0);
  janitor_start();
  for (size_t i = 0; i < COUNT_OF(threads); i++) pthread_join(threads[i], NULL);
  if (!is_emulated()) sleep_ms(700); /* idle: it purges */
  fill_in_thread(NULL);
}

static void guard_all(void) {
  options.guard = 1;
  REQUIRE(guard_start());
  fill_in_thread(NULL);
}

TEST(guarded_blocks_are_zeroed_by_hand) { run_in_child(guard_all); }

TEST(pages_stay_dirty_where_nothing_goes) {
  void *blocks[100];
  for (size_t i = 0; i < COUNT_OF(blocks); i++) blocks[i] = memset(malloc(100 * KIB), 1, 100 * KIB);
  for (size_t i = 0; i < COUNT_OF(blocks); i++) free(blocks[i]);
  long before = advices;
  snug_purge();
  CHECK_THAT(pages_dirty() * PAGE_BYTES >= 5 * MIB, "%zu dirty pages", pages_dirty());
  CHECK_THAT(advices == before, "%ld calls without effect", advices - before);
}
