/* Allocates and frees from several threads, then prints how many bytes it keeps and sleeps.
 *
 *   keeps THREADS SEED
 *
 * Sizes go from a few bytes to some hundreds of KB, so that brk heap, arenas and mapped blocks all take part. */
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SLOTS = 4000, STEPS = 60000 };

static size_t kept_bytes;
static pthread_barrier_t done;

static size_t size_drawn(unsigned *seed) {
  switch (rand_r(seed) % 32) {
    case 0: return 100000 + (size_t)rand_r(seed) % 300000;
    case 1: return 4000 + (size_t)rand_r(seed) % 20000;
    default: return 1 + (size_t)rand_r(seed) % 1000;
  }
}

static void *work(void *argument) {
  unsigned seed = (unsigned)(size_t)argument;
  void **slots = calloc(SLOTS, sizeof(void *));
  for (int i = 0; i < STEPS; i++) {
    size_t slot = (size_t)rand_r(&seed) % SLOTS, size_bytes = size_drawn(&seed);
    free(slots[slot]);
    slots[slot] = rand_r(&seed) % 3 ? memset(malloc(size_bytes), 1, size_bytes) : NULL;
  }
  size_t bytes = malloc_usable_size(slots);
  for (int i = 0; i < SLOTS; i++) bytes += malloc_usable_size(slots[i]);
  __atomic_add_fetch(&kept_bytes, bytes, __ATOMIC_RELAXED);
  pthread_barrier_wait(&done);
  pause();
  return NULL;
}

int main(int argc, char **argv) {
  size_t threads = argc > 1 ? strtoul(argv[1], NULL, 10) : 1, seed = argc > 2 ? strtoul(argv[2], NULL, 10) : 1;
  pthread_barrier_init(&done, NULL, (unsigned)threads + 1);
  for (size_t i = 0; i < threads; i++) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, work, (void *)(seed * 1000 + i)) != 0) abort();
  }
  pthread_barrier_wait(&done);
  printf("%zu\n", kept_bytes);
  fflush(stdout);
  pause();
}
