/* fork_lost_test.c: a child has all that its parent's heap had: what other threads were about to do at the instant of
 * the fork loses no block and no page, but the one block of a call that was not over. */
#include "../../src/sys.c"
#include "above_sys.h"
#include "unit.h"

#include <ucontext.h>

enum { THREADS = 6, FORKERS = 4, FORKS = 60, LIVE = 300, ALL_THREADS = THREADS + FORKERS + 2 };

/* What the program has, by threads: a block leaves it before it is freed. */
static struct {
  void *volatile block[LIVE];
} live[ALL_THREADS];

static uint64_t outstanding_blocks(void) {
  uint64_t sum = 0;
  for (unsigned arena = 0; arena < ARENA_MAX; arena++)
    for (unsigned i = 1; i < CLASS_COUNT; i++) sum += counter_get(&snug_counters.classes[arena][i].outstanding_blocks);
  return sum;
}

static uint64_t slots_in_use(void) {
  uint64_t sum = 0;
  for (uint32_t number = 1; number < slab_record_count(); number++) {
    const struct slab *slab = &slabs.records[number];
    if (slab->class_index != 0 && slab->bucket != BUCKET_NO_SLAB) sum += (uint64_t)shape_of(slab)->slots - slab->free;
  }
  return sum;
}

/* Blocks of the program in slabs, by their slots; and runs. */
static void count_known(uint64_t *slots, uint64_t *runs) {
  *slots = *runs = 0;
  for (size_t i = 0; i < ALL_THREADS; i++) {
    for (size_t j = 0; j < LIVE; j++) {
      const void *block = live[i].block[j];
      if (block == NULL || page_index(block) >= zone_pages()) continue;
      unsigned kind = page_kind(page_index(block));
      *runs += kind == KIND_RUN;
      if (is_class(kind)) *slots += slab_block_size(block) / slab_slot_size(block);
    }
  }
}

/* Each page is free, a slab's or a run's. */
static size_t count_runs_and_lost_pages(uint64_t *runs, uint64_t *run_pages) {
  size_t lost = 0;
  *runs = *run_pages = 0;
  for (size_t page = 0; page < pages_top();) {
    size_t length = page_kind(page) == KIND_RUN ? length_of(page) : 1;
    *runs += page_kind(page) == KIND_RUN;
    *run_pages += page_kind(page) == KIND_RUN ? length : 0;
    lost += page_kind(page) == 0 && !bits_test(zone.free_bits, page);
    page += length;
  }
  return lost;
}

static struct {
  uint64_t slots, runs; /* libc's, and the test's own */
} others;

static void note_others(void) {
  uint64_t slots, runs, all_runs, run_pages;
  cache_empty_own();
  count_known(&slots, &runs);
  count_runs_and_lost_pages(&all_runs, &run_pages);
  others.slots = slots_in_use() - slots;
  others.runs = all_runs - runs;
}

/* At most `amid` calls were not over. */
static void check_nothing_is_lost(uint64_t amid) {
  uint64_t slots, runs, all_runs, run_pages;
  free(malloc(100)); /* takes stock */
  snug_purge();
  snug_check();
  cache_empty_own();
  count_known(&slots, &runs);
  size_t lost = count_runs_and_lost_pages(&all_runs, &run_pages);
  CHECK_THAT(lost == 0, "%zu of %zu pages are lost", lost, pages_top());
  CHECK_THAT(all_runs <= runs + others.runs + amid, "%d runs, of which %d are live", (int)all_runs, (int)runs);
  CHECK_THAT(counter_get(&snug_counters.run_blocks) == all_runs &&
                 counter_get(&snug_counters.run_bytes) == run_pages * PAGE_BYTES,
             "%d runs of %d pages are counted, and %d of %d are there", (int)snug_counters.run_blocks,
             (int)(snug_counters.run_bytes / PAGE_BYTES), (int)all_runs, (int)run_pages);
  CHECK_THAT(slots_in_use() <= slots + others.slots + amid, "%d slots are in use, %d of live blocks, and %d of others",
             (int)slots_in_use(), (int)slots, (int)others.slots);
  CHECK_THAT(outstanding_blocks() == slots_in_use(), "%d slots count as in use, not %d", (int)outstanding_blocks(),
             (int)slots_in_use());
}

