/* aside_test.c: a handler forks while its thread changes the heap, and its child allocates before it returns (K4). */
#include "../../src/sys.c"

/* The thread that forks here is the only one: the locks that the fork waits for are its own. */
static void no_sleep(uint64_t duration_ns) { (void)duration_ns; }
#define sys_sleep no_sleep
#include "above_sys.h"
#include "caches.h"

#include <sys/resource.h>

enum { HEIRS = 16, GUESTS = 32, CHILD_TIMEOUT_S = 60 };

/* What the thread has when the handler forks, and what the handler's child allocates. */
static struct {
  unsigned char *start;
  size_t bytes;
} heirs[HEIRS], guests[GUESTS];

/* Of the class that is changed, of others, runs, large ones. */
static size_t size_number(size_t i) {
  static const size_t sizes[] = {SIZE, SIZE, 3 * SIZE, SIZE, 1500, 40000,           SIZE, 16, SIZE,
                                 5000, SIZE, 1000,     1,    SIZE, LARGE_MIN_BYTES, SIZE};
  return sizes[i % COUNT_OF(sizes)];
}

static void have(size_t i, void *start, size_t bytes) {
  REQUIRE(start != NULL);
  guests[i].start = start;
  guests[i].bytes = bytes;
  fill_pattern(start, bytes, 100 + i);
}

/* As the handler's child, which uses all of malloc, on what it inherited, too. */
static void allocate_amid(void) {
  for (size_t i = 0; i < GUESTS; i++) {
    size_t bytes = size_number(i);
    void *start = i % 3 == 0 ? malloc(bytes) : i % 3 == 1 ? calloc(1, bytes) : aligned_alloc(256, bytes);
    REQUIRE(start != NULL && malloc_usable_size(start) >= bytes);
    if (i % 3 == 1) CHECK(((char *)start)[0] == 0 && ((char *)start)[bytes - 1] == 0);
    if (i % 3 == 2) CHECK((uintptr_t)start % 256 == 0);
    have(i, start, bytes);
  }
  for (size_t i = 0; i < GUESTS; i += 4) {
    size_t bytes = guests[i].bytes * 2;
    void *longer = realloc(guests[i].start, bytes);
    CHECK(pattern_mismatch(longer, guests[i].bytes, 100 + i) == guests[i].bytes);
    have(i, longer, bytes);
  }
  for (size_t i = 1; i < GUESTS; i += 4) free(guests[i].start), guests[i].start = NULL;
  for (size_t i = 0; i < HEIRS; i += 4) free(heirs[i].start), heirs[i].start = NULL;
  for (size_t i = 1; i < HEIRS; i += 4) {
    heirs[i].start = realloc(heirs[i].start, 2 * heirs[i].bytes);
    CHECK(pattern_mismatch(heirs[i].start, heirs[i].bytes, i) == heirs[i].bytes);
  }
}

static void check_and_end_child(void) {
  static void *more[200]; /* whatever is served twice is written over */
  for (size_t i = 0; i < COUNT_OF(more); i++) more[i] = memset(malloc(SIZE), 0xff, SIZE);
  for (size_t i = 0; i < HEIRS; i++) {
    if (heirs[i].start == NULL) continue;
    CHECK_THAT(pattern_mismatch(heirs[i].start, heirs[i].bytes, i) == heirs[i].bytes, "block %zu was written to", i);
    free(heirs[i].start);
  }
  for (size_t i = 0; i < GUESTS; i++) {
    if (guests[i].start == NULL) continue;
    CHECK_THAT(pattern_mismatch(guests[i].start, guests[i].bytes, 100 + i) == guests[i].bytes,
               "block %zu of the handler's was written to", i);
    free(guests[i].start);
  }
  for (size_t i = 0; i < COUNT_OF(more); i++) free(more[i]);
  cache_check();
  snug_check();
  _exit(test_failed != 0);
}

static void make_heirs(void) {
  for (size_t i = 0; i < HEIRS; i++) {
    heirs[i].bytes = size_number(i);
    heirs[i].start = malloc(heirs[i].bytes);
    fill_pattern(heirs[i].start, heirs[i].bytes, i);
  }
}

static void free_heirs(void) {
  for (size_t i = 0; i < HEIRS; i++) free(heirs[i].start);
}

