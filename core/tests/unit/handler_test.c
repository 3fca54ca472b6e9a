/* handler_test.c: a signal handler interrupts its thread in a slow path, allocates and frees, and returns; or does not
 * (K5). Nobody else is there: whoever waits for a lock waits for itself. */
#include "../../src/sys.c"

#include "above_sys.h"
#include "caches.h"

#include <setjmp.h>

enum { HEIRS = 64, GUESTS = 64, TIMEOUT_S = 120 };

/* What the thread has, and what its handler allocates. */
struct piece {
  unsigned char *start;
  size_t bytes;
};
static struct piece heirs[HEIRS], guests[GUESTS];
static uint64_t guest_random;

/* Of the class that is changed, of others, runs, large ones. */
static size_t size_number(size_t i) {
  static const size_t sizes[] = {SIZE, SIZE, 3 * SIZE, SIZE, 1500, 40000, SIZE, 16, SIZE, 5000, SIZE, 1000, 1, SIZE};
  return i % 500 == 60 ? LARGE_MIN_BYTES : sizes[i % COUNT_OF(sizes)];
}

static void fill(struct piece *piece, void *start, size_t bytes) {
  REQUIRE(start != NULL && malloc_usable_size(start) >= bytes);
  *piece = (struct piece){start, bytes};
  size_t head = bytes < 64 ? bytes : 64;
  fill_pattern(start, head, (uintptr_t)piece);
  piece->start[bytes - 1] = head < bytes ? (unsigned char)bytes : piece->start[bytes - 1];
}

static void check(const struct piece *piece) {
  size_t bytes = piece->bytes, head = bytes < 64 ? bytes : 64;
  CHECK_THAT(pattern_mismatch(piece->start, head, (uintptr_t)piece) == head, "block %p of %zu bytes was written to",
             (void *)piece->start, bytes);
  if (head < bytes) CHECK(piece->start[bytes - 1] == (unsigned char)bytes);
}

static void let_go(struct piece *piece) {
  if (piece->start == NULL) return;
  check(piece);
  free(piece->start);
  piece->start = NULL;
}

static void make_heirs(void) {
  for (size_t i = 0; i < HEIRS; i++) fill(&heirs[i], malloc(size_number(i)), size_number(i));
}

static void let_all_go(void) {
  for (size_t i = 0; i < HEIRS; i++) let_go(&heirs[i]);
  for (size_t i = 0; i < GUESTS; i++) let_go(&guests[i]);
}

/* What a handler may do with malloc. */
static void be_guest(void) {
  size_t turn = random_next(&guest_random) % 1000, bytes = size_number(turn);
  struct piece *mine = &guests[turn % GUESTS], *theirs = &heirs[turn / 7 % HEIRS];
  /* What it frees is freed again when the change is whole, which this handler interrupts, too: not forever. */
  if (mine->start != NULL && !aside_holds(mine->start) && random_below(&guest_random, 200) != 0) return;
  let_go(mine);
  switch (turn % 5) {
    case 0: fill(mine, calloc(1, bytes), bytes); break;
    case 1: fill(mine, aligned_alloc(256, bytes), bytes); break;
    case 2:
      fill(mine, malloc(bytes), bytes);
      check(mine);
      fill(mine, realloc(mine->start, 2 * bytes), 2 * bytes);
      break;
    default: fill(mine, malloc(bytes), bytes);
  }
  switch (turn % 11) {
    case 0: let_go(theirs); break;
    case 1:
      if (theirs->start == NULL) break;
      check(theirs);
      fill(theirs, realloc(theirs->start, theirs->bytes + 8), theirs->bytes + 8);
      break;
    case 2:
      if (theirs->start != NULL) CHECK(malloc_usable_size(theirs->start) >= theirs->bytes);
      break;
    case 3: malloc_trim(0); break;
    case 4: snug_check(); break;
    case 5: {
      struct snug_stats stats;
      CHECK(snug_stats(&stats, sizeof stats) == 0);
      break;
    }
    case 6: mallctl("thread.tcache.flush", NULL, NULL, NULL, 0); break;
  }
}

