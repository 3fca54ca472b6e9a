#include "cache.h"

#include "arena.h"
#include "bits.h"
#include "counters.h"
#include "fatal.h"
#include "hooks.h"
#include "lock.h"
#include "pages.h"
#include "rights.h"
#include "sys.h"

enum {
  CACHES_MAX = 16384,
  CONTENTION_PERIOD = 64, /* slow calls */
  CONTENTION_LIMIT = 2,   /* locks found held in that many: the thread moves to another arena */
  QUIET_TICKS = 100,      /* ten seconds without contention: back to arena 0 */
  UNSEAL_CHILD_SHIFT = 1, /* in a child a sealed slab serves again when half of it is free */
  CALLED_IN_AT_ONCE = 128,
  TAKEN_IN_AT_ONCE = 16, /* caches of vanished threads: a child's first slow call copies at most a page of each */
  STREAK_REFILL = 1,
  STREAK_FLUSH = 2,
};

struct cache empty_cache = {.door = {.cache = &empty_cache}}; /* threads without a cache share its door */
__thread struct thread this_thread FIXED_TLS = {.door = &empty_cache.door};

static struct {
  struct lock lock; /* rank CACHES: who owns which cache */
  struct table table;
  char *start;                        /* of cache 0, at a multiple of CACHE_BYTES */
  uint32_t count;                     /* caches ever used; atomic, rises under the lock */
  uint64_t unused[CACHES_MAX / 64];   /* one bit for each of these that has no owner; under the lock */
  uint32_t unused_from;               /* none below this number; under the lock */
  uint64_t ended[CACHES_MAX / 64];    /* the same of those without an owner that hold memory; under the lock */
  uint32_t ended_count;               /* atomic, written under the lock */
  uint64_t vanished[CACHES_MAX / 64]; /* in a child: those to be taken in (C9); under the lock */
  uint32_t vanished_count;            /* atomic, written under the lock */
  uint32_t capacity;
  uint32_t tick __attribute__((aligned(64))); /* atomic; read in slow paths: no neighbour that changes often */
  bool closed;                  /* no thread has a cache any more, or will have one; atomic, set under the lock */
  bool after_fork;              /* in a child that has not yet taken stock; atomic */
  bool skipped_locks;           /* there: its fork did (K4), so that what was being changed can't be known */
  const struct cache *survivor; /* there: the cache of the thread that forked, the only one that exists */
  uint32_t survivor_thread_id;
  bool sees_thread_ends;
} caches;

void (*cache_after_thread)(void);
void (*cache_gives_kept)(void);

static bool is_closed(void) { return __atomic_load_n(&caches.closed, __ATOMIC_RELAXED); }

uint32_t cache_used_count(void) { return __atomic_load_n(&caches.count, __ATOMIC_ACQUIRE); }

uint32_t cache_end_number(void) { return is_closed() ? 0 : cache_used_count(); }

bool cache_is_after_fork(void) { return __atomic_load_n(&caches.after_fork, __ATOMIC_RELAXED); }

void cache_lock_owners(void) { lock_take(&caches.lock, RANK_CACHES); }
void cache_unlock_owners(void) { lock_give(&caches.lock, RANK_CACHES); }

struct cache *cache_number(uint32_t number) { return (struct cache *)(caches.start + (size_t)number * CACHE_BYTES); }

static void thread_ends(void *thread);

/* The own cache, busy, or NULL when there is none, or it was taken away. C6 before busy: else a handler between the two
 * would leave it not busy, and a thief might come. */
static ALWAYS_INLINE struct cache *try_to_enter(void) {
  struct thread *thread = &this_thread;
  struct cache *own = thread->own;
  if (own == NULL) return NULL;
  thread->door = &empty_cache.door;
  __atomic_signal_fence(__ATOMIC_SEQ_CST);
  if (likely(door_enter(&own->door) == own)) return own;
  door_leave(&own->door);
  thread->door = &own->door;
  return NULL;
}

static ALWAYS_INLINE void cache_leave(struct cache *own) {
  door_leave(&own->door);
  __atomic_signal_fence(__ATOMIC_SEQ_CST);
  this_thread.door = &own->door;
}