/* Forks as a handler that interrupts this thread under the lock of a class, and runs body in the child. */
static void fork_under_a_lock(void (*body)(void)) {
  freeze_policies();
  make_heirs();
  struct lock *lock = &slabs.heads[0][CLASS].lock;
  cache_slow_path_begins();
  lock_take(lock, RANK_CLASS);
  pid_t child = fork();
  if (child == 0) {
    test_failed = 0;
    alarm(CHILD_TIMEOUT_S);
    body();
    lock_give(lock, RANK_CLASS);
    cache_slow_path_ends();
    check_and_end_child();
  }
  lock_give(lock, RANK_CLASS);
  cache_slow_path_ends();
  int status = 0;
  CHECK_THAT(waitpid(child, &status, 0) == child && status == 0, "the child's wait status is 0x%x", (unsigned)status);
  free_heirs();
  thaw_policies();
  snug_check();
}

static void allocate_and_go_back(void) {
  allocate_amid();
  CHECK(aside_holds(guests[0].start) && !aside_holds(heirs[2].start));
}

/* A handler that becomes a server: it needs no more than what lives. */
static void never_go_back(void) {
  allocate_amid();
  size_t used = 0;
  for (int round = 0; round < 200; round++) {
    void *some[HEIRS * 2];
    for (size_t i = 0; i < COUNT_OF(some); i++) some[i] = memset(malloc(size_number(i)), round, size_number(i));
    for (size_t i = 0; i < COUNT_OF(some); i++) free(some[i]);
    if (round == 0) used = aside.used;
  }
  CHECK_THAT(aside.used == used, "%zu bytes were used, then %zu", used, aside.used);
  pid_t child = fork(); /* and forks */
  if (child == 0) {
    free(malloc(SIZE));
    _exit(0);
  }
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  struct rlimit limit = {256 * MIB, 256 * MIB}; /* and wants little address space */
  if (!is_emulated()) CHECK(setrlimit(RLIMIT_AS, &limit) == 0 && aside_range.bytes < 128 * MIB);
  free(memset(malloc(MIB), 1, MIB));
  _exit(test_failed != 0);
}

static void free_twice(void) {
  void *block = malloc(100000);
  free(block);
  free(block);
}
static void free_inside(void) { free((char *)malloc(100000) + 64); }

static void misuse(void) {
  check_dies(free_twice, "double free");
  check_dies(free_inside, "free of a pointer");
  _exit(test_failed != 0);
}

TEST(a_child_allocates_aside_until_its_handler_returns) { fork_under_a_lock(allocate_and_go_back); }
TEST(a_child_whose_handler_never_returns_goes_on) { fork_under_a_lock(never_go_back); }
TEST(mistakes_with_blocks_aside_are_told) { fork_under_a_lock(misuse); }

/* The same after instructions of slow paths: the processor stops after every one. */
#if defined(__x86_64__)
#include <ucontext.h>

enum { TRAP_FLAG = 0x100 };

static volatile bool stepping, is_child;
static volatile int steps, stride, forks_of_steps;
static pid_t child_of_handler;

static void after_a_step(int signal_number, siginfo_t *info, void *context) {
  (void)signal_number, (void)info;
  greg_t *flags = &((ucontext_t *)context)->uc_mcontext.gregs[REG_EFL];
  *flags = stepping ? *flags | TRAP_FLAG : *flags & ~(greg_t)TRAP_FLAG;
  if (!stepping || !cache_thread_is_inside() || steps++ % stride != 0) return;
  stepping = false; /* not in what the handler calls */
  child_of_handler = fork();
  if (child_of_handler == 0) {
    is_child = true;
    test_failed = 0;
    alarm(CHILD_TIMEOUT_S);
    *flags &= ~(greg_t)TRAP_FLAG;
    allocate_amid();
    return;
  }
  forks_of_steps++;
  int status = 0;
  CHECK_THAT(waitpid(child_of_handler, &status, 0) == child_of_handler && status == 0,
             "forked after %d steps, the child ended with wait status 0x%x", steps - 1, (unsigned)status);
  stepping = true;
}

/* Forks after each so manieth instruction of an action's slow paths. */
static void step_through(void (*action)(void), int one_in) {
  if (is_emulated()) SKIP("the emulator makes no single steps");
  freeze_policies();
  struct sigaction mine = {.sa_sigaction = after_a_step, .sa_flags = SA_SIGINFO}, before;
  REQUIRE(sigaction(SIGTRAP, &mine, &before) == 0);
  make_heirs();
  steps = 0, forks_of_steps = 0, stride = one_in;
  stepping = true;
  raise(SIGTRAP);
  action();
  stepping = false;
  if (is_child) check_and_end_child();
  CHECK_THAT(forks_of_steps >= 10, "%d forks in %d steps", forks_of_steps, steps);
  free_heirs();
  REQUIRE(sigaction(SIGTRAP, &before, NULL) == 0);
  thaw_policies();
  snug_check();
}

