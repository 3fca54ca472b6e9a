/* A program whose memory leaks, bloats, fragments or settles, for the tests of `snug leak`.
 *
 *   behaves leaks|bloats|fragments|settles SEED SECONDS [workers]
 *
 * Everything else about it is drawn from SEED: how much it keeps, how it warms up, how much garbage it collects at a
 * time, whether it works in bursts. It works in ticks of 2 ms. With `workers` it forks two, each of which is replaced
 * after a fifth of the time. */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { CACHE_BLOCKS = 1 << 16, GARBAGE_BLOCKS = 1 << 14 };

static uint64_t state;

static uint64_t random_bits(void) { /* SplitMix64 */
  uint64_t z = state += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

static double between(double low, double high) {
  return low + (high - low) * (double)(random_bits() >> 11) / (double)(1ull << 53);
}

static double now_s(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static void *filled(size_t size_bytes) {
  void *block = malloc(size_bytes);
  if (block == NULL) abort();
  return memset(block, 1, size_bytes);
}

/* What is freed all at once, as a garbage collector does. */
struct garbage {
  void *blocks[GARBAGE_BLOCKS];
  size_t count, bytes, limit_bytes;
};

static void litter(struct garbage *garbage, size_t size_bytes) {
  if (garbage->count == GARBAGE_BLOCKS || garbage->bytes + size_bytes > garbage->limit_bytes) {
    while (garbage->count > 0) free(garbage->blocks[--garbage->count]);
    garbage->bytes = 0;
    garbage->limit_bytes = (size_t)((double)garbage->limit_bytes * between(0.9, 1.1));
  }
  garbage->bytes += size_bytes;
  garbage->blocks[garbage->count++] = filled(size_bytes);
}

/* Blocks of one size, of which one per page is kept: almost all memory stays, almost nothing is live. */
static size_t pin_pages(size_t size_bytes, size_t bytes) {
  size_t count = bytes / size_bytes, per_page = 4096 / size_bytes, kept_bytes = 0;
  void **blocks = filled(count * sizeof(void *));
  for (size_t i = 0; i < count; i++) blocks[i] = filled(size_bytes);
  for (size_t i = 0; i < count; i++) {
    if (i % per_page == 0)
      kept_bytes += size_bytes;
    else
      free(blocks[i]);
  }
  free(blocks);
  return kept_bytes;
}

static void behave(const char *how, double seconds) {
  static void *cache[CACHE_BLOCKS];
  static struct garbage garbage;
  int leaks = strcmp(how, "leaks") == 0, bloats = strcmp(how, "bloats") == 0;
  double begin = now_s(), base_bytes = between(8e6, 24e6), warm_up_s = seconds * between(0.02, 0.12);
  double leak_bytes = leaks ? base_bytes * between(0.3, 2.0) : 0, burst = between(0, 0.02), leaked = 0;
  size_t cache_blocks = (size_t)(base_bytes / 600), ballast_bytes = 6u << 20, pinned = 0;
  char *ballast = filled(ballast_bytes);
  garbage.limit_bytes = (size_t)(base_bytes * between(0.02, 0.25));
  if (cache_blocks > CACHE_BLOCKS) cache_blocks = CACHE_BLOCKS;
  if (strcmp(how, "fragments") == 0) pin_pages(64, (size_t)(base_bytes * between(2.5, 5)));
  for (double passed = 0; passed < seconds; passed = now_s() - begin) {
    /* The cache fills evenly during the warm-up, then what is new replaces what is old. */
    size_t full = passed < warm_up_s ? (size_t)((double)cache_blocks * passed / warm_up_s) : cache_blocks;
    for (size_t i = 0; i < full; i++) {
      if (cache[i] != NULL && random_bits() % 256 != 0) continue;
      free(cache[i]);
      cache[i] = filled(200 + random_bits() % 800);
    }
    for (int i = 0; i < 40; i++) litter(&garbage, 64 + random_bits() % 4000);
    for (; leaked < leak_bytes * passed / seconds; leaked += 1000) filled(500 + random_bits() % 1000);
    /* 40 sizes, each in pages of its own; the ballast shrinks by what is kept of them. */
    for (; bloats && (double)pinned < 40 * passed / seconds; pinned++) {
      size_t kept_bytes = pin_pages(16 * (pinned % 40 + 2), (size_t)(base_bytes * 0.05));
      if (ballast_bytes > 2 * kept_bytes) ballast = realloc(ballast, ballast_bytes -= kept_bytes);
    }
    if (between(0, 1) < burst) {
      void *request = filled((size_t)(base_bytes * between(0.05, 0.5)));
      usleep(4000);
      free(request);
    }
    usleep(2000);
  }
  free(ballast);
}

int main(int count, char **arguments) {
  if (count < 4) return fprintf(stderr, "usage: behaves HOW SEED SECONDS [workers]\n"), 2;
  state = strtoull(arguments[2], NULL, 10) * 7919 + 1;
  double seconds = atof(arguments[3]), begin = now_s();
  if (count == 4) return behave(arguments[1], seconds), 0;
  for (int generation = 0; now_s() - begin < seconds * 0.95; generation++) {
    for (int worker = 0; worker < 2; worker++) {
      if (fork() == 0) {
        behave(arguments[1], seconds / 5);
        _exit(0);
      }
    }
    while (wait(NULL) > 0) continue;
  }
  return 0;
}
