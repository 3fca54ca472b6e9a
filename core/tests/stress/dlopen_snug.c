/* libsnug.so itself opened by dlopen, in a program that runs on another allocator: its thread-local storage must fit
 * into what is left, and its heap must work beside the program's. --path names the library. */
#include "stress.h"

#include <dlfcn.h>

static void *(*their_malloc)(size_t);
static void *(*their_realloc)(void *, size_t);
static void (*their_free)(void *);

static void *use_their_heap(void *argument) {
  uint64_t random = stream_seed((uintptr_t)argument);
  struct parcel kept[256] = {{0}};
  while (stress_goes_on()) {
    for (int step = 0; step < 1000; step++) {
      struct parcel *parcel = &kept[random_below(&random, COUNT_OF(kept))];
      if (parcel->block != NULL) their_free(parcel_open(parcel_wrap(*parcel)).block);
      parcel->size_bytes = block_size(&random);
      parcel->seed = random_next(&random);
      parcel->block = their_malloc(parcel->size_bytes);
      STRESS_CHECK(parcel->block != NULL, "no memory for %zu bytes", parcel->size_bytes);
      block_fill(parcel->block, parcel->size_bytes, parcel->seed);
      if (step % 8 == 0) {
        parcel->block = their_realloc(parcel->block, parcel->size_bytes + 100);
        STRESS_CHECK(parcel->block != NULL, "no memory");
        block_fill(parcel->block, parcel->size_bytes, parcel->seed); /* a tiny block's pattern is its address's */
      }
      exchange_step(&random, 1024); /* the program's own heap */
    }
  }
  for (size_t i = 0; i < COUNT_OF(kept); i++)
    if (kept[i].block != NULL) their_free(parcel_open(parcel_wrap(kept[i])).block);
  return NULL;
}

/* musl keeps no room for thread-local variables of libraries opened late: it says so, and the program goes on. */
static bool libc_refuses(void) {
  const char *why = dlopen(options.path, RTLD_NOW | RTLD_LOCAL) == NULL ? dlerror() : "";
  return strstr(why, "initial-exec TLS") != NULL;
}

int main(int argc, char **argv) {
  stress_begin(argc, argv);
  if (options.path == NULL) stress_usage();
  if (dlsym(RTLD_DEFAULT, "gnu_get_libc_version") == NULL) {
    STRESS_CHECK(libc_refuses(), "musl opened it");
    free(malloc(100));
    return stress_passed("dlopen_snug");
  }
  for (int round = 0; round < 50; round++) {
    void *library = dlopen(options.path, RTLD_NOW | RTLD_LOCAL);
    STRESS_CHECK(library != NULL, "dlopen: %s", dlerror());
    *(void **)&their_malloc = dlsym(library, "malloc");
    *(void **)&their_realloc = dlsym(library, "realloc");
    *(void **)&their_free = dlsym(library, "free");
    STRESS_CHECK(their_malloc != NULL && their_realloc != NULL && their_free != NULL, "dlsym: %s", dlerror());
    STRESS_CHECK(their_malloc != malloc, "the program itself runs on %s", options.path);
    their_free(their_malloc(100));
    if (round < 49) dlclose(library);
  }
  run_threads(use_their_heap, options.threads);
  exchange_drain();
  return stress_passed("dlopen_snug");
}
