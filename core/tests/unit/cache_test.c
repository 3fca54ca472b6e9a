/* cache_test.c: thread caches: growing and shrinking bins, thieves, remote blocks, the end of a thread. */
#include "../../src/sys.c"

/* A kernel without membarrier, on demand. */
static bool refuse_barrier;
static bool barrier_or_refuse(void) { return !refuse_barrier && sys_barrier_all_threads(); }
#define sys_barrier_all_threads barrier_or_refuse

#include "above_sys.h"
#include "caches.h"

TEST(bins_open_when_they_miss_often_and_close_when_they_do_not) {
  enum { OTHER = 7, OTHER_SIZE = 112 }; /* of which nobody has had a block */
  freeze_policies();
  for (size_t i = 0; i < OPENING_MISSES - 1; i++) {
    blocks[i] = malloc(OTHER_SIZE);
    CHECK_THAT(capacity(OTHER) == 0 && cached(OTHER) == 0, "after %zu misses", i + 1);
  }
  free(blocks[0]);
  CHECK(capacity(OTHER) == first_capacity(OTHER) && cached(OTHER) == 1);
  for (size_t i = 1; i < OPENING_MISSES - 1; i++) free(blocks[i]);
  CHECK(cached(OTHER) == OPENING_MISSES - 1);
  cache_tick();
  burst(1, 8192); /* a slow call, where the tick is seen: the bin missed in it */
  CHECK(capacity(OTHER) == first_capacity(OTHER));
  cache_tick();
  burst(1, 8192);
  CHECK(capacity(OTHER) == 0 && cached(OTHER) == 0 && outstanding(OTHER) == 0);
  cache_check();
  thaw_policies();
}

/* The fast path looks at the slot below, which may hold what a neighbour left there. */
TEST(a_block_that_only_seems_to_be_freed_twice_is_taken) {
  freeze_policies();
  for (int i = 0; i < 10; i++) burst(MANY, SIZE);
  cache_empty_own();
  REQUIRE(capacity(CLASS) == max_capacity(CLASS));
  struct bin *bin = own_bin(CLASS);
  size_t count = 0;
  void *block = malloc(SIZE);
  while (cached(CLASS) != 0) blocks[count++] = malloc(SIZE);
  bin->top[-1] = block; /* of the class below, whose bin is empty, too */
  REQUIRE(cached(CLASS - 1) == 0);
  free(block);
  CHECK(cached(CLASS) == 1 && bin->top[-1] == block);
  while (count != 0) free(blocks[--count]);
  cache_empty_own();
  CHECK(outstanding(CLASS) == 0);
  thaw_policies();
}

TEST(bins_grow_while_they_miss_and_shrink_when_they_do_not) {
  freeze_policies();
  REQUIRE(this_thread.own != NULL);
  for (int i = 0; i < 10; i++) burst(MANY, SIZE);
  CHECK_THAT(capacity(CLASS) == max_capacity(CLASS), "%zu slots of at most %zu", capacity(CLASS), max_capacity(CLASS));
  uint64_t grown_bytes = all_bins.grown_bytes;
  CHECK(grown_bytes >= (max_capacity(CLASS) - first_capacity(CLASS)) * SIZE);
  size_t last = capacity(CLASS);
  for (int ticks = 0; ticks < 20 && last > first_capacity(CLASS); ticks++) {
    cache_tick();
    own_bin(CLASS)->misses = 0;
    burst(10, 8192); /* a slow call, where the tick is seen */
    CHECK_THAT(capacity(CLASS) <= last && cached(CLASS) <= capacity(CLASS), "%zu after %zu", capacity(CLASS), last);
    last = capacity(CLASS);
  }
  CHECK_THAT(last == first_capacity(CLASS), "%zu slots", last);
  cache_check();
  cache_empty_own();
  CHECK(cached(CLASS) == 0 && outstanding(CLASS) == 0);
  thaw_policies();
}