/* Which blocks of a batch have gone when a mistake is found can't be known. With the door free a thief of the parent's
 * is at it. */
static void leave_slow_paths(void) {
  struct cache *own = this_thread.own;
  if (own != NULL && own->door.busy != 0 && own->changing) bins_drop(own);
  this_thread.inside = 0;
  this_thread.takes_sample = 0;
  if (own != NULL) cache_leave(own);
}

bool cache_init(void) {
  bins_init();
  caches.capacity = sys_address_space_limit_bytes() == UINT64_MAX ? CACHES_MAX : CACHES_MAX / 64;
  caches.table = table_reserve((size_t)caches.capacity * CACHE_BYTES + CACHE_BYTES, "snug thread caches");
  if (caches.table.start == NULL) return false;
  table_register(&caches.table);
  caches.start = (char *)round_up((uintptr_t)caches.table.start, CACHE_BYTES);
  caches.sees_thread_ends = hooks_watch_threads(thread_ends);
  leave_borrowed_by(leave_slow_paths);
  if (rights_have(RIGHT_OTHERS))
    sys_barrier_register(); /* cheap now; with more threads the kernel waits for all CPUs */
  return true;
}

static uint32_t cache_index(const struct cache *cache) {
  return (uint32_t)((size_t)((const char *)cache - caches.start) / CACHE_BYTES);
}

static void set_unused(uint32_t number, bool unused) {
  bits_set(caches.unused, number, 1, unused);
  if (unused && number < caches.unused_from) caches.unused_from = number;
}

static void set_ended(uint32_t number, bool ended) {
  uint32_t changed = (uint32_t)bits_set(caches.ended, number, 1, ended);
  __atomic_store_n(&caches.ended_count, caches.ended_count + (ended ? changed : -changed), __ATOMIC_RELAXED);
}

/* Whether it has an owner. The caches lock is held. */
static void set_in_use(struct cache *cache, bool in_use) {
  uint32_t number = cache_index(cache);
  __atomic_store_n(&cache->in_use, in_use, __ATOMIC_RELAXED);
  set_unused(number, !in_use);
  set_ended(number, !in_use);
}

uint32_t cache_ended_count(void) { return __atomic_load_n(&caches.ended_count, __ATOMIC_RELAXED); }

uint32_t cache_take_ended(struct cache *batch[CACHE_ENDED_BATCH]) {
  uint32_t count = 0, number = 0;
  lock_take(&caches.lock, RANK_CACHES);
  while (count < CACHE_ENDED_BATCH && caches.ended_count != 0) {
    number = (uint32_t)bits_find(caches.ended, number, caches.count, true);
    if (number == caches.count) break;
    set_unused(number, false);
    set_ended(number, false);
    batch[count++] = cache_number(number);
  }
  lock_give(&caches.lock, RANK_CACHES);
  return count;
}

void cache_put_back(struct cache *const batch[], uint32_t count) {
  lock_take(&caches.lock, RANK_CACHES);
  for (uint32_t i = 0; i < count; i++) {
    if (!batch[i]->in_use) set_unused(cache_index(batch[i]), true); /* else a child has used it meanwhile (K4) */
  }
  lock_give(&caches.lock, RANK_CACHES);
}

/* In a child, after the fork. The caches lock is held. */
static void take_in(struct cache *cache, bool stays) {
  cache->is_victim = false; /* of a thief at work when a handler forked (K4) */
  if (!caches.skipped_locks) bins_end_change(cache);
  if (!cache->changing) cache_give_all(cache); /* else what the bins hold can't be known: lost to the child */
  bins_reset(cache);
  set_in_use(cache, stays);
}

