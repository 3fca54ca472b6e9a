/* stress.h: what the stress programs share: arguments, workers, and the workload.
 *
 * The workload: blocks of all sizes, each filled with a pattern, wander between threads through shared slots. Whoever
 * takes a block out of a slot owns it: checks its contents, then frees it, reallocates it or passes it on. A block in a
 * slot is therefore always wholly filled, also at the moment of a fork.
 *
 *      block of 1..15 bytes     | size | pattern of its address ...        its pointer is tagged with bit 0
 *      block of 16 bytes and up | size (8 bytes) | seed (8 bytes) | pattern of its seed ...
 *
 * Everything random comes from --seed; a failure prints it. With several threads the order of events is the
 * scheduler's, so a seed repeats the workload and makes the failure likely again, not certain.
 */
#ifndef SNUG_STRESS_H
#define SNUG_STRESS_H

#include "../support/test.h"

#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>

enum { SLOTS_MAX = 8192, THREADS_MAX = 256 };

struct stress_options {
  const char *program;
  uint64_t seed;
  double seconds;
  unsigned threads;
  const char *path; /* a library or file that some programs need */
};

static struct stress_options options;
static double stress_end_s; /* when to stop, by now_s() */

/* Ends the process with a message that says how to run it again. */
__attribute__((format(printf, 1, 2), noreturn)) static inline void stress_fail(const char *format, ...) {
  char what[512];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(what, sizeof what, format, arguments);
  va_end(arguments);
  test_print(2, "stress failure in process %d: %s\nrun again: %s --seed %llu --seconds %g --threads %u\n",
             (int)getpid(), what, options.program, (unsigned long long)options.seed, options.seconds, options.threads);
  abort();
}

#define STRESS_CHECK(condition, ...)            \
  do {                                          \
    if (!(condition)) stress_fail(__VA_ARGS__); \
  } while (0)

static inline void stress_usage(void) {
  test_print(2, "usage: %s [--seed N] [--seconds N] [--threads N] [--path FILE]\n", options.program);
  exit(2);
}

static inline void stress_begin(int argc, char **argv) {
  options = (struct stress_options){argv[0], (uint64_t)(now_s() * 1e6), 5, 4, NULL};
  for (int i = 1; i < argc; i += 2) {
    if (i + 1 == argc) stress_usage();
    if (strcmp(argv[i], "--seed") == 0)
      options.seed = strtoull(argv[i + 1], NULL, 0);
    else if (strcmp(argv[i], "--seconds") == 0)
      options.seconds = strtod(argv[i + 1], NULL);
    else if (strcmp(argv[i], "--threads") == 0)
      options.threads = (unsigned)strtoul(argv[i + 1], NULL, 0);
    else if (strcmp(argv[i], "--path") == 0)
      options.path = argv[i + 1];
    else
      stress_usage();
  }
  if (options.threads < 1 || options.threads > THREADS_MAX) stress_usage();
  stress_end_s = now_s() + options.seconds;
}

static inline int stress_goes_on(void) { return now_s() < stress_end_s; }

/* The metadata must be sound at the end, where the allocator can say so. */
TEST_C_LINKAGE size_t snug_check(void) __attribute__((weak));

static inline int stress_passed(const char *name) {
  if (snug_check != NULL) snug_check();
  test_print(1, "ok %s (seed %llu)\n", name, (unsigned long long)options.seed);
  return 0;
}

/* ---- blocks ---- */

static inline size_t block_size(uint64_t *random) {
  uint64_t kind = random_below(random, 1000);
  if (kind < 760) return 1 + random_below(random, 128);
  if (kind < 950) return (size_t)128 << random_below(random, 5) | random_below(random, 128);
  if (kind < 985) return 1 + random_below(random, (size_t)4 * KIB << random_below(random, 5));
  if (kind < 998) return 1 + random_below(random, MIB);
  return 1 + random_below(random, 4 * MIB);
}

/* Which bytes of a block carry the pattern: all of a small one, the begin of each page of a big one, and the end. */
static inline size_t pattern_step(size_t offset, size_t size_bytes) {
  if (size_bytes <= 16 * KIB || offset % 4096 < 32 || offset + 64 >= size_bytes) return 1;
  size_t to_next_page = 4096 - offset % 4096, to_tail = size_bytes - 64 - offset;
  return to_next_page < to_tail ? to_next_page : to_tail;
}

static inline void block_fill(unsigned char *block, size_t size_bytes, uint64_t seed) {
  if (size_bytes < 16) {
    block[0] = (unsigned char)size_bytes;
    for (size_t i = 1; i < size_bytes; i++) block[i] = pattern_byte((uintptr_t)block, i);
    return;
  }
  memcpy(block, &size_bytes, 8);
  memcpy(block + 8, &seed, 8);
  for (size_t i = 16; i < size_bytes; i += pattern_step(i, size_bytes)) block[i] = pattern_byte(seed, i);
}

/* A block and what its first bytes say about it, as it travels through a slot. */
struct parcel {
  unsigned char *block;
  size_t size_bytes;
  uint64_t seed;
};

static inline uintptr_t parcel_wrap(struct parcel parcel) { return (uintptr_t)parcel.block | (parcel.size_bytes < 16); }

static inline void parcel_check_first(const struct parcel *parcel, size_t count_bytes) {
  const unsigned char *block = parcel->block;
  uint64_t seed = parcel->size_bytes < 16 ? (uintptr_t)block : parcel->seed;
  for (size_t i = parcel->size_bytes < 16 ? 1 : 16; i < count_bytes; i += pattern_step(i, parcel->size_bytes))
    STRESS_CHECK(block[i] == pattern_byte(seed, i), "block %p of %zu bytes (seed 0x%llx) has 0x%02x at %zu, not 0x%02x",
                 (void *)block, parcel->size_bytes, (unsigned long long)seed, block[i], i, pattern_byte(seed, i));
}

