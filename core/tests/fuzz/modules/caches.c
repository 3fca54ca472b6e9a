/* caches.c: the caches of some threads and thieves at work, in one thread that is each of them in turn: what makes a
 * thread is this_thread and its id. So every step of one comes between two of another. In the end every block is in a
 * slab again, whatever became of the threads. */
#include "world.h"

#include "../../../src/cache.h"
#include "../../../src/counters.h"
#include "../../../src/pages.h"
#include "../../../src/purge.h"
#include "../../../src/slab.h"
#include "../../../src/steal.h"
#include "../../../src/survey.h"
#include "blocks.h"

#include <sys/syscall.h>

enum { THREADS = 6, LIVE = 4096, FIRST_ID = 100000, BURST = 40 };

enum cache_operation {
  CACHE_MALLOC,
  CACHE_FREE,
  CACHE_BURST,
  CACHE_FREE_BURST,
  CACHE_SWITCH,
  CACHE_END,
  CACHE_VANISH,
  CACHE_STEAL,
  CACHE_STEAL_ALL,
  CACHE_TICK,
  CACHE_CALL_IN,
  CACHE_EMPTY,
  CACHE_STAY_BUSY,
  CACHE_CONTEND,
  CACHE_SURVEY,
  CACHE_TAKE_ENDED,
};

static const char *const cache_operations[] = {
    "malloc", "free",    "burst", "free_burst", "switch",  "end",    "vanish",     "steal", "steal_all",
    "tick",   "call_in", "empty", "stay_busy",  "contend", "survey", "take_ended", NULL,
};

static struct actor {
  struct thread thread;
  uint32_t id;
  bool is_amid; /* its door is busy, as if it were amid a slow path */
} actors[THREADS];
static unsigned current;
static uint32_t next_id;

static struct live_block {
  char *start;
  size_t bytes;
  uint64_t seed;
} live[LIVE];
static size_t live_count;
static uint64_t seeds, random_state, bytes_before;

static bool answer(long number, long a, long b, long *result) {
  (void)a;
  if (number == SYS_gettid) return *result = actors[current].id, true;
  if (number != SYS_tgkill || b < FIRST_ID) return false;
  *result = -ESRCH;
  for (unsigned i = 0; i < THREADS; i++)
    if (actors[i].id == b) *result = 0;
  return true;
}

static uint64_t outstanding_bytes(void) {
  uint64_t sum = 0;
  for (unsigned arena = 0; arena < arena_count(); arena++)
    for (unsigned i = 1; i < CLASS_COUNT; i++)
      sum += snug_counters.classes[arena][i].outstanding_blocks * class_shapes[i].size_bytes;
  return sum;
}

static void become(unsigned number) {
  actors[current].thread = this_thread;
  current = number;
  this_thread = actors[number].thread;
  if (!actors[number].is_amid) return;
  actors[number].is_amid = false;
  __atomic_store_n(&this_thread.own->door.busy, 0, __ATOMIC_RELEASE);
  this_thread.door = &this_thread.own->door;
}

static void become_new(void) {
  this_thread = (struct thread){.door = &empty_cache.door};
  actors[current].id = next_id++;
}

static void take(size_t bytes) {
  uint64_t refused = refused_calls;
  if (live_count == LIVE) return;
  char *start = own_allocator.malloc(bytes);
  if (start == NULL) {
    if (refused == refused_calls) fuzz_fail("no memory for %zu bytes", bytes);
    fuzz_counts->failed++;
    return;
  }
  live[live_count++] = (struct live_block){start, bytes, ++seeds};
  mark(start, bytes, seeds);
}

static void give(size_t number) {
  if (live_count == 0) return;
  struct live_block *block = &live[number % live_count];
  size_t at = mark_mismatch(block->start, block->bytes, block->bytes, block->seed);
  if (at != SIZE_MAX) fuzz_fail("the block %p of %zu bytes has changed at %zu", (void *)block->start, block->bytes, at);
  char *start = block->start;
  *block = live[--live_count];
  own_allocator.free(start);
}

static void steal(uint32_t ticks) {
  if (!purge_try_lock()) fuzz_fail("the purge lock is taken");
  steal_caches(ticks, this_thread.own);
  purge_unlock();
}

