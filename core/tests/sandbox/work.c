/* work: blocks of all sizes from one or several threads, a second of quiet, the same again, a child that does so, too.
 * A program that lives under the C library's own malloc must live here: system calls beyond those of malloc are kept to
 * what the options ask for.
 *
 *   work [--rules FILE [--by prctl|syscall|none]] [--cold] [--threads N] [--fork]
 *
 * With --rules the program enters that sandbox (rules.h) itself: after it has worked for a while, or, with --cold,
 * before it does anything else. getppid marks that moment for those who trace us. Status 0, and nothing is printed. */
#include "rules.h"

#include <pthread.h>

enum { BLOCKS = 3000, BLOCK_BYTES = 9000, MIXED = 2000, QUIET_MS = 1000 };

static void fail(int status) { _exit(status); }

static void *block_of(size_t size_bytes) {
  unsigned char *block = (unsigned char *)hidden(malloc(size_bytes));
  if (block == NULL) fail(3);
  for (size_t i = 0; i < size_bytes; i += 512) block[i] = (unsigned char)(size_bytes + i);
  return block;
}

static void give(void *pointer, size_t size_bytes) {
  const unsigned char *block = (const unsigned char *)pointer;
  for (size_t i = 0; i < size_bytes; i += 512)
    if (block[i] != (unsigned char)(size_bytes + i)) fail(4);
  free(pointer);
}

static size_t mixed_size(uint64_t *seed) {
  static const size_t largest[] = {64, 1000, 9000, 30000, 200000, 900000, 3000000};
  size_t kind = random_below(seed, 100);
  return 1 + random_below(seed, largest[kind < 50   ? 0
                                        : kind < 80 ? 1
                                        : kind < 92 ? 2
                                        : kind < 96 ? 3
                                        : kind < 98 ? 4
                                                    : kind - 93]);
}

static void use_heap(uint64_t seed) {
  static __thread void *blocks[BLOCKS];
  static __thread size_t sizes[64];
  for (size_t i = 0; i < BLOCKS; i++) blocks[i] = block_of(BLOCK_BYTES);
  for (size_t i = 0; i < BLOCKS; i++) give(blocks[i], BLOCK_BYTES);
  memset(blocks, 0, sizeof blocks);
  for (size_t i = 0; i < MIXED; i++) {
    size_t slot = random_below(&seed, COUNT_OF(sizes));
    if (blocks[slot] != NULL) give(blocks[slot], sizes[slot]);
    sizes[slot] = mixed_size(&seed);
    blocks[slot] = block_of(sizes[slot]);
    if (i % 50 == 0) {
      blocks[slot] = hidden(realloc(blocks[slot], sizes[slot] * 3));
      if (blocks[slot] == NULL) fail(3);
    }
  }
  for (size_t i = 0; i < COUNT_OF(sizes); i++) free(blocks[i]);
  for (size_t i = 0; i < 300; i++) {
    void *first = block_of(40000);
    void *second = block_of(40000);
    give(first, 40000);
    give(second, 40000);
  }
}

static void *run_thread(void *argument) {
  use_heap((uintptr_t)argument);
  return NULL;
}

static void work(unsigned threads) {
  pthread_t others[16];
  for (unsigned i = 1; i < threads; i++)
    if (pthread_create(&others[i], NULL, run_thread, (void *)(uintptr_t)i) != 0) fail(5);
  use_heap(99);
  for (unsigned i = 1; i < threads; i++) pthread_join(others[i], NULL);
}

static void work_in_child(unsigned threads) {
  pid_t child = fork();
  if (child < 0) fail(6);
  if (child == 0) {
    work(threads);
    _exit(0);
  }
  int status = 0;
  if (waitpid(child, &status, 0) != child) fail(7);
  if (WIFSIGNALED(status)) {
    kill(getpid(), WTERMSIG(status)); /* for our caller to see */
    fail(8);
  }
  if (status != 0) fail(9);
}

int main(int argc, char **argv) {
  const char *rules = NULL, *by = "prctl";
  unsigned threads = 1;
  bool cold = false, forks = false;
  for (int i = 1; i < argc; i++) {
    if (strcmp(argv[i], "--rules") == 0 && i + 1 < argc) {
      rules = argv[++i];
    } else if (strcmp(argv[i], "--by") == 0 && i + 1 < argc) {
      by = argv[++i];
    } else if (strcmp(argv[i], "--threads") == 0 && i + 1 < argc) {
      threads = (unsigned)atoi(argv[++i]);
    } else if (strcmp(argv[i], "--cold") == 0) {
      cold = true;
    } else if (strcmp(argv[i], "--fork") == 0) {
      forks = true;
    } else {
      return 2;
    }
  }
  if (threads < 1 || threads > 16) return 2;
  if (rules != NULL) rules_read(rules);
  if (!cold) work(threads);
  getppid();
  if (rules != NULL) rules_apply(by);
  work(threads);
  sleep_ms(QUIET_MS);
  work(threads);
  if (forks) work_in_child(threads);
  return 0;
}
