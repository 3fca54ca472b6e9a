/* The start-up probe: allocates at every moment of a process's life at which it can, and ends with "ok". Built in all
 * linking forms: dynamic, static library, static executable; and without the library, to be preloaded.
 *
 *   relocation (IFUNC resolvers run) -> constructors by priority -> main -> threads, fork, its handlers
 *   -> exit handlers -> destructors by priority
 *
 * Says which allocator it met with --expect-snug (the one check that depends on it). */
#include "../support/test.h"

#include <malloc.h>
#include <pthread.h>
#include <spawn.h>

extern char **environ;

/* A block that stays from the first constructor until the last destructor. */
static unsigned char *oldest;
static unsigned stages;

static void use_heap(uint64_t seed) {
  unsigned char *blocks[64];
  size_t sizes[64];
  for (size_t i = 0; i < COUNT_OF(blocks); i++) {
    sizes[i] = (size_t)1 << random_below(&seed, i % 16 == 0 ? 21 : 14);
    blocks[i] = (unsigned char *)hidden(i % 3 == 0 ? calloc(1, sizes[i]) : malloc(sizes[i]));
    REQUIRE(blocks[i] != NULL);
    fill_pattern(blocks[i], sizes[i], i);
  }
  for (size_t i = 0; i < COUNT_OF(blocks); i += 2) {
    blocks[i] = (unsigned char *)hidden(realloc(blocks[i], sizes[i] * 2));
    REQUIRE(blocks[i] != NULL);
  }
  for (size_t i = 0; i < COUNT_OF(blocks); i++) {
    REQUIRE(pattern_mismatch(blocks[i], sizes[i], i) == sizes[i]);
    free(blocks[i]);
  }
  stages++;
}

#ifdef __GLIBC__
/* Enough indirect functions that relocation runs many resolvers, before and after libc's own. */
static int answer_42(void) { return 42; }
typedef int (*answer_function)(void);
__attribute__((used)) static answer_function resolve(void) { return answer_42; }
#define INDIRECT(n) static int indirect_##n(void) __attribute__((ifunc("resolve")))
INDIRECT(1);
INDIRECT(2);
INDIRECT(3);
INDIRECT(4);
static int indirect_sum(void) { return indirect_1() + indirect_2() + indirect_3() + indirect_4(); }
#else
static int indirect_sum(void) { return 168; }
#endif

static unsigned prepared, continued_in_parent, continued_in_child;

static void prepare(void) {
  prepared++;
  use_heap(21);
}
static void go_on_in_parent(void) {
  continued_in_parent++;
  use_heap(22);
}
static void go_on_in_child(void) {
  continued_in_child++;
  use_heap(23);
}

__attribute__((constructor(101))) static void construct_first(void) {
  /* Fork handlers that allocate, registered before anything was allocated by this program ... */
  REQUIRE(pthread_atfork(prepare, go_on_in_parent, go_on_in_child) == 0);
  oldest = (unsigned char *)hidden(malloc(5000));
  REQUIRE(oldest != NULL);
  fill_pattern(oldest, 5000, 5);
  use_heap(1);
}

__attribute__((constructor(200))) static void construct_second(void) { use_heap(2); }
__attribute__((constructor)) static void construct_last(void) { use_heap(3); }

__attribute__((destructor)) static void destruct_first(void) { use_heap(11); }

__attribute__((destructor(101))) static void destruct_last(void) {
  use_heap(12);
  REQUIRE(pattern_mismatch(oldest, 5000, 5) == 5000);
  free(oldest);
}

static void at_exit(void) {
  use_heap(10);
  void *left = hidden(malloc(100));
  REQUIRE(left != NULL);
}

static __thread unsigned char *thread_block;

static void *run_thread(void *argument) {
  thread_block = (unsigned char *)hidden(malloc(3000));
  REQUIRE(thread_block != NULL);
  use_heap((uintptr_t)argument);
  free(thread_block);
  return NULL;
}

static void start_threads(void) {
  pthread_t threads[4];
  for (size_t i = 0; i < COUNT_OF(threads); i++)
    if (pthread_create(&threads[i], NULL, run_thread, (void *)(i + 30)) != 0) threads[i] = pthread_self();
  for (size_t i = 0; i < COUNT_OF(threads); i++)
    if (!pthread_equal(threads[i], pthread_self())) pthread_join(threads[i], NULL);
}

static void check_child(pid_t child) {
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(status == 0);
}

static void fork_some(int generations) {
  pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    use_heap(40);
    start_threads();
    if (generations > 1) fork_some(generations - 1);
    _exit(0);
  }
  check_child(child);
}

/* posix_spawn and vfork share the address space with the parent until exec. */
static void spawn_some(void) {
  char *const arguments[] = {(char *)"/bin/true", NULL};
  for (int i = 0; i < 5; i++) {
    pid_t child;
    REQUIRE(posix_spawn(&child, arguments[0], NULL, NULL, arguments, environ) == 0);
    check_child(child);
  }
}

int main(int argc, char **argv) {
  bool expect_snug = false, no_exec = false, no_fork = false;
  for (int i = 1; i < argc; i++) {
    expect_snug |= strcmp(argv[i], "--expect-snug") == 0;
    no_exec |= strcmp(argv[i], "--no-exec") == 0;
    no_fork |= strcmp(argv[i], "--no-fork") == 0;
  }
  REQUIRE(!expect_snug || snug_is_active());
  REQUIRE(stages == 3 && indirect_sum() == 168);
  atexit(at_exit);
  /* ... and others that allocate, registered late. */
  REQUIRE(pthread_atfork(prepare, go_on_in_parent, go_on_in_child) == 0);
  use_heap(4);
  start_threads();
  if (!no_fork) {
    fork_some(3);
    REQUIRE(prepared == 2 && continued_in_parent == 2 && continued_in_child == 0);
  }
  if (!no_exec) spawn_some();
  test_print(1, "ok probe\n");
  return 0;
}