TEST(the_sum_of_grown_bins_is_bounded) {
  freeze_policies();
  for (unsigned i = 1; i < CLASS_COUNT; i++) {
    for (int turn = 0; turn < 12; turn++) burst(300, class_shapes[i].size_bytes);
  }
  uint64_t allowed = (uint64_t)pages_used() * PAGE_BYTES >> GROWTH_HEAP_SHIFT, grown = 0;
  if (allowed < GROWTH_MIN_BYTES) allowed = GROWTH_MIN_BYTES;
  for (unsigned i = 1; i < CLASS_COUNT; i++) { /* a bin that found nothing left has not even opened */
    if (capacity(i) > first_capacity(i)) grown += (capacity(i) - first_capacity(i)) * class_shapes[i].size_bytes;
  }
  CHECK_THAT(grown == all_bins.grown_bytes && grown <= allowed, "%zu counted, %zu seen", (size_t)all_bins.grown_bytes,
             (size_t)grown);
  CHECK(grown >= allowed / 2); /* there was reason to use it */
  cache_check();
  size_t held = held_bytes(), expected = 0;
  for (unsigned i = 1; i < CLASS_COUNT; i++) expected += cached(i) * class_shapes[i].size_bytes;
  CHECK_THAT(held == expected, "%zu held, %zu expected", held, expected);
  cache_empty_own();
  CHECK(held_bytes() == 0);
  for (unsigned i = 1; i < CLASS_COUNT; i++) bin_set_capacity(this_thread.own, i, first_capacity(i));
  CHECK(all_bins.grown_bytes == 0);
  thaw_policies();
}

/* ---- another thread, led step by step ---- */

static uint32_t stage; /* what the thread may do next; it answers with a negative step */

static void let(uint32_t step) {
  __atomic_store_n(&stage, step, __ATOMIC_RELEASE);
  while (__atomic_load_n(&stage, __ATOMIC_ACQUIRE) == step) sched_yield();
}

static void wait_for(uint32_t step) {
  while (__atomic_load_n(&stage, __ATOMIC_ACQUIRE) != step) sched_yield();
}

static void done(uint32_t step) { __atomic_store_n(&stage, step + 100, __ATOMIC_RELEASE); }

static struct cache *others_cache;
static void *remote_blocks[2 * REMOTE_MAX], *first_remote_blocks[OPENING_MISSES];

static void be_in_arena(uint32_t arena) {
  lock_take(&caches.lock, RANK_CACHES);
  move_to_arena(this_thread.own, arena);
  lock_give(&caches.lock, RANK_CACHES);
}

static void *follow(void *argument) {
  (void)argument;
  wait_for(1); /* fills its bin */
  void *some[6];
  open_bin(SIZE);
  for (int i = 0; i < 6; i++) some[i] = malloc(SIZE);
  for (int i = 0; i < 6; i++) free(some[i]);
  others_cache = this_thread.own;
  done(1);
  wait_for(2); /* works on */
  for (int i = 0; i < 6; i++) some[i] = malloc(SIZE);
  for (int i = 0; i < 6; i++) memset(some[i], 1, SIZE), free(some[i]);
  done(2);
  wait_for(3); /* is in the middle of a fast path */
  door_enter(this_thread.door);
  done(3);
  wait_for(4);
  door_leave(this_thread.door);
  done(4);
  wait_for(5); /* frees what another arena allocated */
  be_in_arena(1);
  for (size_t i = 0; i < OPENING_MISSES; i++) free(first_remote_blocks[i]);
  for (size_t i = 0; i < REMOTE_MAX - 1; i++) free(remote_blocks[i]);
  done(5);
  wait_for(6);
  free(remote_blocks[REMOTE_MAX - 1]);
  done(6);
  wait_for(7);
  for (size_t i = REMOTE_MAX; i < REMOTE_MAX + 5; i++) free(remote_blocks[i]);
  free(malloc(SIZE));
  done(7);
  wait_for(8);
  return NULL;
}

/* Blocks of an arena that this thread leaves. */
static void leave_blocks(void **blocks, size_t count) {
  for (size_t i = 0; i < count; i++) blocks[i] = malloc(SIZE);
  cache_empty_own();
  be_in_arena(1);
}

/* What is collected waits no longer than it takes to see that there are few. */
TEST(few_blocks_of_other_arenas_go_at_once) {
  void *blocks[REMOTE_MAX];
  freeze_policies();
  uint32_t arena = this_thread.own->arena;
  leave_blocks(blocks, COUNT_OF(blocks));
  size_t many = OPENING_MISSES + 10;
  for (size_t i = 0; i < many; i++) free(blocks[i]);
  CHECK(this_thread.own->remote_count == 10);
  note_tick(this_thread.own);
  CHECK(this_thread.own->remote_count == 10); /* there were many */
  for (size_t i = many; i < many + OPENING_MISSES; i++) free(blocks[i]);
  CHECK(this_thread.own->remote_count == 10);
  note_tick(this_thread.own);
  CHECK(this_thread.own->remote_count == 0);
  for (size_t i = many + OPENING_MISSES; i < COUNT_OF(blocks); i++) free(blocks[i]);
  be_in_arena(arena);
  cache_empty_own();
  CHECK(outstanding(CLASS) == 0);
  thaw_policies();
}