#if defined(__x86_64__)
#include <ucontext.h>

enum { TRAP_FLAG = 0x100 };

static volatile bool stepping;
static volatile int steps, stride, visits;

static void after_a_step(int signal_number, siginfo_t *info, void *context) {
  (void)signal_number, (void)info;
  greg_t *flags = &((ucontext_t *)context)->uc_mcontext.gregs[REG_EFL];
  *flags = stepping ? *flags | TRAP_FLAG : *flags & ~(greg_t)TRAP_FLAG;
  if (!stepping || !cache_thread_is_inside() || steps++ % stride != 0) return;
  stepping = false; /* not in what the handler calls */
  be_guest();
  visits++;
  stepping = true;
}

static void begin_stepping(void) {
  stepping = true;
  raise(SIGTRAP);
}

static void watch_steps(struct sigaction *before) {
  struct sigaction mine = {.sa_sigaction = after_a_step, .sa_flags = SA_SIGINFO};
  REQUIRE(sigaction(SIGTRAP, &mine, before) == 0);
  steps = visits = 0;
  alarm(TIMEOUT_S); /* whoever hangs ends the program */
}

static void end_all(void) {
  let_all_go();
  free(malloc(40000)); /* at the end of whose slow path all that was kept goes */
  CHECK(this_thread.kept == NULL);
  cache_check();
  snug_check();
}

/* Has the handler run after each so manieth instruction of an action's slow paths. */
static void step_through(void (*action)(void), int one_in, int least_visits) {
  struct sigaction before;
  if (is_emulated()) SKIP("the emulator makes no single steps");
  freeze_policies();
  make_heirs();
  guest_random = 1;
  stride = one_in;
  watch_steps(&before);
  begin_stepping();
  action();
  stepping = false;
  CHECK_THAT(visits >= least_visits, "%d visits in %d steps", visits, steps);
  REQUIRE(sigaction(SIGTRAP, &before, NULL) == 0);
  thaw_policies();
  end_all();
  alarm(0);
}

static size_t block_bytes, action_blocks;
static struct piece action[MANY];

static void take_blocks(void) {
  for (size_t i = 0; i < action_blocks; i++) fill(&action[i], malloc(block_bytes), block_bytes);
}

static void give_blocks(void) {
  for (size_t i = 0; i < action_blocks; i++) let_go(&action[i]);
}

static void resize_blocks(void) {
  for (size_t i = 0; i < action_blocks; i++) {
    check(&action[i]);
    fill(&action[i], realloc(action[i].start, 2 * block_bytes), 2 * block_bytes);
  }
}

static void step_through_a_life(size_t bytes, size_t count, int one_in) {
  block_bytes = bytes;
  action_blocks = count;
  step_through(take_blocks, one_in, 50);
  step_through(resize_blocks, one_in, 50);
  step_through(give_blocks, one_in, 50);
}

TEST(a_handler_allocates_amid_the_life_of_small_blocks) { step_through_a_life(SIZE, 40, 7); }
TEST(a_handler_allocates_amid_the_life_of_slabs) { step_through_a_life(1000, 70, 97); }
TEST(a_handler_allocates_amid_the_life_of_medium_blocks) { step_through_a_life(5000, 8, 3); }
TEST(a_handler_allocates_amid_the_life_of_runs) { step_through_a_life(100000, 2, 3); }
TEST(a_handler_allocates_amid_the_life_of_large_blocks) { step_through_a_life(2 * MIB, 2, 3); }

/* Bins that fill, shrink and close, and the thread's move to another arena. */
static void miss_and_move(void) {
  for (int turn = 0; turn < 6; turn++) {
    burst(60, SIZE);
    burst(20, 3 * SIZE);
    cache_tick();
    this_thread.own->contentions = turn % 2 != 0 ? CONTENTION_LIMIT : 0;
    this_thread.own->slow_calls = CONTENTION_PERIOD - 1;
  }
}

TEST(a_handler_allocates_while_bins_change_and_the_thread_moves) {
  arena_set_cpus(2);
  step_through(miss_and_move, 17, 500);
}

