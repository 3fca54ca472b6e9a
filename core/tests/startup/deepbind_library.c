/* A library that frees what its program allocated, and the other way round. deepbind.c opens it with RTLD_DEEPBIND. */
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

char *made_early;

__attribute__((constructor)) static void begin(void) { made_early = strdup("made before dlopen returned"); }

void give(void *block) { free(block); }
void *grow(void *block, size_t size_bytes) { return realloc(block, size_bytes); }
size_t usable(void *block) { return malloc_usable_size(block); }

/* One block of each call that returns one. */
void *make(int way, size_t size_bytes) {
  void *block = NULL;
  switch (way) {
    case 0: return malloc(size_bytes);
    case 1: return calloc(1, size_bytes);
    case 2: return reallocarray(NULL, 1, size_bytes);
    case 3: return memalign(64, size_bytes);
    case 4: return aligned_alloc(64, (size_bytes + 63) / 64 * 64);
    case 5: return posix_memalign(&block, 4096, size_bytes) == 0 ? block : NULL;
    case 6: return valloc(size_bytes);
    case 7: return pvalloc(size_bytes);
    default: return NULL;
  }
}