/* Returns how far it came. The caches lock is held. */
static uint32_t take_some_in(uint32_t first, uint32_t end) {
  for (int i = 0; i < TAKEN_IN_AT_ONCE && caches.vanished_count != 0; i++) {
    first = (uint32_t)bits_find(caches.vanished, first, end, true);
    if (first == end) return end;
    struct cache *cache = cache_number(first);
    take_in(cache, false);
    counter_add(&snug_counters.cached_bytes, -__atomic_exchange_n(&cache->counted_bytes, 0, __ATOMIC_RELAXED)); /* H1 */
    bits_set(caches.vanished, first, 1, false);
    __atomic_store_n(&caches.vanished_count, caches.vanished_count - 1, __ATOMIC_RELAXED);
  }
  return caches.vanished_count != 0 ? first : end;
}

bool cache_has_vanished(void) { return __atomic_load_n(&caches.vanished_count, __ATOMIC_RELAXED) != 0; }

bool cache_take_vanished_in(uint32_t first, uint32_t end) {
  while (first < end && cache_has_vanished()) {
    if (is_purging_stopped()) return false;
    lock_take(&caches.lock, RANK_CACHES);
    first = take_some_in(first, end);
    lock_give(&caches.lock, RANK_CACHES);
  }
  return true;
}

static uint32_t lowest_unused(void) {
  return caches.unused_from = (uint32_t)bits_find(caches.unused, caches.unused_from, caches.count, true);
}

/* Room for the next cache. What is said of the first is said of those by which the table gets longer. */
static bool commit_next(uint32_t number) {
  size_t end = (size_t)(caches.start - caches.table.start) + (size_t)(number + 1) * CACHE_BYTES;
  if (number >= caches.capacity || !table_commit(&caches.table, end)) return false;
  const struct table *table = &caches.table;
  if (number == 0) sys_no_huge_pages(table->start, table->unreserved ? table->committed_bytes : table->reserved_bytes);
  return true;
}

/* The unused cache with the lowest number. The caches lock is held. */
static struct cache *find_unused(void) {
  uint32_t number = lowest_unused();
  if (unlikely(number == caches.capacity) && cache_has_vanished()) {
    take_some_in(0, number);
    number = lowest_unused();
  }
  if (number == caches.count && !commit_next(number)) return NULL;
  struct cache *cache = cache_number(number);
  bins_reset(cache);
  __atomic_store_n(&cache->door.cache, &empty_cache, __ATOMIC_RELAXED);
  if (number == caches.count) __atomic_store_n(&caches.count, number + 1, __ATOMIC_RELEASE);
  return cache;
}

static void set_arena(struct cache *cache, uint32_t arena) {
  ASSERT(cache->in_use);
  cache->arena = arena;
  this_thread.tag = arena << ARENA_SHIFT;
  arena_join(arena);
}

/* 0: nobody can say, or the caller is a child of vfork(2), which has this thread's variables for a while. Who has no id
 * never counts as gone. */
static uint32_t own_thread_id(void) {
  return rights_have(RIGHT_OTHERS) && rights_identity() == IDENTITY_OWN ? sys_thread_id() : 0;
}

bool cache_is_busy(const struct cache *cache) {
  return __atomic_load_n(&cache->door.busy, __ATOMIC_ACQUIRE) != 0 || bins_are_busy(cache);
}

/* A handler interrupted a fast path and forked: if it returns, that goes on with the bin that it found, which must then
 * be as it was. So the cache is left to it, and the thread gets another one. */
static void abandon_cache(struct thread *thread) {
  thread->own->is_abandoned = true;
  thread->own = NULL;
  thread->door = &empty_cache.door;
}

void cache_after_fork(void) {
  struct thread *thread = &this_thread;
  if (thread->own != NULL && !cache_thread_is_inside() && cache_is_busy(thread->own)) abandon_cache(thread);
  caches.survivor = thread->own;
  caches.survivor_thread_id = own_thread_id();
  caches.skipped_locks = lock_passes_over();
  __atomic_store_n(&caches.after_fork, true, __ATOMIC_RELAXED);
  if (thread->own != NULL) /* so that it comes to cache_attach */
    __atomic_store_n(&thread->own->door.cache, &empty_cache, __ATOMIC_RELAXED);
}

/* Whether a fast path that a handler interrupted may still come back to the cache. It is counted as nobody's, and
 * thieves may empty it when the fast path is done. The caches lock is held. */