static void give_own_back(void) {
  for (int turn = 0; turn < 3; turn++) {
    burst(30, SIZE);
    CHECK(mallctl("thread.tcache.flush", NULL, NULL, NULL, 0) == 0);
  }
}

TEST(a_handler_allocates_while_a_cache_is_emptied) { step_through(give_own_back, 7, 500); }

/* ---- amid a fast path ---- */

static size_t guest_bytes;
static void (*volatile happens_next)(void);

static void after_a_fast_step(int signal_number, siginfo_t *info, void *context) {
  (void)signal_number, (void)info;
  greg_t *flags = &((ucontext_t *)context)->uc_mcontext.gregs[REG_EFL];
  *flags = stepping ? *flags | TRAP_FLAG : *flags & ~(greg_t)TRAP_FLAG;
  if (!stepping || cache_thread_is_inside() || !own_bin(CLASS)->busy || steps++ != stride) return;
  stepping = false;
  free(malloc(guest_bytes));
  happens_next();
  visits++;
  stepping = true;
}

/* As another thread does that empties all caches, after the handler's own malloc and free. */
static void be_robbed(void) { steal_caches(0, NULL); }

/* Bins that did not miss shrink, in the handler's next slow path; or the thread moves. */
static void let_capacity_go(void) {
  for (unsigned i = 1; i < CLASS_COUNT; i++) this_thread.own->bin[i].misses = 0;
  cache_tick();
  free(malloc(12000));
}

static void move_to_another_arena(void) {
  this_thread.own->contentions = CONTENTION_LIMIT;
  this_thread.own->slow_calls = CONTENTION_PERIOD - 1;
  free(malloc(12000));
}

static void trim(void) {
  cache_slow_path_begins();
  cache_empty_own();
  cache_slow_path_ends();
}

/* The block that a fast path serves is nobody else's. */
static void use_fast_paths(void) {
  struct piece first = {NULL, 0};
  for (size_t i = 0; i < 2; i++) {
    steps = 0;
    begin_stepping();
    void *block = malloc(SIZE);
    stepping = false;
    fill(&first, block, SIZE);
    for (size_t j = 0; j < action_blocks; j++) check(&action[j]);
    steps = 0;
    begin_stepping();
    free(block);
    stepping = false;
  }
}

static void step_through_fast_paths(void (*happens)(void)) {
  struct sigaction before, mine = {.sa_sigaction = after_a_fast_step, .sa_flags = SA_SIGINFO};
  happens_next = happens;
  action_blocks = 20;
  visits = 0;
  for (stride = 0; stride < 12; stride++) { /* the instruction of each in which the handler comes */
    burst(100, SIZE);
    burst(60, guest_bytes);
    for (size_t i = 0; i < action_blocks; i++) fill(&action[i], malloc(SIZE), SIZE);
    REQUIRE(capacity(CLASS) > 8 && cached(CLASS) > 2);
    REQUIRE(sigaction(SIGTRAP, &mine, &before) == 0);
    use_fast_paths();
    REQUIRE(sigaction(SIGTRAP, &before, NULL) == 0);
    for (size_t i = 0; i < 200; i++) fill(&action[action_blocks + i], malloc(SIZE), SIZE);
    for (size_t i = 0; i < 200 + action_blocks; i++) let_go(&action[i]);
    cache_check();
    slab_check();
  }
  CHECK_THAT(visits > 10, "%d visits", visits);
}

/* Of another size than what it interrupts: its bin is another one, which is all that it may change. */
TEST(a_handler_amid_a_fast_path_leaves_it_its_bin) {
  static void (*const all[])(void) = {be_robbed, let_capacity_go, move_to_another_arena, trim};
  if (is_emulated()) SKIP("the emulator makes no single steps");
  arena_set_cpus(2);
  arena_join(0);
  arena_join(0);
  freeze_policies();
  guest_bytes = 704;
  alarm(TIMEOUT_S);
  for (size_t i = 0; i < COUNT_OF(all); i++) step_through_fast_paths(all[i]);
  thaw_policies();
  arena_leave(0);
  arena_leave(0);
  alarm(0);
}