/* Opens and checks what a slot held. */
static inline struct parcel parcel_open(uintptr_t wrapped) {
  struct parcel parcel = {(unsigned char *)(wrapped & ~(uintptr_t)1), 0, 0};
  if (wrapped & 1) {
    parcel.size_bytes = parcel.block[0];
    STRESS_CHECK(parcel.size_bytes > 0 && parcel.size_bytes < 16, "tiny block %p begins with 0x%02x",
                 (void *)parcel.block, parcel.block[0]);
  } else {
    memcpy(&parcel.size_bytes, parcel.block, 8);
    memcpy(&parcel.seed, parcel.block + 8, 8);
    STRESS_CHECK(parcel.size_bytes >= 16 && parcel.size_bytes <= 8 * MIB, "block %p begins with size %zu",
                 (void *)parcel.block, parcel.size_bytes);
  }
  parcel_check_first(&parcel, parcel.size_bytes);
  return parcel;
}

static inline struct parcel parcel_new(uint64_t *random) {
  struct parcel parcel = {NULL, block_size(random), random_next(random)};
  size_t alignment = 16;
  switch (random_below(random, 16)) {
    case 0:
      parcel.block = (unsigned char *)calloc(1, parcel.size_bytes);
      STRESS_CHECK(parcel.block == NULL || nonzero_offset(parcel.block, parcel.size_bytes) == parcel.size_bytes,
                   "calloc(1, %zu) = %p is not zero", parcel.size_bytes, (void *)parcel.block);
      break;
    case 1:
      alignment = (size_t)16 << random_below(random, 9);
      if (posix_memalign((void **)&parcel.block, alignment, parcel.size_bytes) != 0) parcel.block = NULL;
      break;
    default: parcel.block = (unsigned char *)malloc(parcel.size_bytes);
  }
  STRESS_CHECK(parcel.block != NULL, "no memory for %zu bytes", parcel.size_bytes);
  STRESS_CHECK((uintptr_t)parcel.block % (snug_is_active() ? alignment : 8) == 0, "%p is not aligned to %zu",
               (void *)parcel.block, alignment);
  block_fill(parcel.block, parcel.size_bytes, parcel.seed);
  return parcel;
}

/* Another size, sometimes within the block, sometimes far away; what must be kept is checked. */
static inline void parcel_resize(struct parcel *parcel, uint64_t *random) {
  size_t wanted =
      random_below(random, 2) ? block_size(random) : 1 + parcel->size_bytes * random_below(random, 300) / 150;
  /* A tiny block's pattern is that of its address, which may change: give it a seed of its own first. */
  struct parcel before = *parcel;
  unsigned char kept[16];
  memcpy(kept, before.block, before.size_bytes < 16 ? before.size_bytes : 16);
  if (wanted > 4 * MIB) wanted = 4 * MIB;
  unsigned char *moved = (unsigned char *)realloc(before.block, wanted);
  STRESS_CHECK(moved != NULL, "no memory for %zu bytes", wanted);
  size_t common = before.size_bytes < wanted ? before.size_bytes : wanted;
  STRESS_CHECK(memcmp(kept, moved, common < 16 ? common : 16) == 0, "realloc %zu -> %zu lost its first bytes",
               before.size_bytes, wanted);
  before.block = moved;
  if (before.size_bytes >= 16) parcel_check_first(&before, common);
  parcel->block = moved;
  parcel->size_bytes = wanted;
  parcel->seed = random_next(random);
  block_fill(moved, wanted, parcel->seed);
}

/* ---- the exchange ---- */

static _Atomic uintptr_t slots[SLOTS_MAX];

static inline void slot_put(size_t slot, struct parcel parcel) {
  uintptr_t displaced = atomic_exchange(&slots[slot], parcel_wrap(parcel));
  if (displaced != 0) free(parcel_open(displaced).block);
}

/* One step of one thread over the first `count` slots. */
static inline void exchange_step(uint64_t *random, size_t count) {
  size_t slot = random_below(random, count);
  uintptr_t taken = atomic_exchange(&slots[slot], 0);
  if (taken == 0) {
    slot_put(slot, parcel_new(random));
    return;
  }
  struct parcel parcel = parcel_open(taken);
  switch (random_below(random, 8)) {
    case 0:
    case 1: parcel_resize(&parcel, random); /* fall through */
    case 2: slot_put(random_below(random, count), parcel); break;
    default: free(parcel.block);
  }
}

/* Checks and frees all that lies in slots. */
static inline void exchange_drain(void) {
  for (size_t i = 0; i < SLOTS_MAX; i++) {
    uintptr_t taken = atomic_exchange(&slots[i], 0);
    if (taken != 0) free(parcel_open(taken).block);
  }
}

/* Starts `count` threads with arguments 0, 1, ... and waits for all. */
static inline void run_threads(void *(*body)(void *), unsigned count) {
  pthread_t threads[THREADS_MAX];
  for (unsigned i = 0; i < count; i++) {
    int error = pthread_create(&threads[i], NULL, body, (void *)(uintptr_t)i);
    STRESS_CHECK(error == 0, "pthread_create: error %d", error);
  }
  for (unsigned i = 0; i < count; i++) pthread_join(threads[i], NULL);
}

/* A stream of random numbers of its own for each thread of each process. */
static inline uint64_t stream_seed(uint64_t thread) {
  uint64_t state = options.seed ^ thread * 0x9e3779b97f4a7c15u;
  return random_next(&state);
}

#endif
