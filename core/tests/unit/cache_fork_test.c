/* cache_fork_test.c: forks from a signal handler while its thread changes its cache (K4). */
#include "../../src/sys.c"

/* What happens while a thread asks for its id, on demand: it is attaching, and has part of a cache. */
static void (*while_attaching)(void);
static uint32_t thread_id_or_more(void) {
  void (*happens)(void) = while_attaching;
  while_attaching = NULL;
  if (happens != NULL) happens();
  return sys_thread_id();
}
#define sys_thread_id thread_id_or_more
#include "above_sys.h"
#include "caches.h"

static volatile bool is_child; /* as handlers change it */
static pid_t child_of_handler;

/* As a signal handler. In its child a handler of another library allocates, too, and so often that a bin opens. */
static void fork_and_allocate(void) {
  child_of_handler = fork();
  if (child_of_handler != 0) return;
  is_child = true;
  test_failed = 0;
  alarm(20);
  open_bin(SIZE);
}

static void *live[100]; /* what some threads have when they fork */

/* A second owner of one of these blocks would write over it. */
static void check_that_no_block_is_served_twice(void) {
  for (size_t i = 0; i < MANY; i++) fill_pattern(blocks[i] = malloc(SIZE), SIZE, COUNT_OF(live) + i);
  for (size_t i = 0; i < MANY; i++) {
    CHECK_THAT(pattern_mismatch(blocks[i], SIZE, COUNT_OF(live) + i) == SIZE, "block %zu was served twice", i);
    free(blocks[i]);
  }
}

static void *be_another(void *argument) {
  struct cache **seen = argument;
  free(malloc(SIZE));
  *seen = this_thread.own;
  return NULL;
}

static void check_child(void) {
  struct cache *own = this_thread.own, *others = NULL;
  REQUIRE(own != NULL);
  CHECK(own->in_use && own->door.cache == own && this_thread.door == &own->door);
  CHECK_THAT(own->thread_id == (uint32_t)getpid(), "the owner is thread %u", own->thread_id);
  CHECK_THAT(snug_counters.caches == 1 && arena_users(own->arena) == 1, "%u caches, %u users of its arena",
             (unsigned)snug_counters.caches, arena_users(own->arena));
  if (!is_emulated()) { /* QEMU 7.2 dies of a new thread in a child of several */
    pthread_t thread;
    REQUIRE(pthread_create(&thread, NULL, be_another, &others) == 0);
    pthread_join(thread, NULL);
    CHECK_THAT(others != NULL && others != own, "two threads have one cache");
  }
  cache_check();
  for (size_t i = 0; i < COUNT_OF(live); i++) {
    if (live[i] != NULL) CHECK_THAT(pattern_mismatch(live[i], SIZE, i) == SIZE, "live block %zu was written to", i);
  }
  snug_check();
}

static void end_if_child(void) {
  if (!is_child) return;
  check_that_no_block_is_served_twice();
  check_child();
  _exit(test_failed != 0);
}

static void reap_child_of_handler(void) {
  int status = 0;
  REQUIRE(child_of_handler > 0);
  pid_t waited;
  do waited = waitpid(child_of_handler, &status, 0);
  while (waited < 0 && errno == EINTR);
  CHECK_THAT(waited == child_of_handler && WIFEXITED(status) && WEXITSTATUS(status) == 0, "child's wait status is 0x%x",
             (unsigned)status);
}

static void *attach_and_fork(void *argument) {
  while_attaching = fork_and_allocate;
  free(malloc(SIZE)); /* its first */
  free(malloc(SIZE));
  end_if_child();
  reap_child_of_handler();
  return argument;
}

TEST(a_thread_that_forks_while_it_attaches_has_one_cache_in_the_child) {
  freeze_policies();
  pthread_t thread;
  REQUIRE(pthread_create(&thread, NULL, attach_and_fork, NULL) == 0);
  pthread_join(thread, NULL);
  thaw_policies();
  snug_check();
}

/* The same after each instruction that changes anything another would see: the processor stops after every one. */
#if defined(__x86_64__)
#include <ucontext.h>

enum { TRAP_FLAG = 0x100 };
static volatile bool stepping;
static bool forks_in_fast_paths; /* after every instruction outside of slow paths, too */
static uint64_t last_state;
static volatile int forks_of_steps;