static bool child_lost_something(uint64_t amid) {
  int status = 0;
  pid_t child = fork(), waited;
  if (child == 0) {
    test_failed = 0;
    alarm(20);
    check_nothing_is_lost(amid);
    _exit(test_failed != 0);
  }
  CHECK(child > 0);
  do waited = waitpid(child, &status, 0);
  while (waited < 0 && errno == EINTR);
  return waited != child || status != 0;
}

/* ---- at random ---- */

static bool stops;                                    /* atomic */
static uint32_t forks_done, forks_lost, begun, began; /* atomic */

static size_t some_bytes(uint64_t *random) {
  uint64_t kind = random_below(random, 100);
  if (kind < 80) return 16 + random_below(random, 1000);
  if (kind < 95) return 1000 + random_below(random, 20000);
  return 33000 + random_below(random, 900000);
}

static void change(size_t number, uint64_t *random) {
  void *volatile *slot = &live[number].block[random_below(random, LIVE)];
  void *block = *slot;
  *slot = NULL;
  __atomic_signal_fence(__ATOMIC_SEQ_CST);
  free(block);
  if (random_below(random, 4) == 0) return;
  size_t bytes = some_bytes(random);
  block = malloc(bytes);
  if (block == NULL) abort();
  memset(block, 1, bytes);
  *slot = block;
}

static void wait_for_all(void) {
  __atomic_fetch_add(&begun, 1, __ATOMIC_RELAXED);
  while (!__atomic_load_n(&began, __ATOMIC_ACQUIRE)) sleep_ms(1);
}

static void *change_until_the_end(void *argument) {
  uint64_t random = 1 + (uintptr_t)argument;
  free(malloc(1));
  wait_for_all();
  while (!__atomic_load_n(&stops, __ATOMIC_RELAXED)) change((uintptr_t)argument, &random);
  return NULL;
}

static void *purge_until_the_end(void *argument) {
  wait_for_all();
  for (uint32_t i = 0; !__atomic_load_n(&stops, __ATOMIC_RELAXED); i++) {
    if (i % 2 == 0) snug_purge();
    if (i % 2 != 0) tick_now(NULL, false);
    usleep(300);
  }
  return argument;
}

static void *fork_until_the_end(void *argument) {
  uint64_t random = 1 + (uintptr_t)argument;
  wait_for_all();
  while (!__atomic_load_n(&stops, __ATOMIC_RELAXED)) {
    for (int i = 0; i < 300; i++) change((uintptr_t)argument, &random);
    bool lost = child_lost_something(ALL_THREADS - 1);
    __atomic_fetch_add(&forks_lost, lost, __ATOMIC_RELAXED);
    __atomic_fetch_add(&forks_done, 1, __ATOMIC_RELAXED);
  }
  return NULL;
}

TEST(threads_that_fork_side_by_side_lose_nothing) {
  pthread_t threads[ALL_THREADS - 1];
  if (is_emulated()) SKIP("slow, and a child of several threads may not start one");
  for (size_t i = 0; i < COUNT_OF(threads); i++) {
    void *(*body)(void *) = i < THREADS             ? change_until_the_end
                            : i < THREADS + FORKERS ? fork_until_the_end
                                                    : purge_until_the_end;
    REQUIRE(pthread_create(&threads[i], NULL, body, (void *)(uintptr_t)i) == 0);
  }
  while (__atomic_load_n(&begun, __ATOMIC_RELAXED) != COUNT_OF(threads)) sleep_ms(1);
  note_others();
  __atomic_store_n(&began, 1, __ATOMIC_RELEASE);
  while (__atomic_load_n(&forks_done, __ATOMIC_RELAXED) < FORKS) sleep_ms(1);
  __atomic_store_n(&stops, true, __ATOMIC_RELAXED);
  for (size_t i = 0; i < COUNT_OF(threads); i++) pthread_join(threads[i], NULL);
  CHECK_THAT(forks_lost == 0, "%u of %u children lost something", forks_lost, forks_done);
  for (size_t i = 0; i < ALL_THREADS; i++)
    for (size_t j = 0; j < LIVE; j++) free(live[i].block[j]), live[i].block[j] = NULL;
  snug_check();
}

/* ---- after each instruction that changes the heap or a cache: another thread forks there ---- */

#if defined(__x86_64__)

