/* Frees what was never allocated; with --twice a block of 8 MB two times. */
#include <stdlib.h>

static char foreign[64];

static void *hidden(void *pointer) {
  __asm__ volatile("" : "+r"(pointer) : : "memory");
  return pointer;
}

int main(int argc, char **argv) {
  (void)argv;
  void *block = argc > 1 ? malloc(8000000) : foreign + 16;
  if (argc > 1) free(hidden(block));
  free(hidden(block));
  return 0;
}