static size_t block_bytes, action_blocks;
static void take_blocks(void) {
  for (size_t i = 0; i < action_blocks; i++) blocks[i] = malloc(block_bytes);
}
static void give_blocks(void) {
  for (size_t i = 0; i < action_blocks; i++) free(blocks[i]);
}
static void resize_block(void) { blocks[0] = realloc(blocks[0], block_bytes *= 2); }

/* So many that bins have to be filled, and given back. */
static void step_through_a_life(size_t bytes, size_t count, int one_in) {
  block_bytes = bytes;
  action_blocks = count;
  step_through(take_blocks, one_in);
  if (count == 1) step_through(resize_block, one_in);
  step_through(give_blocks, one_in);
}

TEST(a_child_allocates_amid_the_life_of_small_blocks) { step_through_a_life(SIZE, 100, 29); }
TEST(a_child_allocates_amid_the_life_of_slabs) { step_through_a_life(1000, 70, 193); }
TEST(a_child_allocates_amid_the_life_of_a_medium_block) { step_through_a_life(5000, 1, 23); }
TEST(a_child_allocates_amid_the_life_of_a_run) { step_through_a_life(100000, 1, 37); }
TEST(a_child_allocates_amid_the_life_of_a_large_block) { step_through_a_life(2 << 20, 1, 13); }
#endif

/* ---- what comes after, and beside ---- */

/* Of the heap, and so many that a stack does not hold a call for each. */
static void *many[20000];

static void free_many(void) {
  struct rlimit limit = {512 * KIB, 512 * KIB};
  CHECK(setrlimit(RLIMIT_STACK, &limit) == 0);
  for (size_t i = 0; i < COUNT_OF(many); i++) free(many[i]);
}

TEST(a_child_gives_back_all_that_its_handler_freed) {
  for (size_t i = 0; i < COUNT_OF(many); i++) many[i] = malloc(3 * SIZE);
  fork_under_a_lock(free_many);
  for (size_t i = 0; i < COUNT_OF(many); i++) free(many[i]);
}

static void go_back(void) {
  lock_give(&slabs.heads[0][CLASS].lock, RANK_CLASS);
  cache_slow_path_ends();
}

/* Went back from two handlers, one within the other; then a later one forks. */
static void fork_again(void) {
  CHECK(this_thread.inside == 2);
  go_back();
  cache_slow_path_ends();
  cache_slow_path_begins();
  pid_t child = fork();
  if (child == 0) _exit(!aside_is_begun());
  int status = 0;
  CHECK_THAT(waitpid(child, &status, 0) == child && status == 0, "wait status 0x%x", (unsigned)status);
  _exit(test_failed != 0);
}

TEST(a_child_of_two_handlers_may_have_a_third) {
  free(malloc(SIZE));
  cache_slow_path_begins();
  fork_under_a_lock(fork_again);
  cache_slow_path_ends();
}

static void *fenced_block;

/* No purge amid a change, whatever is freed; and a short block has no room for a pointer. */
static void free_fenced(void) {
  __atomic_store_n(&purge_due_pages, 0, __ATOMIC_RELAXED);
  free(fenced_block);
  CHECK(purge_due_pages == 0 && fence_live() == 1); /* who looks sets it anew */
  go_back();
  free(malloc(40000));
  CHECK(fence_live() == 0);
  _exit(test_failed != 0);
}

TEST(a_fenced_block_waits_for_the_change_to_be_whole) {
  bool clean;
  free(malloc(40000));
  CHECK(pages_dirty() != 0);
  __atomic_store_n(&options.guard_samples, 8, __ATOMIC_RELAXED);
  fenced_block = fence_take(16, 1, &clean);
  if (fenced_block == NULL) SKIP("the kernel refuses this here");
  fork_under_a_lock(free_fenced);
  free(fenced_block);
}

static void map_half(void) {
  CHECK(aside_holds(malloc(SIZE)));
  CHECK(mmap(NULL, 512 * MIB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED);
}

TEST(a_child_with_little_address_space_leaves_most_of_it) {
  if (is_emulated()) SKIP("the emulator needs address space of its own");
  pid_t child = fork();
  if (child == 0) {
    struct rlimit limit = {GIB, GIB};
    CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
    fork_under_a_lock(map_half);
    _exit(test_failed != 0);
  }
  int status = 0;
  CHECK_THAT(waitpid(child, &status, 0) == child && status == 0, "wait status 0x%x", (unsigned)status);
}