enum { TRAP_FLAG = 0x100 };
static volatile bool stepping;
static uint64_t last_state;
static uint32_t wanted_forks, made_forks, lost_at; /* atomic */
static void (*volatile action)(void);
static uint64_t blocks_amid; /* a realloc that moves has two */

static uint64_t state_of_heap(void) {
  uint64_t sum = pages.free_pages * 31 + pages.dirty_pages;
  sum = (sum * 31 + slots_in_use()) * 31 + outstanding_blocks() + counter_get(&snug_counters.run_blocks);
  for (uint32_t i = 0; i < caches.count; i++) {
    const struct cache *cache = cache_number(i);
    sum = sum * 31 + cache->in_use + 7 * cache->changing + cache->remote_count;
    sum = sum * 31 + cache_sign_of_life(cache);
    for (unsigned k = 1; k < CLASS_COUNT; k++) sum = sum * 31 + cache->bin[k].low;
  }
  return sum;
}

static bool locks_are_free(void) {
  bool are_free = caches.lock.state == 0 && slabs.records_lock.state == 0 && pages.lock.state == 0 &&
                  large.lock.state == 0 && map.lock.state == 0 && purge.lock.state == 0;
  for (unsigned arena = 0; arena < arena_count(); arena++)
    for (unsigned i = 1; i < CLASS_COUNT; i++) are_free &= slabs.heads[arena][i].lock.state == 0;
  return are_free;
}

static void after_a_step(int signal_number, siginfo_t *info, void *context) {
  (void)signal_number, (void)info;
  greg_t *flags = &((ucontext_t *)context)->uc_mcontext.gregs[REG_EFL];
  *flags = stepping ? *flags | TRAP_FLAG : *flags & ~(greg_t)TRAP_FLAG;
  if (!stepping || !cache_thread_is_inside() || !locks_are_free()) return;
  uint64_t state = state_of_heap();
  if (state == last_state) return;
  last_state = state;
  uint32_t wanted = __atomic_add_fetch(&wanted_forks, 1, __ATOMIC_RELEASE);
  while (__atomic_load_n(&made_forks, __ATOMIC_ACQUIRE) != wanted) sleep_ms(0);
}

static void *act_step_by_step(void *argument) {
  free(malloc(1));
  last_state = state_of_heap();
  stepping = true;
  raise(SIGTRAP);
  action();
  stepping = false;
  __atomic_store_n(&stops, true, __ATOMIC_RELEASE);
  return argument;
}

/* Returns how many forks there were. */
static uint32_t fork_beside(void (*acts)(void)) {
  pthread_t thread;
  struct sigaction steps = {.sa_sigaction = after_a_step, .sa_flags = SA_SIGINFO}, before;
  sigaction(SIGTRAP, &steps, &before);
  action = acts;
  stops = false;
  wanted_forks = made_forks = lost_at = 0;
  REQUIRE(pthread_create(&thread, NULL, act_step_by_step, NULL) == 0);
  while (!__atomic_load_n(&stops, __ATOMIC_ACQUIRE)) {
    if (__atomic_load_n(&wanted_forks, __ATOMIC_ACQUIRE) == made_forks) continue;
    if (child_lost_something(blocks_amid) && lost_at == 0) lost_at = made_forks + 1;
    __atomic_store_n(&made_forks, made_forks + 1, __ATOMIC_RELEASE);
  }
  pthread_join(thread, NULL);
  sigaction(SIGTRAP, &before, NULL);
  return made_forks;
}

enum { CLASS_BYTES = 64 };

static void hold(size_t index, void *block) { live[0].block[index] = block; }

static void let_go(size_t index) {
  void *block = live[0].block[index];
  live[0].block[index] = NULL;
  __atomic_signal_fence(__ATOMIC_SEQ_CST);
  free(block);
}

static void fill_and_empty_a_bin(void) {
  for (size_t i = 0; i < 40; i++) hold(i, malloc(CLASS_BYTES));
  for (size_t i = 0; i < 40; i++) let_go(i);
  for (size_t i = 0; i < 40; i++) hold(i, malloc(CLASS_BYTES));
  for (size_t i = 0; i < 40; i++) let_go(i);
}