static bool stays_abandoned(struct cache *cache) {
  if (!cache->is_abandoned) return false;
  cache->thread_id = 0; /* who has none never counts as gone */
  __atomic_store_n(&cache->door.cache, cache, __ATOMIC_RELAXED);
  cache->is_abandoned = cache_is_busy(cache);
  return cache->is_abandoned;
}

void cache_after_copy(void) {
  uint32_t count = cache_used_count();
  for (uint32_t i = 0; i < count; i++) {
    struct cache *cache = cache_number(i);
    if (__atomic_load_n(&cache->in_use, __ATOMIC_RELAXED)) cache->thread_id = 0;
  }
}

/* In a child: all but the cache of the only thread become unused ones. Whoever was attaching or ending at the fork may
 * have left its cache, the counts and the bits between two stores (K4): all are set anew from which are in use. Unused
 * ones are not written to: they lie in pages shared with the parent. Nor are, for now, those of many threads, each of
 * which is a page to copy: thieves take them in (C9). Returns how many are left. */
static uint32_t keep_survivor(void) {
  uint32_t left = 0, others = 0;
  bool may_wait = !caches.skipped_locks && !is_closed();
  arena_forget_users();
  caches.unused_from = 0;
  for (uint32_t i = 0; i < caches.count; i++) {
    struct cache *cache = cache_number(i);
    bool stays = cache == caches.survivor || cache == this_thread.own; /* own: attached since (K4) */
    bool waits = may_wait && cache->in_use && !stays && !cache->is_abandoned && ++others > TAKEN_IN_AT_ONCE;
    bits_set(caches.vanished, i, 1, waits);
    if (waits) {
      counter_bump(&snug_counters.cached_bytes, cache->counted_bytes);
      continue;
    }
    if (cache->counted_bytes != 0) cache->counted_bytes = 0;
    if (!cache->in_use) {
      bits_set(caches.unused, i, 1, true);
      continue;
    }
    if (unlikely(stays_abandoned(cache))) continue;
    take_in(cache, stays);
    if (!stays) continue;                         /* its thread does not exist here */
    cache->thread_id = caches.survivor_thread_id; /* a new one, in the child */
    arena_join(cache->arena);
    left++;
  }
  caches.ended_count = (uint32_t)bits_count(caches.ended, 0, caches.count);
  caches.vanished_count = (uint32_t)bits_count(caches.vanished, 0, caches.count);
  return left;
}

/* The child's first slow call. Blocks cached before the fork lie in pages shared with the parent: they go back, into
 * slabs that are then sealed, so that the child writes to pages of its own. The caches lock is held. */
static void take_stock_after_fork(void) {
  counter_set(&snug_counters.cached_bytes, 0);
  counter_set(&snug_counters.caches, keep_survivor());
  bins_after_fork();
  slab_lock_all();
  slab_seal(UNSEAL_CHILD_SHIFT);
  slab_unlock_all();
}

void cache_release(struct cache *cache) {
  ASSERT(cache->in_use);
  if (unlikely(cache->changing)) {
    bins_reset(cache); /* its thread vanished in a clone(2) without our handlers: what they hold can't be known */
  } else {
    cache_give_all(cache);
  }
  cache_close_bins(cache);
  arena_leave(cache->arena);
  set_in_use(cache, false);
  counter_bump(&snug_counters.caches, -(uint64_t)1);
}

/* From here on the thread does without. The caches lock is held. */
static void give_up_cache(struct thread *thread) {
  struct cache *cache = thread->own;
  thread->without = 1;
  thread->own = NULL;
  thread->door = &empty_cache.door;
  if (cache != NULL) cache_release(cache);
}

static void end_cache(struct thread *thread) {
  lock_take(&caches.lock, RANK_CACHES);
  give_up_cache(thread);
  lock_give(&caches.lock, RANK_CACHES);
}

/* May allocate: we are ready for that, have no lock, and what comes is no handler. */
static bool begin_to_watch_thread(struct thread *thread) {
  uint32_t inside = thread->inside;
  thread->inside = 0;
  bool begun = hooks_thread_begins(thread);
  thread->inside = inside;
  return begun;
}

