/* Stands before the allocator and calls it, as tools do that watch malloc: what is foreign to all must still end the
 * program with a message, rather than go to and fro. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdlib.h>

void free(void *block) {
  static void (*next)(void *);
  if (next == NULL) *(void **)&next = dlsym(RTLD_NEXT, "free");
  next(block);
}