/* Of a bin that is half full the older part goes, and more stays. */
static void let_capacity_go(void) {
  stepping = false;
  for (int turn = 0; turn < 4; turn++) fill_and_empty_a_bin();
  for (size_t i = 0; i < 10; i++) hold(i, malloc(CLASS_BYTES));
  struct cache *own = this_thread.own;
  for (unsigned i = 1; i < CLASS_COUNT; i++) own->bin[i].misses = 0;
  last_state = state_of_heap();
  stepping = true;
  raise(SIGTRAP);
  for (int i = 0; i < 8; i++) {
    for (unsigned k = 1; k < CLASS_COUNT; k++) own->bin[k].misses = 0;
    cache_tick();
    hold(40, malloc(12000));
    let_go(40);
  }
  for (size_t i = 0; i < 10; i++) let_go(i);
}

static void give_and_take_runs(void) {
  for (size_t i = 0; i < 4; i++) hold(i, malloc(40000 + 30000 * i));
  for (size_t i = 0; i < 4; i++) {
    void *block = live[0].block[i];
    live[0].block[i] = NULL;
    hold(i, realloc(block, i % 2 != 0 ? 36000 : 200000));
  }
  for (size_t i = 0; i < 4; i++) let_go(i);
}

static void empty_own_cache(void) {
  fill_and_empty_a_bin();
  cache_slow_path_begins();
  cache_empty_own();
  cache_slow_path_ends();
}

/* Of another arena than the thread's, collected. */
static void give_remote_blocks(void) {
  struct cache *own = this_thread.own;
  stepping = false;
  for (size_t i = 0; i < 100; i++) hold(i, malloc(i % 2 != 0 ? CLASS_BYTES : 200));
  own->slow_calls = CONTENTION_PERIOD - 1;
  own->contentions = CONTENTION_LIMIT;
  stepping = true;
  raise(SIGTRAP);
  hold(100, malloc(12000)); /* it moves */
  CHECK_THAT(own->arena != 0, "the thread has not moved");
  for (size_t i = 0; i < 101; i++) let_go(i);
  CHECK(own->remote_misses > OPENING_MISSES);
  cache_tick();
  hold(0, malloc(12000));
  let_go(0);
  cache_tick();
  own->remote_misses = 0;
  hold(0, malloc(12000));
  let_go(0);
}

static void begin_and_end(void) {
  fill_and_empty_a_bin();
  thread_ends(&this_thread);
}

static void purge_as_before_a_fork(void) {
  stepping = false;
  options.purge_cpu_percent = 0; /* what is freed stays dirty */
  purge.tokens_ns = 0;
  for (size_t i = 0; i < 40; i++) hold(i, memset(malloc(300000), 1, 300000));
  for (size_t i = 0; i < 40; i += 2) let_go(i);
  last_state = state_of_heap(); /* another fork purges, too: none before this one has begun */
  stepping = true;
  raise(SIGTRAP);
  cache_slow_path_begins();
  CHECK(pages_dirty() > PURGE_BEFORE_FORK_PAGES);
  purge_before_fork();
  cache_slow_path_ends();
  for (size_t i = 1; i < 40; i += 2) let_go(i);
}

TEST(no_instant_of_a_slow_path_loses_what_another_thread_s_child_should_have) {
  static const struct {
    const char *name;
    void (*acts)(void);
    uint64_t blocks_amid;
    uint32_t least_forks;
  } all[] = {
      {"fills and empties a bin", fill_and_empty_a_bin, 1, 20}, {"lets capacity go", let_capacity_go, 1, 10},
      {"gives and takes runs", give_and_take_runs, 2, 10},      {"empties its cache", empty_own_cache, 1, 20},
      {"gives remote blocks", give_remote_blocks, 1, 20},       {"gets a cache and ends", begin_and_end, 1, 3},
      {"purges before a fork", purge_as_before_a_fork, 1, 1},
  };
  if (is_emulated()) SKIP("no steps there");
  options.background = 0;
  arena_set_cpus(4);
  arena_join(0); /* a second one is worth it */
  arena_join(0);
  for (size_t i = 0; i < COUNT_OF(all); i++) {
    note_others();
    others.slots += 2; /* of the thread */
    blocks_amid = all[i].blocks_amid;
    uint32_t forks = fork_beside(all[i].acts);
    CHECK_THAT(lost_at == 0, "a child lost something where a thread %s, in fork %u of %u", all[i].name, lost_at, forks);
    CHECK_THAT(forks >= all[i].least_forks, "%u forks where a thread %s", forks, all[i].name);
  }
  arena_leave(0);
  arena_leave(0);
  snug_check();
}

#endif