/* By A1. The caches lock is held. */
static uint32_t cache_owners(void) {
  uint32_t count = 0;
  for (unsigned i = 0; i < arena_count(); i++) count += arena_users(i) - arena_is_reserved(i);
  return count;
}

/* Gives this thread its cache (back). Returns NULL when it must do without.
 *
 * A slow path changes several words of the thread, of its cache and of what counts them. A handler that interrupts it
 * and forks (K4) leaves all that half done in the child: a cache in use that is no thread's yet, a thread whose door is
 * another's, a bin that is being moved. What else the handler allocates there does not come here (aside.h): the
 * interrupted change becomes whole when the handler returns, and then stock is taken. */
static NEVER_INLINE struct cache *cache_attach(void) {
  struct thread *thread = &this_thread;
  if (unlikely(__atomic_load_n(&caches.after_fork, __ATOMIC_RELAXED))) {
    lock_take(&caches.lock, RANK_CACHES);
    if (__atomic_exchange_n(&caches.after_fork, false, __ATOMIC_RELAXED)) take_stock_after_fork();
    lock_give(&caches.lock, RANK_CACHES);
  }
  if (thread->without || caches.start == NULL) return NULL;
  bool is_new = false;
  lock_take(&caches.lock, RANK_CACHES); /* waits for a thief, if one is at work (C1) */
  if (is_closed()) {
    give_up_cache(thread);
  } else if (thread->own == NULL) {
    struct cache *cache = caches.sees_thread_ends ? find_unused() : NULL;
    if (cache != NULL) {
      set_in_use(cache, true);
      cache->thread_id = own_thread_id();
      __atomic_store_n(&cache->door.cache, &empty_cache, __ATOMIC_RELAXED); /* C4: a handler may come to it */
      thread->own = cache;
      thread->door = &cache->door;
      set_arena(cache, 0);
      counter_bump(&snug_counters.caches, 1);
      if (cache_owners() > 1) rights_saw_thread();
      is_new = true;
    }
  }
  struct cache *own = thread->own;
  if (own == NULL) thread->without = 1;
  if (own != NULL) __atomic_store_n(&own->door.cache, own, __ATOMIC_RELAXED);
  thread->profile = PROFILE_NOT_FOLLOWED; /* it may have been called in */
  thread->until_sample = -1;
  lock_give(&caches.lock, RANK_CACHES);
  if (is_new && !begin_to_watch_thread(thread)) {
    end_cache(thread);
    return NULL;
  }
  __atomic_signal_fence(__ATOMIC_SEQ_CST);
  if (unlikely(__atomic_load_n(&caches.after_fork, __ATOMIC_RELAXED)) && own != NULL)
    __atomic_store_n(&own->door.cache, &empty_cache, __ATOMIC_RELAXED); /* a handler has forked meanwhile (K4): again */
  return own;
}

/* Enters with the own cache (then busy is set), or NULL. */
static struct cache *cache_enter(void) {
  for (;;) {
    struct cache *cache = try_to_enter();
    if (likely(cache != NULL)) return cache;
    if (cache_attach() == NULL) return NULL;
  }
}

/* Runs at the end of a thread, perhaps before other destructors that still free. One that ends in a handler amid a slow
 * path leaves its cache as it is, for a thief to find it gone. */
static void thread_ends(void *argument) {
  if (cache_thread_is_inside()) return;
  cache_slow_path_begins();
  end_cache(argument);
  if (cache_after_thread != NULL) cache_after_thread();
  cache_slow_path_ends();
}

/* Some at a time, as others wait for the lock. A thread that attaches meanwhile looks at all settings anyway. */
void cache_call_in(void) {
  uint32_t count = cache_used_count();
  for (uint32_t first = 0; first < count; first += CALLED_IN_AT_ONCE) {
    uint32_t end = count - first > CALLED_IN_AT_ONCE ? first + CALLED_IN_AT_ONCE : count;
    lock_take(&caches.lock, RANK_CACHES);
    for (uint32_t i = first; i < end; i++) {
      struct cache *cache = cache_number(i);
      if (cache->in_use) __atomic_store_n(&cache->door.cache, &empty_cache, __ATOMIC_RELAXED);
    }
    lock_give(&caches.lock, RANK_CACHES);
  }
}

