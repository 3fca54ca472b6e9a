/* Two threads free the same small block, each into its own cache, and end. */
#include "misuse.h"

static void *free_it(void *block) {
  free(hidden(block));
  return NULL;
}

int main(void) {
  keep_neighbours(100);
  char *block = block_of(100);
  keep_neighbours(100);
  expect_double_free(block);
  for (int i = 0; i < 2; i++) {
    pthread_t thread;
    REQUIRE(pthread_create(&thread, NULL, free_it, block) == 0);
    pthread_join(thread, NULL);
  }
  trim_heap();
  return 0;
}
