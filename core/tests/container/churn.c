/* Keeps about 100 MB live in blocks of random sizes up to 40 KB while two threads replace them at random: what a heap
 * collects in free pages meanwhile would exceed a container's limit of 152 MB. Prints "done". */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 2, BLOCKS = 2700, REPLACEMENTS = 400000, SIZE_MAX_BYTES = 40000 };

static void *replace_blocks(void *argument) {
  char *blocks[BLOCKS] = {NULL};
  unsigned random = (unsigned)(size_t)argument;
  for (int i = 0; i < REPLACEMENTS; i++) {
    random = random * 1103515245 + 12345;
    size_t slot = (random >> 8) % BLOCKS, size_bytes = (random >> 4) % SIZE_MAX_BYTES + 1;
    free(blocks[slot]);
    blocks[slot] = malloc(size_bytes);
    if (blocks[slot] == NULL) {
      puts("malloc returned NULL");
      exit(1);
    }
    memset(blocks[slot], 1, size_bytes);
  }
  return NULL;
}

int main(void) {
  pthread_t threads[THREADS];
  for (size_t i = 0; i < THREADS; i++) {
    if (pthread_create(&threads[i], NULL, replace_blocks, (void *)(i + 1)) != 0) return 1;
  }
  for (size_t i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  puts("done");
  return 0;
}