void cache_close(void) {
  cache_take_vanished_in(0, cache_used_count());
  lock_take(&caches.lock, RANK_CACHES); /* who is attaching still gets a cache, the next one does not */
  __atomic_store_n(&caches.closed, true, __ATOMIC_RELAXED);
  lock_give(&caches.lock, RANK_CACHES);
  cache_call_in();
}

/* ---- arenas ---- */

static void move_to_arena(struct cache *cache, uint32_t arena) {
  ASSERT(cache->in_use);
  cache_give_all(cache); /* C3 */
  arena_leave(cache->arena);
  set_arena(cache, arena);
}

/* The lonely come together in the first, others look for one that fewer use. Returns the arena in use where none is
 * better. */
static uint32_t better_arena(const struct cache *cache, bool lonely) {
  uint32_t best = lonely ? 0 : arena_least_used();
  return lonely || arena_users(best) + 1 < arena_users(cache->arena) ? best : cache->arena;
}

/* Threads that keep finding locks held spread over arenas; when that ends they come together again. */
static void rebalance(struct cache *cache, bool contended) {
  cache->contentions += contended;
  if (cache->slow_calls % CONTENTION_PERIOD != 0) return;
  bool crowded = cache->contentions >= CONTENTION_LIMIT;
  cache->contentions = 0;
  if (crowded) cache->quiet_ticks = 0;
  bool lonely = !crowded && cache->arena != 0 && cache->quiet_ticks > QUIET_TICKS;
  if ((!crowded && !lonely) || bins_are_busy(cache)) return; /* C8 */
  if (better_arena(cache, lonely) == cache->arena) return;
  cache_give_all(cache); /* now: a child of vfork(2) that finds a mistake in it must not have the lock */
  lock_take(&caches.lock, RANK_CACHES);
  uint32_t better = better_arena(cache, lonely);
  if (better != cache->arena && !is_closed()) move_to_arena(cache, better);
  lock_give(&caches.lock, RANK_CACHES);
}

/* Once per tick. */
static void note_tick(struct cache *cache) {
  cache->tick = __atomic_load_n(&caches.tick, __ATOMIC_RELAXED);
  cache->quiet_ticks++;
  bins_let_capacity_go(cache);
}

/* At the end of each slow call, still busy. */
static ALWAYS_INLINE void after_slow_call(struct cache *cache, bool contended) {
  __atomic_store_n(&cache->slow_calls, cache->slow_calls + 1, __ATOMIC_RELAXED);
  if (unlikely(cache->tick != __atomic_load_n(&caches.tick, __ATOMIC_RELAXED))) note_tick(cache);
  rebalance(cache, contended);
}

/* ---- slow paths ---- */

static ALWAYS_INLINE void note_miss(struct bin *bin, unsigned streak) {
  bin->streak = (uint8_t)streak;
  if (bin->misses < UINT8_MAX) bin->misses++;
}

/* The more a bin takes, the fewer frees will be seen. */
static void grow_bin(struct cache *cache, unsigned class_index) {
  this_thread.upkeep_due += (uint32_t)bin_grow(cache, class_index);
}

void *cache_refill(unsigned class_index, size_t requested_bytes) {
  bool contended = false;
  void *block = NULL;
  struct cache *cache = cache_enter();
  if (cache == NULL) {
    slab_take(0, class_index, &block, 1, requested_bytes, &contended);
    return block;
  }
  struct bin *bin = &cache->bin[class_index];
  ASSERT(cache == this_thread.own && cache->door.busy == 1); /* C1, C4 */
  if (bin_count(cache, bin) == 0) {
    bool again = bin->streak == STREAK_REFILL;
    note_miss(bin, STREAK_REFILL);
    grow_bin(cache, class_index);
    size_t capacity = bin_capacity(bin);
    size_t wanted = again ? capacity : (capacity + 1) / 2; /* a run of mallocs: fill it whole */
    if (wanted == 0) {
      slab_take(cache->arena, class_index, &block, 1, requested_bytes, &contended);
    } else {
      bin_fill(cache, class_index, wanted, requested_bytes, &contended);
    }
  }
  if (block == NULL && bin_count(cache, bin) != 0) {
    block = bin->top[-1];
    bin_set_top(bin, bin->top - 1);
  }
  after_slow_call(cache, contended);
  cache_leave(cache);
  return block;
}

