/* A library that allocates in constructors, destructors and exit handlers is opened and closed again and again while
 * other threads allocate; --path names it. */
#include "stress.h"

#include <dlfcn.h>

static atomic_ullong openings;

static void *open_and_close(void *argument) {
  uint64_t random = stream_seed((uintptr_t)argument);
  while (stress_goes_on()) {
    void *library = dlopen(options.path, random_below(&random, 2) ? RTLD_NOW : RTLD_LAZY);
    STRESS_CHECK(library != NULL, "dlopen: %s", dlerror());
    unsigned char *(*work)(size_t);
    *(void **)&work = dlsym(library, "plugin_work");
    STRESS_CHECK(work != NULL, "dlsym: %s", dlerror());
    /* plugin_work is not made for two threads at once, and two may have the library open. */
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&lock);
    size_t size = 1 + random_below(&random, 50000);
    unsigned char *given = work(size);
    pthread_mutex_unlock(&lock);
    STRESS_CHECK(given != NULL && given[0] == given[size - 1], "a block of %zu bytes from the library", size);
    if (random_below(&random, 2)) free(given), given = NULL;
    STRESS_CHECK(dlclose(library) == 0, "dlclose: %s", dlerror());
    free(given);
    atomic_fetch_add(&openings, 1);
    for (int step = 0; step < 100; step++) exchange_step(&random, 1024);
  }
  return NULL;
}

static void *exchange(void *argument) {
  uint64_t random = stream_seed(100 + (uintptr_t)argument);
  while (stress_goes_on())
    for (int step = 0; step < 100; step++) exchange_step(&random, 1024);
  return NULL;
}

static void *open_or_exchange(void *argument) {
  return (uintptr_t)argument % 2 == 0 ? open_and_close(argument) : exchange(argument);
}

int main(int argc, char **argv) {
  stress_begin(argc, argv);
  if (options.path == NULL) stress_usage();
  run_threads(open_or_exchange, options.threads);
  exchange_drain();
  test_print(2, "dlopen_loop: %llu openings\n", (unsigned long long)openings);
  return stress_passed("dlopen_loop");
}
