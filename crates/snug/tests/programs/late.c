/* A library to preload: allocates when all others have run their exit handlers, as late destructors do. */
#include <stdlib.h>
#include <string.h>

enum { BLOCKS = 20000, BYTES = 800 };

static void allocate(void) {
  static void *kept[64];
  for (int i = 0; i < BLOCKS; i++) {
    free(kept[i % 64]);
    kept[i % 64] = memset(malloc(BYTES), 1, BYTES);
  }
}

__attribute__((destructor)) static void end(void) { allocate(); }

__attribute__((constructor)) static void begin(void) {
  allocate();
  atexit(allocate);
}