static void free_another_arenas_block_twice(void) {
  void *blocks[2];
  leave_blocks(blocks, 2);
  free(blocks[0]);
  free(blocks[1]);
  free(hidden(blocks[0]));
}

static void free_inside_of_another_arenas_block(void) {
  void *block;
  leave_blocks(&block, 1);
  free(hidden((char *)block + 16));
}

TEST(mistakes_with_few_blocks_of_other_arenas_are_found_at_the_free) {
  check_dies(free_another_arenas_block_twice, "double free");
  check_dies(free_inside_of_another_arenas_block, "free of a pointer inside a block");
}

/* A bin that is being moved to other slots, as another thread may see it. */
TEST(a_bin_that_moves_does_not_look_full) {
  freeze_policies();
  struct bin *bin = own_bin(CLASS);
  size_t bytes = cache_bytes(this_thread.own);
  void **top = bin->top;
  uint16_t low = bin->low;
  bin->low = all_bins.grown_offset[CLASS]; /* top still is that of the first slots, below */
  CHECK_THAT(cache_bytes(this_thread.own) <= bytes, "%zu bytes, %zu before", cache_bytes(this_thread.own), bytes);
  bin->low = low;
  bin->top = top;
  thaw_policies();
}

/* As it may come about in the instant in which a first thread joins an arena. */
TEST(a_slab_adopted_under_a_bin_is_no_corruption) {
  freeze_policies();
  burst(MANY, SIZE); /* the bin holds blocks */
  REQUIRE(cached(CLASS) != 0 && this_thread.own->arena == 0);
  void *block = own_bin(CLASS)->top[-1];
  unsigned kind = page_kind(page_index(block));
  page_set_kind(page_index(block), 1u << ARENA_SHIFT | CLASS);
  cache_check();
  page_set_kind(page_index(block), kind);
  cache_empty_own();
  thaw_policies();
}

TEST(mallopt_gives_fewer_arenas_and_leaves_the_cpus) {
  enum { GLIBCS_ARENA_MAX = -8 }; /* musl's headers have no M_ARENA_MAX */
  uint32_t cpus = arena_cpus();
  arena_set_cpus(8);
  CHECK(mallopt(GLIBCS_ARENA_MAX, 1) == 1);
  CHECK_THAT(arena_cpus() == 8 && arena_allowed() == 1, "%u CPUs, %u arenas", arena_cpus(), arena_allowed());
  options.arenas_max = 0;
  arena_set_cpus(cpus);
}

TEST(hot_bins_may_grow_as_if_each_running_thread_were_alone) {
  uint64_t threads = snug_counters.caches;
  uint32_t cpus = arena_cpus();
  struct bin cold = {.misses = HOT_MISSES - 1}, hot = {.misses = HOT_MISSES};
  uint64_t share = (uint64_t)pages_used() * PAGE_BYTES >> GROWTH_HEAP_SHIFT;
  REQUIRE(share < GROWTH_MIN_BYTES);
  snug_counters.caches = 3;
  arena_set_cpus(4);
  CHECK(allowed_growth_bytes(&cold) == GROWTH_MIN_BYTES && allowed_growth_bytes(&hot) == 3 * GROWTH_MIN_BYTES);
  arena_set_cpus(2);
  CHECK(allowed_growth_bytes(&hot) == 2 * GROWTH_MIN_BYTES);
  arena_set_cpus(0); /* not asked yet */
  CHECK(allowed_growth_bytes(&hot) == GROWTH_MIN_BYTES);
  snug_counters.caches = threads;
  arena_set_cpus(cpus);
}

