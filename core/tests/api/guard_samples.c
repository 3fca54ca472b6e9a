/* Sampled blocks that end at a page that can't be touched, as a program from outside sees them: its mistakes are named
 * with the stacks, and what is right goes on. The program starts itself again with the settings. */
#include "../support/test.h"

#include <malloc.h>
#include <pthread.h>
#include <sys/mman.h>

enum { TRIES = 20000000, SIZE = 40, BLOCK = 48 }; /* an ordinary block of that size has room for so much */

__attribute__((noinline)) static char *take(void) { return (char *)hidden(malloc(SIZE)); }
__attribute__((noinline)) static void give(char *block) {
  free(hidden(block));
  __asm__ volatile("");
}

/* One that was sampled: it has no byte more than was asked for. */
static char *take_guarded(void) {
  for (int i = 0; i < TRIES; i++) {
    char *block = take();
    REQUIRE(block != NULL);
    if (malloc_usable_size(block) == SIZE) return block;
    give(block);
  }
  REQUIRE(!"no guarded block");
  return NULL;
}

static volatile char *block;
static void write_beyond(void) { block[hidden_size(BLOCK)] = 1; }
static void write_one_beyond(void) {
  block[hidden_size(SIZE)] = 1;
  give((char *)block);
}
static void write_after_free(void) {
  give((char *)block);
  block[hidden_size(8)] = 1;
}
static void read_after_free(void) {
  give((char *)block);
  (void)block[hidden_size(8)];
}
static void free_twice(void) {
  give((char *)block);
  give((char *)block);
}

/* What a child writes to stderr as it makes the mistake, and how it ends. */
static int make_mistake(void (*mistake)(void), char *text, size_t capacity_bytes) {
  int ends[2], status = 0;
  REQUIRE(pipe(ends) == 0);
  pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    dup2(ends[1], 2);
    block = take_guarded();
    mistake();
    _exit(0);
  }
  close(ends[1]);
  size_t length = 0;
  ssize_t got;
  while ((got = read(ends[0], text + length, capacity_bytes - 1 - length)) > 0) length += (size_t)got;
  text[length] = '\0';
  close(ends[0]);
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  return status;
}

static const struct mistake {
  void (*make)(void);
  int signal;
  const char *what;
  int was_freed;
} mistakes[] = {
    {write_beyond, SIGSEGV, " beyond the end of a block: ", 0},
    {write_one_beyond, SIGABRT, "write beyond the end of a block: ", 0},
    {write_after_free, SIGSEGV, " after free: ", 1},
    {read_after_free, SIGSEGV, " after free: ", 1},
    {free_twice, SIGABRT, "double free: ", 1},
};

static bool is_guarded(void) {
  const char *settings = getenv("SNUG");
  return snug_is_active() && settings != NULL && strstr(settings, "guard_samples:1") != NULL;
}

TEST(mistakes_end_the_program_with_both_stacks) {
  static char text[16 * KIB];
  if (!is_guarded()) SKIP("no snug");
  for (size_t i = 0; i < COUNT_OF(mistakes); i++) {
    int status = make_mistake(mistakes[i].make, text, sizeof text);
    CHECK_THAT(WIFSIGNALED(status) && WTERMSIG(status) == mistakes[i].signal, "%zu: wait status 0x%x: %s", i, status,
               text);
    CHECK_THAT(strstr(text, mistakes[i].what) != NULL, "%zu: %s", i, text);
    CHECK_THAT(strstr(text, "the block of 40 bytes at ") != NULL, "%zu: %s", i, text);
    CHECK_THAT(strstr(text, " was allocated by this thread:\n") != NULL, "%zu: %s", i, text);
    CHECK_THAT((strstr(text, " was freed by this thread:\n") != NULL) == mistakes[i].was_freed, "%zu: %s", i, text);
  }
}

static void count_fault(int signal, siginfo_t *info, void *context) {
  (void)context;
  _exit(signal == SIGSEGV && info->si_addr == (void *)&block[BLOCK] ? 42 : 43);
}

static void write_beyond_with_a_handler(void) {
  static char stack[64 * KIB];
  stack_t own_stack = {.ss_sp = stack, .ss_size = sizeof stack};
  struct sigaction action = {.sa_sigaction = count_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK};
  REQUIRE(sigaltstack(&own_stack, NULL) == 0 && sigaction(SIGSEGV, &action, NULL) == 0);
  char *other = take_guarded(); /* sampled after the handler was set */
  write_beyond();
  give(other);
}

TEST(handlers_of_the_program_follow) {
  static char text[16 * KIB];
  if (!is_guarded()) SKIP("no snug");
  int status = make_mistake(write_beyond_with_a_handler, text, sizeof text);
  CHECK_THAT(WIFEXITED(status) && WEXITSTATUS(status) == 42, "wait status 0x%x: %s", status, text);
  CHECK_THAT(strstr(text, " beyond the end of a block: ") != NULL, "%s", text);
}

/* Blocks of all kinds and sizes, with all of what may be used of them. */
static void *live_rightly(void *argument) {
  uint64_t seed = (uintptr_t)argument;
  for (size_t i = 0; i < 20000; i++) {
    size_t size = i * 131 % (i % 50 == 0 ? 60000 : 3000);
    char *own = i % 4 == 0 ? (char *)memalign(64, size) : i % 4 == 1 ? (char *)calloc(1, size) : (char *)malloc(size);
    REQUIRE(own != NULL);
    size_t room = malloc_usable_size(own);
    CHECK(room >= size);
    fill_pattern(own, room, seed + i);
    if (i % 3 == 0) {
      own = (char *)realloc(own, room * 2 + 1);
      REQUIRE(own != NULL);
    }
    CHECK(pattern_mismatch(own, room, seed + i) == room);
    free(own);
  }
  return NULL;
}

TEST(threads_that_are_right_go_on) {
  enum { THREADS = 4 };
  pthread_t threads[THREADS];
  for (size_t i = 0; i < THREADS; i++) REQUIRE(pthread_create(&threads[i], NULL, live_rightly, (void *)(i + 1)) == 0);
  for (size_t i = 0; i < THREADS; i++) REQUIRE(pthread_join(threads[i], NULL) == 0);
}

TEST(children_that_are_right_go_on) {
  char *kept = is_guarded() ? take_guarded() : take();
  memset(kept, 7, SIZE);
  for (int i = 0; i < 5; i++) {
    int status = 0;
    pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      bool same = kept[SIZE - 1] == 7;
      give(kept);
      live_rightly((void *)9);
      _exit(same && test_failed == 0 ? 0 : 1);
    }
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
    CHECK_THAT(status == 0, "wait status 0x%x", status);
  }
  CHECK(kept[SIZE - 1] == 7);
  give(kept);
}

int main(int argc, char **argv) {
  if (getenv("TEST_EMULATED")) {
    test_print(1, "skip guard_samples: it starts itself again, which the emulator does not\n");
    return 0;
  }
  if (snug_is_active() && !is_guarded()) {
    setenv("SNUG", "profile:2048,guard_samples:1", 1);
    execv("/proc/self/exe", argv);
  }
  return run_tests(argc, argv);
}