/* The block must be in use, and not the last one to be freed. Earlier ones are found when they reach the slab. */
static void check_given(const struct cache *cache, const struct bin *bin, const void *block) {
  if (unlikely(bin_count(cache, bin) != 0 && bin->top[-1] == block)) fatal_double_free(block);
  slab_block_size(block);
}

void cache_flush(void *block, unsigned kind) {
  unsigned class_index = kind_class(kind);
  struct cache *cache = cache_enter();
  if (cache == NULL) {
    slab_give(&block, 1);
    return;
  }
  struct bin *bin = &cache->bin[class_index];
  bool contended = false;
  if (unlikely(kind_has_joints(kind)) && slab_is_joined(block)) {
    contended = slab_give(&block, 1); /* C3 */
  } else if (kind_arena(kind) != cache->arena) {
    contended = bins_put_remote(cache, block, class_index);
  } else {
    check_given(cache, bin, block);
    if (bin_count(cache, bin) == bin_capacity(bin)) {
      bool again = bin->streak == STREAK_FLUSH;
      note_miss(bin, STREAK_FLUSH);
      grow_bin(cache, class_index);
      size_t count = bin_count(cache, bin);
      if (count == bin_capacity(bin)) contended = bin_give(cache, bin, again ? count : (count + 1) / 2);
    }
    if (bin_capacity(bin) == 0) {
      contended = slab_give(&block, 1);
    } else {
      *bin->top = block;
      bin_set_top(bin, bin->top + 1);
    }
  }
  after_slow_call(cache, contended);
  cache_leave(cache);
}

void cache_empty_own(void) {
  struct cache *cache = try_to_enter();
  if (cache == NULL) return;
  if (likely(!bins_are_busy(cache))) cache_give_all(cache); /* C8 */
  cache_leave(cache);
}

/* ---- others ---- */

void cache_tick(void) { __atomic_fetch_add(&caches.tick, 1, __ATOMIC_RELAXED); }

uint64_t cache_sign_of_life(const struct cache *cache) {
  uint64_t sum = __atomic_load_n(&cache->slow_calls, __ATOMIC_RELAXED);
  for (unsigned i = 1; i < CLASS_COUNT; i++) {
    sum = sum * 31 + (uintptr_t)__atomic_load_n(&cache->bin[i].top, __ATOMIC_RELAXED);
  }
  return sum;
}

void cache_check(void) {
  const struct cache *cache = this_thread.own;
  lock_take(&caches.lock, RANK_CACHES);
  if (cache != NULL) {
    for (unsigned k = 1; k < CLASS_COUNT; k++) {
      const struct bin *bin = &cache->bin[k];
      if (bin_count(cache, bin) > bin_capacity(bin)) fatal_corrupted("bin of a thread cache (C2)", bin);
      for (void **slot = bin_start(cache, bin); slot < bin->top; slot++) {
        unsigned class_index = kind_class(page_kind(page_index(*slot)));
        size_t block_bytes = slab_block_size(*slot), class_bytes = class_shapes[k].size_bytes;
        bool serves = class_index == k ? block_bytes == class_bytes : class_index < k && block_bytes >= class_bytes;
        if (!serves) fatal_corrupted("block in a bin (C3)", *slot);
      }
    }
  }
  lock_give(&caches.lock, RANK_CACHES);
}

void cache_lock_all(void) { lock_take_in_fork(&caches.lock, RANK_CACHES); }
void cache_unlock_all(void) { lock_give_in_fork(&caches.lock, RANK_CACHES); }
void cache_reset_locks(void) { lock_reset(&caches.lock); }
