/* A thread frees a block twice and sleeps: both pointers lie in its cache, and the janitor, which empties the caches of
 * idle threads, is the first that can notice. It has none of libc's thread state and no files, and must still say it.
 */
#include "misuse.h"

static void *free_twice_and_sleep(void *block) {
  char *between = block_of(64);
  free(hidden(block));
  free(hidden(between));
  free(hidden(block));
  sleep_ms(3000);
  return NULL;
}

/* Gives the janitor something to do. */
static void fill_and_empty(void) {
  enum { BLOCKS = 9000, SIZE_BYTES = 3000 };
  static char *blocks[BLOCKS];
  for (size_t i = 0; i < BLOCKS; i++) blocks[i] = block_of(SIZE_BYTES);
  for (size_t i = 0; i < BLOCKS; i++) free(hidden(blocks[i]));
}

int main(void) {
  char *block = block_of(64);
  expect_double_free(block);
  pthread_t thread;
  fill_and_empty();
  REQUIRE(pthread_create(&thread, NULL, free_twice_and_sleep, block) == 0);
  fill_and_empty();
  pthread_join(thread, NULL);
  return 0;
}
