/* cache.h: freed blocks that a thread keeps for itself, and the fast paths of malloc and free.
 *
 * It does not know pages or slabs' insides: it takes blocks from slab.h and gives them back in batches. Per class a
 * thread has a bin, a stack of pointers; the blocks themselves are never touched.
 *
 *      thread (TLS)          cache (bins.h)
 *      | door   |----------> | door: cache, busy | bins | owner's fields | slots |
 *      | tag    |
 *      | own    |
 *
 * A cache can be emptied by another thread, without a lock in the fast path (docs/decisions/0003):
 *   owner: busy = 1; load cache; work on it; busy = 0 (release)
 *   thief: cache = &empty_cache; barrier on all threads; if all busy == 0 the cache is ours until we store it back
 * After the barrier either the thief sees a busy == 1, or the owner sees the empty cache and comes to the slow path.
 * Each bin has a busy of its own, since a signal handler may be in another one than what it interrupted; the door's is
 * for slow paths.
 * A thread that calls others in shuts the same doors, for their owners to open: a thief opens only what it shut.
 * All that lies in the cache: a thief touches nothing of a thread, which may end at any moment. Most
 * threads release their cache then; one whose first slow call comes in its very last destructors does not, and the
 * next thief finds it gone.
 *
 *  C1  Bins are changed only by the owner while busy, or by a thief that saw busy == 0 after the barrier, or in a child
 *      after fork.
 *  C2  low <= top <= high in every bin; blocks in a bin are outside their slabs (their bit is 0).
 *  C3  A bin holds blocks of one class, or joined ones that serve for it (slab_join.h) and were not used yet: a free
 *      gives those to their slab. All are of one arena, the owner's (its tag): others go to the remote blocks. But a
 *      slab may be adopted by another arena in the instant in which the first thread joins its arena and frees.
 *  C4  door.cache is &empty_cache or the cache it lies in. empty_cache is empty and full at once in every class.
 *      Nothing in an unused cache counts, and all may read as zero: find_unused sets it up.
 *  C5  Outside `changing`, any instant shows a whole bin: one store of top takes a block in or out.
 *  C6  While a slow path uses its own cache, the thread's door is nobody's: the fast path of a signal handler then
 *      finds no bin, and its slow path sees that it is inside another one (K5).
 *  C7  While cache->changing is the number of a bin, its blocks are those in change_slots from change_given to
 *      change_end, whatever the bin says: so a child of another thread's fork, which has the class locks, has them.
 *  C8  A slow path of the owner that finds a bin busy is a handler's, which interrupted a fast path there: it leaves
 *      that bin as it is, unless its own malloc or free is of the same class.
 *  C9  In a child of more than a few threads, caches of vanished ones stay in use, as they were at the fork, in pages
 *      shared with the parent, until thieves come by, who take them in before they look at them: a slice at each tick,
 *      all at a purge of everything. Nobody else looks into them but to read.
 */
#ifndef SNUG_CACHE_H
#define SNUG_CACHE_H

#include "base.h"
#include "bins.h"
#include "classes.h"

enum { PROFILE_NOT_FOLLOWED = UINT32_MAX }; /* no setting */

/* Used by its thread only: it may end without a word (steal.h). */
struct thread {
  struct door *door;     /* of its cache, or of the empty one */
  struct cache *own;     /* NULL: none yet, or none available */
  uint32_t tag;          /* arena << ARENA_SHIFT of the thread's blocks */
  uint32_t without;      /* no cache any more (the thread is ending), or none possible */
  uint32_t upkeep_due;   /* owner: what its slow paths since the last look at the clock count for, for maintain.h */
  uint32_t inside;       /* owner: it is in so many slow paths, where locks are taken */
  void *kept;            /* owner; atomic: what its handlers freed meanwhile (aside.h) */
  int64_t until_sample;  /* owner: bytes to the next sample (profile.h); below 0: the next request sees to it */
  uint64_t mean_bytes;   /* owner: with which that was drawn */
  uint32_t profile;      /* owner: the setting that it follows */
  uint32_t takes_sample; /* owner: it is taking one */
};

HIDDEN extern struct cache empty_cache;
HIDDEN extern __thread struct thread this_thread FIXED_TLS;

/* Around whatever may take locks on behalf of the program, so that a signal handler can tell (K4, K5). */
static ALWAYS_INLINE void cache_slow_path_begins(void) {
  this_thread.inside++;
  __atomic_signal_fence(__ATOMIC_SEQ_CST);
}