static uint64_t state_seen_by_others(void) {
  uint64_t sum = caches.count;
  for (uint32_t i = 0; i < caches.count; i++) {
    const struct cache *cache = cache_number(i);
    sum = (sum * 31 + cache->in_use) * 31 + cache->thread_id;
    sum = sum * 31 + (uintptr_t)cache->door.cache;
  }
  sum = (sum * 31 + (uintptr_t)this_thread.own) * 31 + (uintptr_t)this_thread.door;
  sum = (sum * 31 + snug_counters.caches) * 31 + arena_users(0);
  const struct cache *own = this_thread.own;
  if (own == NULL) return sum;
  sum = (sum * 31 + cache_sign_of_life(own)) * 31 + own->changing;
  return ((sum * 31 + own->arena) * 31 + this_thread.tag) * 31 + arena_users(1);
}

static void after_a_step(int signal_number, siginfo_t *info, void *context) {
  (void)signal_number, (void)info;
  greg_t *flags = &((ucontext_t *)context)->uc_mcontext.gregs[REG_EFL];
  *flags = stepping ? *flags | TRAP_FLAG : *flags & ~(greg_t)TRAP_FLAG;
  bool inside = cache_thread_is_inside();
  if (!stepping || (!inside && !forks_in_fast_paths)) return;
  uint64_t state = state_seen_by_others();
  if (inside && state == last_state) return;
  last_state = state;
  stepping = false; /* not in what the handler calls */
  fork_and_allocate();
  if (is_child) {
    *flags &= ~(greg_t)TRAP_FLAG;
    return;
  }
  forks_of_steps++;
  reap_child_of_handler();
  stepping = true;
}

static void begin_stepping(void) {
  last_state = state_seen_by_others();
  forks_of_steps = 0;
  stepping = true;
  raise(SIGTRAP);
}

static void *attach_step_by_step(void *argument) {
  begin_stepping();
  free(malloc(SIZE)); /* its first */
  free(malloc(SIZE));
  stepping = false;
  end_if_child();
  CHECK_THAT(forks_of_steps >= 5, "%d forks", forks_of_steps); /* in use, own, door, users, number */
  return argument;
}

static void *end_step_by_step(void *argument) {
  free(malloc(SIZE));
  begin_stepping();
  thread_ends(&this_thread);
  free(malloc(SIZE));
  stepping = false;
  if (is_child) {
    CHECK(this_thread.own == NULL && snug_counters.caches == 0 && arena_users(0) == 0);
    for (uint32_t i = 0; i < caches.count; i++) CHECK(!cache_number(i)->in_use);
    snug_check();
    _exit(test_failed != 0);
  }
  CHECK_THAT(forks_of_steps >= 5, "%d forks", forks_of_steps); /* the same */
  return argument;
}

/* A slow path at whose end bins shrink, and in which the thread then moves to another arena. */
static void *move_step_by_step(void *argument) {
  for (int turn = 0; turn < 4; turn++) burst(60, SIZE);
  open_bin(3 * SIZE);
  for (size_t i = 0; i < COUNT_OF(live); i++) fill_pattern(live[i] = malloc(SIZE), SIZE, i);
  for (size_t i = COUNT_OF(live) / 2; i < COUNT_OF(live); i++) free(live[i]), live[i] = NULL;
  struct cache *own = this_thread.own;
  REQUIRE(own != NULL && bin_capacity(&own->bin[CLASS]) > SMALL_SLOTS &&
          bin_count(own, &own->bin[CLASS]) > SMALL_SLOTS);
  REQUIRE(own->arena == 0 && arena_users(0) == 2);
  own->bin[CLASS].misses = 0;
  own->slow_calls = CONTENTION_PERIOD - 1;
  own->contentions = CONTENTION_LIMIT;
  cache_tick();
  begin_stepping();
  void *block = malloc(8192);
  stepping = false;
  free(block);
  free(malloc(SIZE));
  end_if_child();
  CHECK_THAT(own->arena == 1 && forks_of_steps >= 10, "arena %u, %d forks", own->arena, forks_of_steps);
  for (size_t i = 0; i < COUNT_OF(live); i++) free(live[i]), live[i] = NULL;
  return argument;
}

/* Where it fills an empty bin, and gives blocks of a full one back. */
static void *miss_step_by_step(void *argument) {
  for (int turn = 0; turn < 4; turn++) burst(60, SIZE);
  struct cache *own = this_thread.own;
  const struct bin *bin = &own->bin[CLASS];
  size_t count = 0;
  for (size_t i = 0; i < COUNT_OF(live); i++) fill_pattern(live[i] = malloc(SIZE), SIZE, i);
  while (count < BIN_MAX_SLOTS || bin_count(own, bin) != 0) blocks[count++] = malloc(SIZE);
  begin_stepping();
  void *block = malloc(SIZE);
  stepping = false;
  free(block);
  end_if_child();
  CHECK_THAT(forks_of_steps >= 3, "%d forks", forks_of_steps); /* misses, top, slow calls */
  while (bin_count(own, bin) != bin_capacity(bin)) free(blocks[--count]);
  begin_stepping();
  free(blocks[--count]);
  stepping = false;
  free(malloc(SIZE));
  end_if_child();
  CHECK_THAT(forks_of_steps >= 4, "%d forks", forks_of_steps); /* changing, top, not changing, slow calls */
  while (count != 0) free(blocks[--count]);
  for (size_t i = 0; i < COUNT_OF(live); i++) free(live[i]), live[i] = NULL;
  return argument;
}

