// Makes the library call all that it takes from others: a program beside a library that stands in front of those
// functions (support/make_interposer.py) and allocates in one of them. Prints how often that one was called.
#include "../support/test.h"

#include <dlfcn.h>
#include <grp.h>
#include <malloc.h>
#include <new>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

TEST_C_LINKAGE unsigned interposer_calls(void) __attribute__((weak));
TEST_C_LINKAGE int capset(void *header, const void *data);

enum { BLOCKS = 3000, BLOCK_BYTES = 9000 };

static void use_heap() {
  static const size_t sizes[] = {1, 100, 1000, 5000, 40000, 300000, 2000000};
  for (size_t size : sizes) {
    char *block = (char *)hidden(malloc(size));
    REQUIRE(block != nullptr);
    block[0] = block[size - 1] = 1;
    block = (char *)hidden(realloc(block, size * 2));
    REQUIRE(block != nullptr && block[size - 1] == 1 && malloc_usable_size(block) >= size * 2);
    free(block);
    free(hidden(calloc(3, size)));
    free(hidden(reallocarray(nullptr, 3, size)));
    free(hidden(aligned_alloc(64, size)));
    free(hidden(memalign(128, size)));
    free(hidden(valloc(size)));
    free(hidden(pvalloc(size)));
    void *aligned = nullptr;
    REQUIRE(posix_memalign(&aligned, 4096, size) == 0);
    free(aligned);
  }
}

/* Enough free at once that a thread of the library's own begins to look after it. */
static void free_much() {
  static void *blocks[BLOCKS];
  for (void *&block : blocks) {
    block = hidden(malloc(BLOCK_BYTES));
    REQUIRE(block != nullptr);
    memset(block, 1, BLOCK_BYTES);
  }
  for (void *block : blocks) free(block);
  sleep_ms(300);
  malloc_trim(0);
}

static void *run_thread(void *) {
  use_heap();
  return nullptr;
}

static void start_threads() {
  pthread_t threads[3];
  for (pthread_t &thread : threads) REQUIRE(pthread_create(&thread, nullptr, run_thread, nullptr) == 0);
  for (pthread_t thread : threads) pthread_join(thread, nullptr);
}

static int status_of(void (*child_does)()) {
  pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    child_does();
    _exit(0);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  return status;
}

static void work_in_child() {
  use_heap();
  start_threads();
}

static void free_twice() {
  void *block = hidden(malloc(2000000));
  close(2);
  free(block);
  free(hidden(block));
}

static void throw_for_want_of_memory() {
  volatile size_t too_much = size_t(1) << 62;
  bool thrown = false;
  try {
    operator delete(hidden(operator new(too_much)));
  } catch (const std::bad_alloc &) {
    thrown = true;
  }
  REQUIRE(thrown);
}

static void ask_for_reports() {
  FILE *nowhere = fopen("/dev/null", "w");
  REQUIRE(nowhere != nullptr && malloc_info(0, nowhere) == 0);
  fclose(nowhere);
  mallinfo2();
  malloc_stats();
  mallopt(M_MMAP_THRESHOLD, 1 << 20);
}

/* In a child: calls by which a process changes what it may do. Whether they succeed does not matter here. */
static void change_what_it_may_do() {
  struct rlimit limit;
  getrlimit(RLIMIT_AS, &limit);
  int results = prlimit(0, RLIMIT_CORE, nullptr, &limit) + setrlimit(RLIMIT_CORE, &limit) + setgroups(0, nullptr) +
                setgid(getgid()) + setegid(getegid()) + setregid(-1, -1) + setresgid(-1, -1, -1) + setuid(getuid()) +
                seteuid(geteuid()) + setreuid(-1, -1) + setresuid(-1, -1, -1) + unshare(CLONE_FILES) + setns(-1, 0) +
                capset(nullptr, nullptr) + mlockall(MCL_CURRENT) + munlockall() + initgroups("root", 0) +
                prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) + (int)syscall(SYS_prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  use_heap();
  start_threads();
  if (results == INT32_MIN) _exit(3);
}

int main() {
  use_heap();
  start_threads();
  throw_for_want_of_memory();
  ask_for_reports();
  REQUIRE(dlopen("libm.so.6", RTLD_NOW) != nullptr);
  int status = status_of(work_in_child);
  REQUIRE(status == 0);
  status = status_of(change_what_it_may_do);
  REQUIRE(status == 0);
  if (snug_is_active()) {
    status = status_of(free_twice);
    REQUIRE(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
  }
  free_much();
  use_heap();
  test_print(1, "calls: %u\n", interposer_calls != nullptr ? interposer_calls() : 0);
  return 0;
}