HIDDEN extern void (*cache_gives_kept)(void); /* NULL: not yet */

/* Frees what handlers freed meanwhile (aside.h). */
static ALWAYS_INLINE void cache_slow_path_ends(void) {
  __atomic_signal_fence(__ATOMIC_SEQ_CST);
  uint32_t inside = --this_thread.inside;
  __atomic_signal_fence(__ATOMIC_SEQ_CST);
  if (unlikely(this_thread.kept != NULL) && inside == 0 && cache_gives_kept != NULL) cache_gives_kept();
}

/* At an entry: this is a handler, which interrupted a slow path of its thread. What would take a lock does without. */
static ALWAYS_INLINE bool cache_thread_is_inside(void) { return this_thread.inside != 0; }

HIDDEN bool cache_init(void);

/* Slow paths. Each enters and leaves by itself. */
HIDDEN void *cache_refill(unsigned class_index, size_t requested_bytes);
HIDDEN void cache_flush(void *block, unsigned kind);

/* From now on no thread has a cache: each gives its own back at its next malloc or free. */
HIDDEN void cache_close(void);

/* Each thread that has a cache comes to a slow path at its next malloc or free, and then looks at the settings that it
 * follows. */
HIDDEN void cache_call_in(void);

/* Gives this thread's blocks back to the slabs. */
HIDDEN void cache_empty_own(void);

/* Whether the owner is at work in it. */
HIDDEN bool cache_is_busy(const struct cache *cache);

/* In a forked child, before anything else: the first slow call will take the caches of vanished threads in, and seal
 * the slabs. A child that only execs pays nothing. */
HIDDEN void cache_after_fork(void);

/* In a copy of the process that clone(2) made without our handlers: which threads still exist nobody knows, and what
 * was cached stays with its owners. None counts as gone. */
HIDDEN void cache_after_copy(void);

/* Time as threads see it: bumped once per tick, so that each owner lets unused capacity go. */
HIDDEN void cache_tick(void);

/* For steal.h and survey.h: the lock of who owns which cache, and the caches ever used, by number; those stay where
 * they are for good. */
HIDDEN void cache_lock_owners(void);
HIDDEN void cache_unlock_owners(void);
HIDDEN uint32_t cache_used_count(void);
HIDDEN uint32_t cache_end_number(void); /* the same; 0 after cache_close */
HIDDEN struct cache *cache_number(uint32_t number);

/* For steal.h, in a child (C9): of the caches from number `first` up to `end`, those of vanished threads are taken in.
 * False: a fork waits, and some may be left. */
HIDDEN bool cache_take_vanished_in(uint32_t first, uint32_t end);
HIDDEN bool cache_has_vanished(void); /* any at all */

/* Whether this is a child of fork that has not yet seen which caches have owners. */
HIDDEN bool cache_is_after_fork(void);

/* A number that changes when the owner uses the cache. */
HIDDEN uint64_t cache_sign_of_life(const struct cache *cache);

/* Makes the cache an unused one. The lock is held, and its thread does not use it (any more). */
HIDDEN void cache_release(struct cache *cache);

/* Called when a thread has given its cache up at its end, in its slow path and with no lock held. Set once, at
 * start. */
HIDDEN extern void (*cache_after_thread)(void);

/* For purge.h: unused caches that hold memory since their owners used them. A batch of them is taken, so that no thread
 * gets one; their memory may go, all of it, and reads as zero in one that is used again; then they are put back. */
enum { CACHE_ENDED_BATCH = 64 };
HIDDEN uint32_t cache_ended_count(void);
HIDDEN uint32_t cache_take_ended(struct cache *batch[CACHE_ENDED_BATCH]);
HIDDEN void cache_put_back(struct cache *const batch[], uint32_t count);

HIDDEN void cache_check(void); /* asserts C2 and C3 of this thread's cache */
HIDDEN void cache_lock_all(void);
HIDDEN void cache_unlock_all(void);
HIDDEN void cache_reset_locks(void);

/* ---- fast paths ---- */

/* The offset among the bins of the one for a size of at most CLASS_SMALL_MAX_BYTES. */
static ALWAYS_INLINE size_t bin_offset_of(size_t size_bytes) { return class_offset_small[(size_bytes + 15) / 16]; }