TEST(idle_caches_are_stolen_busy_ones_are_not) {
  pthread_t thread;
  freeze_policies();
  REQUIRE(pthread_create(&thread, NULL, follow, NULL) == 0);
  uint64_t before = outstanding(CLASS), steals = snug_counters.steals;
  let(1);
  struct bin *bin = &others_cache->bin[CLASS];
  size_t held = bin_count(others_cache, bin);
  CHECK(held >= 6 && outstanding(CLASS) - before == held);
  others_cache->seen = 0;
  CHECK(steal_caches(3, this_thread.own) == 0 && bin_count(others_cache, bin) == held); /* not idle for long enough */
  CHECK(steal_caches(3, this_thread.own) == 0 && steal_caches(3, this_thread.own) == 0);
  size_t bytes = steal_caches(3, this_thread.own);
  CHECK_THAT(bytes == held * SIZE, "%zu bytes of %zu blocks", bytes, held);
  CHECK(bin_count(others_cache, bin) == 0 && outstanding(CLASS) == before && snug_counters.steals == steals + 1);
  CHECK(steal_caches(0, this_thread.own) == 0 && snug_counters.steals == steals + 1); /* nothing left */

  let(2); /* its owner finds it again, empty */
  held = bin_count(others_cache, bin);
  CHECK(held >= 6);
  refuse_barrier = true;
  CHECK(steal_caches(0, this_thread.own) == 0 && bin_count(others_cache, bin) == held);
  refuse_barrier = false;

  let(3);
  CHECK(steal_caches(0, this_thread.own) == 0 && bin_count(others_cache, bin) == held);
  CHECK(others_cache->door.cache == others_cache); /* given back untouched */
  let(4);
  snug_counters.pid++; /* as another process may write there: it is not believed */
  CHECK(steal_caches(0, this_thread.own) == held * SIZE && bin_count(others_cache, bin) == 0 && others_cache->in_use);
  snug_counters.pid--;

  for (size_t i = 0; i < COUNT_OF(remote_blocks); i++) remote_blocks[i] = malloc(SIZE);
  for (size_t i = 0; i < OPENING_MISSES; i++) first_remote_blocks[i] = malloc(SIZE);
  cache_empty_own();
  uint64_t live = outstanding(CLASS);
  let(5);
  live -= OPENING_MISSES; /* those go at once */
  CHECK_THAT(others_cache->remote_count == REMOTE_MAX - 1 && outstanding(CLASS) == live, "%u remote blocks",
             others_cache->remote_count);
  CHECK(held_bytes() == (REMOTE_MAX - 1) * SIZE);
  let(6);
  CHECK(others_cache->remote_count == 0 && outstanding(CLASS) == live - REMOTE_MAX);
  let(7);
  CHECK(others_cache->remote_count == 5);
  __atomic_store_n(&stage, 8, __ATOMIC_RELEASE);
  uint32_t users = arena_users(1);
  pthread_join(thread, NULL); /* its end gives everything back */
  CHECK(!others_cache->in_use && others_cache->remote_count == 0 && arena_users(1) == users - 1);
  CHECK_THAT(outstanding(CLASS) == live - REMOTE_MAX - 5, "%zu outstanding, %zu live", (size_t)outstanding(CLASS),
             (size_t)live - REMOTE_MAX - 5);
  for (size_t i = REMOTE_MAX + 5; i < COUNT_OF(remote_blocks); i++) free(remote_blocks[i]);
  cache_empty_own();
  CHECK(outstanding(CLASS) == 0);
  thaw_policies();
  snug_check();
}

static void *follow_the_setting(void *argument) {
  (void)argument;
  wait_for(1); /* its bin is open and holds blocks */
  open_bin(SIZE);
  void *block = malloc(SIZE);
  others_cache = this_thread.own;
  done(1);
  wait_for(2);
  free(block); /* the bin has room for it, and then has it */
  free(malloc(SIZE));
  CHECK_THAT(this_thread.profile == options.profile, "the thread follows the setting %u", this_thread.profile);
  done(2);
  wait_for(3);
  return NULL;
}

/* Calling a thread in shuts the same door as a thief does. */
TEST(a_thread_that_was_called_in_comes_though_its_cache_was_stolen) {
  enum { SETTING = 1 << 30 }; /* no sample is taken */
  pthread_t thread;
  freeze_policies();
  __atomic_store_n(&stage, 0, __ATOMIC_RELEASE);
  REQUIRE(pthread_create(&thread, NULL, follow_the_setting, NULL) == 0);
  let(1);
  __atomic_store_n(&options.profile, SETTING, __ATOMIC_RELAXED);
  cache_call_in();
  size_t bytes = 0;
  for (int look = 0; look < 5 && bytes == 0; look++) bytes = steal_caches(2, this_thread.own);
  CHECK_THAT(bytes != 0, "a cache that was called in was not stolen");
  CHECK(others_cache->door.cache == &empty_cache);
  let(2);
  CHECK(others_cache->door.cache == others_cache);
  __atomic_store_n(&options.profile, 0, __ATOMIC_RELAXED);
  cache_call_in();
  __atomic_store_n(&stage, 3, __ATOMIC_RELEASE);
  pthread_join(thread, NULL);
  free(malloc(SIZE));
  thaw_policies();
  snug_check();
}