static void *live_step_by_step(void *argument) {
  struct sigaction *before = argument;
  watch_steps(before);
  stride = 3;
  begin_stepping();
  free(malloc(SIZE)); /* its first */
  burst(30, SIZE);
  thread_ends(&this_thread);
  free(malloc(SIZE));
  stepping = false;
  CHECK_THAT(visits >= 100, "%d visits", visits);
  return NULL;
}

TEST(a_handler_allocates_while_a_thread_gets_its_cache_and_gives_it_up) {
  struct sigaction before;
  pthread_t thread;
  if (is_emulated()) SKIP("the emulator makes no single steps");
  options.background = 0;
  make_heirs();
  REQUIRE(pthread_create(&thread, NULL, live_step_by_step, &before) == 0);
  pthread_join(thread, NULL);
  REQUIRE(sigaction(SIGTRAP, &before, NULL) == 0);
  end_all();
  alarm(0);
}
#endif

/* ---- beside each step ---- */

static void begin_amid(struct lock *lock, enum lock_rank rank) {
  alarm(TIMEOUT_S);
  options.background = 0;
  free(malloc(SIZE));
  cache_slow_path_begins();
  lock_take(lock, rank);
}

static void end_amid(struct lock *lock, enum lock_rank rank) {
  lock_give(lock, rank);
  cache_slow_path_ends();
  alarm(0);
}

TEST(a_handler_sees_sizes_of_large_blocks_under_their_lock) {
  unsigned char *block = malloc(2 * MIB);
  begin_amid(&large.lock, RANK_LARGE);
  CHECK(malloc_usable_size(block) == 2 * MIB);
  fill_pattern(block, 100, 7);
  block = realloc(block, 3 * MIB);
  CHECK(aside_holds(block) && pattern_mismatch(block, 100, 7) == 100);
  CHECK(this_thread.kept != NULL);
  end_amid(&large.lock, RANK_LARGE);
  CHECK(this_thread.kept == NULL);
  free(block);
  snug_check();
}

static void *to_free_amid;
static void free_amid(void) {
  begin_amid(&large.lock, RANK_LARGE);
  free(to_free_amid);
  end_amid(&large.lock, RANK_LARGE);
}

/* Whatever the slow path is, and if it is the last: malloc_trim, statistics, the end of a thread. */
TEST(what_a_handler_freed_goes_when_the_slow_path_ends) {
  size_t live = snug_counters.large_bytes;
  to_free_amid = malloc(40 * MIB);
  free_amid();
  CHECK(this_thread.kept == NULL && snug_counters.large_bytes == live);
}

TEST(where_address_space_counts_the_range_is_small) {
  map.heap_reserved = false;
  uint64_t bytes = 0;
  char *start = reserve(&bytes);
  map.heap_reserved = true;
  CHECK_THAT(start != NULL && bytes == ROOM_MIN_BYTES - APART_BYTES, "%llu bytes", (unsigned long long)bytes);
  munmap(start, bytes);
}

TEST(a_handler_gets_blocks_that_are_zero) {
  begin_amid(&slabs.heads[0][CLASS].lock, RANK_CLASS);
  for (int i = 0; i < 3; i++) {
    unsigned char *block = calloc(1000, 100);
    CHECK(aside_holds(block) && nonzero_offset(block, 100000) == 100000);
    free(memset(block, 0xff, 100000));
  }
  end_amid(&slabs.heads[0][CLASS].lock, RANK_CLASS);
}

/* A handler that interrupts one that takes from the range. */
TEST(pieces_aside_are_taken_while_one_is_taken) {
  begin_amid(&slabs.heads[0][CLASS].lock, RANK_CLASS);
  void *first = malloc(40000), *second = malloc(40000);
  free(first);
  free(second);
  uint64_t seen = aside.free[16]; /* as one that was interrupted sees it: the second one, then the first */
  void *again = malloc(40000), *once_more = malloc(40000);
  CHECK(again == second && once_more == first);
  free(again);
  CHECK(!change_first(16, &seen, (struct aside_header *)first - 1));
  free(once_more);
  end_amid(&slabs.heads[0][CLASS].lock, RANK_CLASS);
}