/* Steps through one malloc, for live[0]. What it returns in a child that interrupted it is as much the child's own as
 * any other block. */
static void malloc_stepping(void) {
  begin_stepping();
  void *block = malloc(SIZE);
  stepping = false;
  fill_pattern(live[0] = block, SIZE, 0);
  end_if_child();
}

/* Steps through the free of live[0]. */
static void free_stepping(void) {
  void *block = live[0];
  begin_stepping();
  free(block);
  stepping = false;
  live[0] = NULL;
  end_if_child();
}

/* A malloc and a free that nothing but the bin has a part in. */
static void *pop_and_push_step_by_step(void *argument) {
  open_bin(SIZE);
  for (size_t i = 1; i < COUNT_OF(live); i++) fill_pattern(live[i] = malloc(SIZE), SIZE, i);
  for (size_t i = COUNT_OF(live) - 3; i < COUNT_OF(live); i++) free(live[i]), live[i] = NULL;
  const struct cache *own = this_thread.own;
  const struct bin *bin = &own->bin[CLASS];
  REQUIRE(bin_count(own, bin) > 1 && bin_count(own, bin) < bin_capacity(bin));
  uint32_t slow_calls = own->slow_calls;
  forks_in_fast_paths = true;
  malloc_stepping();
  CHECK_THAT(forks_of_steps >= 15 && own->slow_calls == slow_calls, "%d forks, %u slow calls", forks_of_steps,
             own->slow_calls - slow_calls);
  free_stepping();
  CHECK_THAT(forks_of_steps >= 15 && own->slow_calls == slow_calls, "%d forks, %u slow calls", forks_of_steps,
             own->slow_calls - slow_calls);
  for (size_t i = 1; i < COUNT_OF(live); i++) free(live[i]), live[i] = NULL;
  forks_in_fast_paths = false;
  return argument;
}

/* The same where the bin is empty, and full: from the fast path into the slow one and back. */
static void *overflow_step_by_step(void *argument) {
  open_bin(SIZE);
  const struct cache *own = this_thread.own;
  const struct bin *bin = &own->bin[CLASS];
  size_t count = 0;
  while (count < BIN_MAX_SLOTS || bin_count(own, bin) != 0) blocks[count++] = malloc(SIZE);
  forks_in_fast_paths = true;
  malloc_stepping();
  CHECK_THAT(forks_of_steps >= 30, "%d forks", forks_of_steps);
  while (bin_count(own, bin) != bin_capacity(bin)) free(blocks[--count]);
  free_stepping();
  CHECK_THAT(forks_of_steps >= 30, "%d forks", forks_of_steps);
  while (count != 0) free(blocks[--count]);
  forks_in_fast_paths = false;
  return argument;
}

static void step_with(void *(*body)(void *), bool frozen) {
  if (is_emulated()) SKIP("the emulator makes no single steps");
  freeze_policies();
  if (!frozen) thaw_policies(); /* a fork outside of slow paths waits for all locks */
  struct sigaction action = {.sa_sigaction = after_a_step, .sa_flags = SA_SIGINFO}, before;
  REQUIRE(sigaction(SIGTRAP, &action, &before) == 0);
  pthread_t thread;
  REQUIRE(pthread_create(&thread, NULL, body, NULL) == 0);
  pthread_join(thread, NULL);
  REQUIRE(sigaction(SIGTRAP, &before, NULL) == 0);
  if (frozen) thaw_policies();
  snug_check();
}

static void step_through(void *(*body)(void *)) { step_with(body, true); }

TEST(a_thread_may_fork_anywhere_while_it_attaches) { step_through(attach_step_by_step); }
TEST(a_thread_may_fork_anywhere_while_it_gives_its_cache_up) { step_through(end_step_by_step); }
TEST(a_thread_may_fork_anywhere_while_it_moves_to_another_arena) {
  arena_set_cpus(2);
  step_through(move_step_by_step);
}
TEST(a_thread_may_fork_anywhere_while_a_bin_misses) { step_through(miss_step_by_step); }
TEST(a_thread_may_fork_after_each_instruction_of_a_fast_path) { step_with(pop_and_push_step_by_step, false); }
TEST(a_thread_may_fork_after_each_instruction_on_the_way_to_a_slow_path) { step_with(overflow_step_by_step, false); }
#endif