/* A shut door does not make a cache a victim. */
TEST(a_thread_that_was_called_in_while_at_work_keeps_its_blocks) {
  pthread_t thread;
  freeze_policies();
  __atomic_store_n(&stage, 0, __ATOMIC_RELEASE);
  REQUIRE(pthread_create(&thread, NULL, follow_the_setting, NULL) == 0);
  let(1);
  cache_call_in();
  uint64_t steals = snug_counters.steals;
  size_t held = bin_count(others_cache, &others_cache->bin[CLASS]);
  open_bin(SIZE); /* this thread is the victim, as if another were the thief */
  REQUIRE(held != 0 && cached(CLASS) != 0);
  this_thread.own->seen = cache_sign_of_life(this_thread.own);
  this_thread.own->idle_ticks = 5;
  others_cache->seen = 0; /* it was at work just now */
  CHECK(steal_caches(2, NULL) != 0 && cached(CLASS) == 0);
  CHECK_THAT(bin_count(others_cache, &others_cache->bin[CLASS]) == held && snug_counters.steals == steals + 1,
             "%zu thefts", (size_t)(snug_counters.steals - steals));
  let(2);
  __atomic_store_n(&stage, 3, __ATOMIC_RELEASE);
  pthread_join(thread, NULL);
  thaw_policies();
  snug_check();
}

/* Caches of ended threads serve new ones. */
static void *use_a_little(void *argument) {
  (void)argument;
  free(malloc(SIZE));
  free(malloc(20000));
  return this_thread.own;
}

TEST(ended_threads_leave_their_caches_to_others) {
  freeze_policies();
  void *first = NULL, *cache = NULL;
  uint64_t in_use = snug_counters.caches;
  for (int i = 0; i < 50; i++) {
    pthread_t thread;
    REQUIRE(pthread_create(&thread, NULL, use_a_little, NULL) == 0);
    pthread_join(thread, &cache);
    if (i == 0) first = cache;
    CHECK(cache != NULL && cache == first);
  }
  CHECK(snug_counters.caches == in_use);
  thaw_policies();
}

/* By the system call, without fork handlers. In the copy its thread has another id than the cache says. */
TEST(in_a_copy_nobody_takes_the_cache_of_its_thread) {
  if (is_emulated()) SKIP("the emulator wipes no page");
  free(malloc(SIZE));
  pid_t copy = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
  if (copy == 0) {
    options.background = 0;
    for (int i = 0; i < 100; i++) free(malloc(SIZE));
    maintain_claim_copy();
    for (int i = 0; i < 2 * GONE_TICKS; i++) steal_caches(2, NULL); /* as a janitor does */
    _exit(this_thread.own != NULL && this_thread.own->in_use ? 0 : 1);
  }
  int status = -1;
  CHECK(copy > 0 && waitpid(copy, &status, 0) == copy);
  CHECK_THAT(status == 0, "wait status 0x%x", status);
}

static void *vfork_first(void *argument) {
  pid_t child = vfork();
  if (child == 0) {
    free(malloc(SIZE));
    _exit(0);
  }
  int status = -1;
  CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
  REQUIRE(this_thread.own != NULL && this_thread.own->in_use); /* the child attached it */
  CHECK_THAT(this_thread.own->thread_id == 0, "the cache is thread %u's, this one is %u", this_thread.own->thread_id,
             (unsigned)gettid());
  return argument;
}

/* The child's id is nobody's soon: under it the cache would be taken back from a thread that uses it. */
TEST(a_cache_that_a_child_of_vfork_attached_is_no_vanished_threads) {
  if (is_emulated()) SKIP("the emulator makes a fork of each vfork");
  pthread_t thread;
  REQUIRE(pthread_create(&thread, NULL, vfork_first, NULL) == 0);
  pthread_join(thread, NULL);
}

static void *end_without_a_word(void *argument) {
  (void)argument;
  free(malloc(SIZE));
  cache_empty_own();
  struct cache *own = this_thread.own;
  hooks_thread_begins(NULL); /* as after the last round of destructors */
  return own;
}

