/* fast_paths.c: loops over the allocator's fast paths, to be run under callgrind (see `run`).
 *
 * Each operation is repeated COUNT times and then 2 * COUNT times, and callgrind dumps its counters after each: the
 * difference, divided by COUNT, is what one repetition costs without start-up, warm-up and loop set-up. Functions are
 * called through pointers found at run time, so that one program serves every allocator, whatever it exports; an
 * operation that it lacks is left out. The loop around them costs the same everywhere and is measured too ("loop").
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <malloc.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <valgrind/callgrind.h>

#define COUNT 20000
#define WARM_UP 5000
#define BURST 500

/* Called through volatile pointers: the compiler may neither inline nor leave out a pair of malloc and free. */
static void *(*volatile allocate)(size_t);
static void *(*volatile allocate_zeroed)(size_t, size_t);
static void *(*volatile reallocate)(void *, size_t);
static void (*volatile release)(void *);
static void (*volatile release_sized)(void *, size_t);

static size_t size_bytes;
static volatile size_t usable_bytes;
static char *block;
static void *burst[BURST];

/* Together 3 instructions on every machine, which `run` adds back: the loop without them is the calls' overhead. */
static void *allocate_nothing(size_t size) { return (void)size, NULL; }
static void release_nothing(void *pointer) { (void)pointer; }

static void allocate_and_release(long count) {
  for (long i = 0; i < count; i++) {
    release(allocate(size_bytes));
  }
}

static void allocate_zeroed_and_release(long count) {
  for (long i = 0; i < count; i++) {
    release(allocate_zeroed(1, size_bytes));
  }
}

static void allocate_ask_and_release(long count) {
  for (long i = 0; i < count; i++) {
    void *asked = allocate(size_bytes);
    usable_bytes = malloc_usable_size(asked);
    release(asked);
  }
}

static void allocate_and_release_sized(long count) {
  for (long i = 0; i < count; i++) {
    release_sized(allocate(size_bytes), size_bytes);
  }
}

/* Grows and shrinks a block within its size class. */
static void reallocate_in_place(long count) {
  for (long i = 0; i < count; i++) {
    block = reallocate(block, size_bytes - (size_t)(i & 1));
  }
}

/* More blocks at a time than a cache holds at first: the cost of refilling and flushing, per block. */
static void allocate_bursts(long count) {
  for (long round = 0; round < count / BURST; round++) {
    for (int i = 0; i < BURST; i++) {
      burst[i] = allocate(size_bytes);
    }
    for (int i = 0; i < BURST; i++) {
      release(burst[i]);
    }
  }
}

/* Warms up, then repeats the operation COUNT and 2 * COUNT times; callgrind's dumps are labelled with the name. */
static void measure(const char *name, void (*operation)(long), size_t size) {
  size_bytes = size;
  operation(WARM_UP);
  CALLGRIND_ZERO_STATS;
  operation(COUNT);
  CALLGRIND_DUMP_STATS_AT("");
  operation(2 * COUNT);
  CALLGRIND_DUMP_STATS_AT("");
  printf("%s\n", name);
}

static bool find(void *function_pointer, const char *symbol) {
  void *address = dlsym(RTLD_DEFAULT, symbol);
  *(void **)function_pointer = address;
  return address != NULL;
}

static void measure_c(void) {
  allocate = malloc;
  release = free;
  measure("malloc+free 16", allocate_and_release, 16);
  measure("malloc+free 64", allocate_and_release, 64);
  measure("malloc+free 256", allocate_and_release, 256);
  measure("malloc+free 1024", allocate_and_release, 1024);
  measure("malloc+free 64, bursts of 500", allocate_bursts, 64);
  measure("malloc+malloc_usable_size+free 64", allocate_ask_and_release, 64);
  allocate_zeroed = calloc;
  measure("calloc+free 64", allocate_zeroed_and_release, 64);
  reallocate = realloc;
  block = malloc(64);
  measure("realloc within its class", reallocate_in_place, 64);
  free(block);
  if (find((void *)&release_sized, "free_sized")) {
    measure("malloc+free_sized 64", allocate_and_release_sized, 64);
  }
}

static void measure_cpp(void) {
  if (find((void *)&allocate, "_Znwm") && find((void *)&release, "_ZdlPv")) {
    measure("new+delete 64", allocate_and_release, 64);
    if (find((void *)&release_sized, "_ZdlPvm")) {
      measure("new+delete 64, sized", allocate_and_release_sized, 64);
    }
  }
}

int main(void) {
  setvbuf(stdout, NULL, _IOLBF, 4096);
  printf("repetitions %d\n", COUNT);
  allocate = allocate_nothing;
  release = release_nothing;
  measure("loop", allocate_and_release, 64);
  measure_c();
  measure_cpp();
  return 0;
}