/* The current thread is amid a slow path, and another one goes on. */
static void stay_busy(unsigned other) {
  struct cache *own = this_thread.own;
  if (own == NULL || other == current || this_thread.door != &own->door) return;
  if (__atomic_load_n(&own->door.cache, __ATOMIC_RELAXED) != own) return;
  this_thread.door = &empty_cache.door;
  own->door.busy = 1;
  actors[current].is_amid = true;
  become(other);
}

static void take_ended(void) {
  struct cache *batch[CACHE_ENDED_BATCH];
  uint32_t count = cache_take_ended(batch);
  for (uint32_t i = 0; i < count; i++) {
    survey_forget(batch[i]);
    madvise(batch[i], CACHE_BYTES, MADV_DONTNEED);
  }
  cache_put_back(batch, count);
}

static void cache_begin(void) {
  begin_core();
  cache_empty_own();
  bytes_before = outstanding_bytes();
  arena_set_cpus(4);
  next_id = FIRST_ID;
  random_state = 1;
  module_answers = answer;
  end_own_thread();
  for (unsigned i = 0; i < THREADS; i++) {
    become(i);
    become_new();
  }
}

static void cache_step(unsigned operation, unsigned a, unsigned b) {
  size_t bytes = b % 4 == 0 ? b % CLASS_MAX_BYTES : 1 + b / 4 % 8 * 48;
  switch ((enum cache_operation)operation) {
    case CACHE_MALLOC: return take(bytes);
    case CACHE_FREE: return give(b);
    case CACHE_BURST:
      for (unsigned i = 0; i < a % BURST; i++) take(bytes);
      return;
    case CACHE_FREE_BURST:
      for (unsigned i = 0; i < a % BURST; i++) give(random_next(&random_state));
      return;
    case CACHE_SWITCH: return become(a % THREADS);
    case CACHE_END:
      if (b % 4 != 0) return;
      end_own_thread();
      return become_new();
    case CACHE_VANISH: /* without a word, as in its very last destructors */
      if (b % 8 == 0) become_new();
      return;
    case CACHE_STEAL: return steal(1 + a % 2);
    case CACHE_STEAL_ALL:
      if (a % 4 == 0) steal(0);
      return;
    case CACHE_TICK: return cache_tick();
    case CACHE_CALL_IN:
      if (a % 4 == 0) cache_call_in();
      return;
    case CACHE_EMPTY: return cache_empty_own();
    case CACHE_STAY_BUSY: return stay_busy(a % THREADS);
    case CACHE_CONTEND:
      if (this_thread.own != NULL) this_thread.own->contentions += 2;
      return;
    case CACHE_SURVEY: return survey_count_all();
    case CACHE_TAKE_ENDED: return take_ended();
  }
}

static void cache_check_all(void) {
  for (size_t i = 0; i < live_count; i++) {
    size_t at = mark_mismatch(live[i].start, live[i].bytes, live[i].bytes, live[i].seed);
    if (at != SIZE_MAX) fuzz_fail("the block %p has changed at %zu", (void *)live[i].start, at);
  }
  if (!cache_is_busy(this_thread.own != NULL ? this_thread.own : &empty_cache)) cache_check();
  slab_check();
}

static void cache_end(void) {
  while (live_count != 0) give(0);
  for (unsigned i = 0; i < THREADS; i++) become(i);
  own_allocator.free(hidden(own_allocator.malloc(1))); /* it comes by, if it was called in */
  cache_empty_own();
  steal(0);
  for (int i = 0; i < 64; i++) steal(1); /* those of vanished threads */
  cache_check_all();
  if (outstanding_bytes() != bytes_before)
    fuzz_fail("%lld bytes are lost", (long long)(outstanding_bytes() - bytes_before));
}

static void cache_spoil(void) {
  fuzz_refuse(0, 0);
  give(0);
  take(100);
  live[live_count - 1].start[0] ^= 1;
}

const struct fuzz_module caches_module = {"caches",        cache_operations, cache_begin, cache_step,
                                          cache_check_all, cache_end,        cache_spoil};