static void free_twice_amid(void) {
  void *block = malloc(1000);
  begin_amid(&slabs.heads[0][CLASS].lock, RANK_CLASS);
  free(block);
  free(block);
}

static void free_inside_amid(void) {
  char *block = malloc(LARGE_MIN_BYTES);
  begin_amid(&large.lock, RANK_LARGE);
  block = realloc(block + 4096, 16);
}

TEST(mistakes_of_handlers_are_told) {
  check_dies(free_twice_amid, "double free");
  check_dies(free_inside_amid, "did not allocate");
}

/* What a write beyond the block before can make of a header. */
static struct aside_header forged;

static void write_over_a_header(bool is_free) {
  begin_amid(&slabs.heads[0][CLASS].lock, RANK_CLASS);
  struct aside_header *header = (struct aside_header *)hidden(malloc(100)) - 1;
  REQUIRE(aside_holds(header));
  if (is_free) free(header + 1);
  *header = forged;
  if (!is_free) free(header + 1);
  free(malloc(100));
  if (is_free) malloc(100);
}

static void free_behind_forged_header(void) { write_over_a_header(false); }
static void take_behind_forged_header(void) { write_over_a_header(true); }

TEST(a_header_that_was_written_over_leads_nowhere) {
  static char elsewhere[4096];
  char *inside;
  begin_amid(&slabs.heads[0][CLASS].lock, RANK_CLASS);
  inside = malloc(100);
  end_amid(&slabs.heads[0][CLASS].lock, RANK_CLASS);
  void *places[] = {elsewhere, (void *)0x4141414141414141, inside - 8, aside.start + aside.committed,
                    aside.start - 4096};
  for (size_t i = 0; i < COUNT_OF(places); i++) {
    forged = (struct aside_header){places[i], 7, PIECE_LIVE};
    check_dies(free_behind_forged_header, "heap metadata is corrupted");
    check_dies(take_behind_forged_header, "heap metadata is corrupted");
  }
  uint32_t orders[] = {0, ORDER_MIN - 1, 30, 39, 40, 64, UINT32_MAX};
  for (size_t i = 0; i < COUNT_OF(orders); i++) {
    forged = (struct aside_header){(struct aside_header *)aside.start, orders[i], PIECE_LIVE};
    check_dies(free_behind_forged_header, "heap metadata is corrupted");
  }
  check_unreadable(aside.start - 1);
  free(inside);
}

/* ---- handlers that do not return ---- */

static jmp_buf before_all;

/* The thread goes on without the heap, for good, and has what it had. */
static void leave_by_longjmp(void) {
  make_heirs();
  if (setjmp(before_all) == 0) {
    begin_amid(&slabs.heads[0][CLASS].lock, RANK_CLASS);
    longjmp(before_all, 1);
  }
  for (int turn = 0; turn < 100000; turn++) be_guest();
  CHECK_THAT(aside.used < 32 * MIB, "%zu bytes were used", aside.used);
  pid_t child = fork(); /* and may fork */
  if (child == 0) {
    free(malloc(SIZE));
    _exit(0);
  }
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  exit(test_failed != 0);
}

static void *leave_by_exit(void *argument) {
  begin_amid(&caches.lock, RANK_CACHES);
  free(malloc(SIZE));
  pthread_exit(argument);
}

static void end_thread_amid(void) {
  pthread_t thread;
  alarm(TIMEOUT_S);
  REQUIRE(pthread_create(&thread, NULL, leave_by_exit, NULL) == 0);
  pthread_join(thread, NULL);
  _exit(test_failed != 0);
}

/* As on_term of a program that ends with all its destructors. */
static void leave_by_ending(void) {
  make_heirs();
  atexit(let_all_go);
  begin_amid(&pages.lock, RANK_PAGES);
  exit(test_failed != 0);
}

TEST(a_thread_goes_on_after_a_longjmp_out_of_a_slow_path) { run_in_child(leave_by_longjmp); }
TEST(a_thread_may_end_amid_a_slow_path) { run_in_child(end_thread_amid); }
TEST(a_process_may_end_amid_a_slow_path) { run_in_child(leave_by_ending); }
