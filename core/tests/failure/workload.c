/* The workload of the failure injection: small blocks, page runs, large ones, growth, aligned ones, threads, a fork,
 * malloc_trim, and with --pause idle times, in which the allocator gives memory back.
 * Any allocation may fail with ENOMEM. What was allocated keeps its contents, and when the failures are over (one call
 * of many fails) the heap serves again: with --recovers the last phase must succeed. */
#include "../support/test.h"

#include <malloc.h>
#include <pthread.h>
#include <sys/syscall.h>

enum { BLOCKS = 600 };

struct block {
  unsigned char *bytes;
  size_t size_bytes;
};

static struct block shared[BLOCKS];
static bool pauses, recovers;
static unsigned long refused;

static size_t size_of(uint64_t *random) {
  switch (random_below(random, 10)) {
    case 0: return 1 + random_below(random, 30000);
    case 1: return 33000 + random_below(random, 300000);
    case 2: return random_below(random, 6) == 0 ? MIB + random_below(random, 3 * MIB) : 5000;
    default: return 1 + random_below(random, 1500);
  }
}

static void must(bool condition, const char *what) {
  if (condition) return;
  test_print(2, "workload: %s (errno %d)\n", what, errno);
  _exit(1);
}

static void keep(struct block *block, unsigned char *bytes, size_t size_bytes, size_t identity) {
  if (bytes == NULL) {
    must(errno == ENOMEM, "a refused allocation left errno other than ENOMEM");
    __atomic_add_fetch(&refused, 1, __ATOMIC_RELAXED);
    return;
  }
  block->bytes = bytes;
  block->size_bytes = size_bytes;
  fill_pattern(bytes, size_bytes, identity);
}

static void check(const struct block *block, size_t size_bytes, size_t identity) {
  must(pattern_mismatch(block->bytes, size_bytes, identity) == size_bytes, "contents changed");
}

static void step(struct block *blocks, size_t i, uint64_t *random) {
  struct block *block = &blocks[i];
  size_t size = size_of(random);
  errno = 0;
  if (block->bytes == NULL) {
    void *bytes = NULL;
    switch (random_below(random, 4)) {
      case 0:
        bytes = calloc(1, size);
        must(bytes == NULL || nonzero_offset(bytes, size) == size, "calloc gave memory that is not zero");
        break;
      case 1:
        errno = posix_memalign(&bytes, (size_t)16 << random_below(random, 10), size);
        if (errno != 0) bytes = NULL;
        break;
      default: bytes = malloc(size);
    }
    keep(block, bytes, size, i);
    return;
  }
  check(block, block->size_bytes, i);
  if (random_below(random, 3) == 0) {
    unsigned char *bytes = realloc(block->bytes, size);
    if (bytes != NULL) {
      block->bytes = bytes;
      check(block, size < block->size_bytes ? size : block->size_bytes, i);
      keep(block, bytes, size, i);
    } else {
      must(errno == ENOMEM, "a refused realloc left errno other than ENOMEM");
      check(block, block->size_bytes, i);
    }
    return;
  }
  errno = 4321;
  free(block->bytes);
  must(errno == 4321, "free changed errno");
  block->bytes = NULL;
}

static void work(struct block *blocks, size_t count, uint64_t seed, int steps) {
  uint64_t random = seed;
  for (int i = 0; i < steps; i++) step(blocks, random_below(&random, count), &random);
}

static void release(struct block *blocks, size_t count) {
  for (size_t i = 0; i < count; i++) {
    if (blocks[i].bytes == NULL) continue;
    check(&blocks[i], blocks[i].size_bytes, i);
    free(blocks[i].bytes);
    blocks[i].bytes = NULL;
  }
}

static void *work_in_thread(void *argument) {
  struct block own[100] = {{0}};
  work(own, COUNT_OF(own), (uintptr_t)argument, 400);
  release(own, COUNT_OF(own));
  return NULL;
}

static void run_in_threads(void) {
  pthread_t threads[3];
  bool started[3];
  for (size_t i = 0; i < COUNT_OF(threads); i++)
    started[i] = pthread_create(&threads[i], NULL, work_in_thread, (void *)(i + 10)) == 0;
  work(shared, BLOCKS, 2, 400);
  for (size_t i = 0; i < COUNT_OF(threads); i++)
    if (started[i]) pthread_join(threads[i], NULL);
}

static void run_in_fork(void) {
  pid_t child = fork();
  if (child < 0) return;
  if (child == 0) {
    work(shared, BLOCKS, 3, 300);
    work_in_thread((void *)4);
    if (pauses) sleep_ms(700);
    work(shared, BLOCKS, 5, 200);
    release(shared, BLOCKS);
    _exit(0);
  }
  int status = 0;
  must(waitpid(child, &status, 0) == child, "waitpid failed");
  must(status == 0, "the child failed");
}

int main(int argc, char **argv) {
  for (int i = 1; i < argc; i++) {
    pauses |= strcmp(argv[i], "--pause") == 0;
    recovers |= strcmp(argv[i], "--recovers") == 0;
  }
  syscall(SYS_personality, 0xffffffffUL); /* counting begins */
  work(shared, BLOCKS, 1, 1500);
  run_in_threads();
  trim_heap();
  work(shared, BLOCKS, 6, 500);
  run_in_fork();
  if (pauses) {
    release(shared, BLOCKS / 2);
    sleep_ms(700);
  }
  work(shared, BLOCKS, 7, 500);
  release(shared, BLOCKS);
  trim_heap();
  unsigned long refused_before = refused;
  if (recovers) refused = 0;
  work(shared, BLOCKS, 8, 500);
  must(!recovers || refused == 0 || refused_before == 0, "the heap did not recover from one refusal");
  release(shared, BLOCKS);
  return 0;
}