TEST(an_empty_cache_of_an_ended_thread_is_released) {
  freeze_policies();
  uint64_t in_use = snug_counters.caches;
  pthread_t thread;
  void *cache = NULL;
  REQUIRE(pthread_create(&thread, NULL, end_without_a_word, NULL) == 0);
  pthread_join(thread, &cache);
  CHECK(((struct cache *)cache)->in_use && snug_counters.caches == in_use + 1);
  for (int i = 0; i < 2 * GONE_TICKS; i++) steal_caches(2, this_thread.own);
  /* An emulator may end a thread some time after pthread_join. */
  for (int i = 0; i < 1000 && ((struct cache *)cache)->in_use; i++) {
    usleep(1000);
    for (int look = 0; look < 2 * GONE_TICKS; look++) steal_caches(2, this_thread.own);
  }
  CHECK_THAT(!((struct cache *)cache)->in_use && snug_counters.caches == in_use, "%zu caches, %zu before",
             (size_t)snug_counters.caches, (size_t)in_use);
  thaw_policies();
}

/* ---- all at once ---- */

enum { THREADS = 4, LIVE = 400, STEPS = 60000 };
static bool stop_thief;

static void *steal_all_the_time(void *argument) {
  (void)argument;
  while (!__atomic_load_n(&stop_thief, __ATOMIC_RELAXED)) {
    steal_caches(0, this_thread.own);
    cache_tick();
    slab_tick();
    slab_purge(0, true, 1000, SIZE_MAX);
    sched_yield();
  }
  return NULL;
}

static void *allocate_at_random(void *argument) {
  uint64_t random = (uintptr_t)argument;
  struct {
    char *start;
    size_t size_bytes;
    uint64_t seed;
  } mine[LIVE] = {{NULL, 0, 0}};
  for (int step = 0; step < STEPS; step++) {
    size_t i = random_below(&random, LIVE);
    if (mine[i].start != NULL) {
      CHECK_THAT(pattern_mismatch(mine[i].start, mine[i].size_bytes, mine[i].seed) == mine[i].size_bytes, "%p",
                 mine[i].start);
      free(mine[i].start);
      mine[i].start = NULL;
    } else {
      mine[i].size_bytes = 1 + random_below(&random, random_below(&random, 20) == 0 ? 9000 : 300);
      mine[i].seed = random_next(&random);
      mine[i].start = malloc(mine[i].size_bytes);
      fill_pattern(mine[i].start, mine[i].size_bytes, mine[i].seed);
    }
    if (step % 8192 == 0) { /* between arenas, as crowded threads do */
      door_enter(this_thread.door);
      lock_take(&caches.lock, RANK_CACHES);
      if (this_thread.own != NULL) move_to_arena(this_thread.own, (uint32_t)random_below(&random, 3));
      lock_give(&caches.lock, RANK_CACHES);
      door_leave(this_thread.door);
    }
  }
  for (size_t i = 0; i < LIVE; i++) free(mine[i].start);
  return NULL;
}

TEST(random_threads_and_a_thief_keep_every_block) {
  pthread_t threads[THREADS], thief;
  static uint64_t before[CLASS_COUNT];
  freeze_policies();
  cache_empty_own();
  for (unsigned i = 1; i < CLASS_COUNT; i++) before[i] = outstanding(i);
  for (uintptr_t i = 0; i < THREADS; i++)
    REQUIRE(pthread_create(&threads[i], NULL, allocate_at_random, (void *)(i + 1)) == 0);
  REQUIRE(pthread_create(&thief, NULL, steal_all_the_time, NULL) == 0);
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  __atomic_store_n(&stop_thief, true, __ATOMIC_RELAXED);
  pthread_join(thief, NULL);
  thaw_policies();
  snug_check();
  uint64_t leaked = 0;
  for (unsigned i = 1; i < CLASS_COUNT; i++) {
    if (class_shapes[i].size_bytes < 200 ||
        class_shapes[i].size_bytes > 400) { /* libc keeps the thread's vector of TLS */
      CHECK_THAT(outstanding(i) == before[i], "class of %u: %zu blocks, %zu before", class_shapes[i].size_bytes,
                 (size_t)outstanding(i), (size_t)before[i]);
    } else {
      leaked += outstanding(i) - before[i];
    }
  }
  CHECK_THAT(leaked <= THREADS + 1, "%zu blocks leaked", (size_t)leaked);
  CHECK(snug_counters.steals > 0);
}