/* The class of a size of at most CLASS_MAX_BYTES. */
static ALWAYS_INLINE unsigned class_of(size_t size_bytes) {
  if (size_bytes <= CLASS_SMALL_MAX_BYTES) return (unsigned)bin_offset_of(size_bytes) / CLASS_STRIDE_BYTES;
  unsigned class_index = class_index_large[(size_bytes - 1) / CLASS_LARGE_GRANULE_BYTES];
  return class_index + (size_bytes > class_shapes[class_index].size_bytes);
}

static ALWAYS_INLINE struct cache *door_enter(struct door *door) {
  __atomic_store_n(&door->busy, 1, __ATOMIC_RELAXED);
  __atomic_signal_fence(__ATOMIC_SEQ_CST); /* the thief's barrier makes this an order for the processor, too */
  return __atomic_load_n(&door->cache, __ATOMIC_ACQUIRE); /* what a thief left is seen */
}

static ALWAYS_INLINE void door_leave(struct door *door) { __atomic_store_n(&door->busy, 0, __ATOMIC_RELEASE); }

/* Counts a request of the program. False: its bytes reach the next sample, the slow path's to take. */
static ALWAYS_INLINE bool cache_counts(size_t size_bytes) {
  return (this_thread.until_sample -= (int64_t)size_bytes) >= 0;
}

static ALWAYS_INLINE struct bin *bin_at(struct cache *cache, size_t offset) {
  return (struct bin *)((char *)cache->bin + offset);
}

static ALWAYS_INLINE void bin_set_busy(struct bin *bin, uint8_t busy) {
  __atomic_store_n(&bin->busy, busy, busy ? __ATOMIC_RELAXED : __ATOMIC_RELEASE);
}

/* Into the bin of this thread at an offset: marks it busy. It is the empty cache's where the own one was taken away. */
static ALWAYS_INLINE struct bin *bin_enter(size_t offset) {
  struct door *door = this_thread.door;
  bin_set_busy(bin_at((struct cache *)door, offset), 1);
  __atomic_signal_fence(__ATOMIC_SEQ_CST); /* as in door_enter */
  return bin_at(__atomic_load_n(&door->cache, __ATOMIC_ACQUIRE), offset);
}

/* Out of it, when nothing was done there. The door is read again: to keep it costs the fast path an instruction. */
static ALWAYS_INLINE void bin_leave(size_t offset) {
  bin_set_busy(bin_at((struct cache *)this_thread.door, offset), 0);
}

/* Whether the bin of this thread at an offset is open. */
static ALWAYS_INLINE bool bin_is_open(size_t offset) {
  const struct bin *bin = bin_at(__atomic_load_n(&this_thread.door->cache, __ATOMIC_ACQUIRE), offset);
  return bin->low != bin->high;
}

/* A block from the bin of this thread at an offset among its bins, or NULL when it is empty. */
static ALWAYS_INLINE void *cache_pop_at(size_t bin_offset) {
  struct bin *bin = bin_enter(bin_offset);
  void **top = bin->top;
  if (unlikely((uint16_t)(uintptr_t)top == bin->low)) {
    bin_leave(bin_offset);
    return NULL;
  }
  bin_set_top(bin, --top);
  void *block = *top;
  if (block == NULL) __builtin_unreachable(); /* C2: saves callers a compare */
  bin_set_busy(bin, 0);
  return block;
}

/* The same of a class. */
static ALWAYS_INLINE void *cache_pop(unsigned class_index) { return cache_pop_at(class_index * sizeof(struct bin)); }

/* Puts a block into the bin at an offset; false when it is full, or seems to have been freed just before (where the bin
 * is empty that may be what a neighbour left there: the slow path decides). */
static ALWAYS_INLINE bool cache_push_at(size_t bin_offset, void *block) {
  struct bin *bin = bin_enter(bin_offset);
  void **top = bin->top;
  if (unlikely((uint16_t)(uintptr_t)top == bin->high) || unlikely(top[-1] == block)) {
    bin_leave(bin_offset);
    return false;
  }
  *top = block;
  bin_set_top(bin, top + 1);
  bin_set_busy(bin, 0);
  return true;
}

/* The same of a class. */
static ALWAYS_INLINE bool cache_push(unsigned class_index, void *block) {
  return cache_push_at(class_index * sizeof(struct bin), block);
}

#endif
