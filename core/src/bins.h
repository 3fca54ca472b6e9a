/* bins.h: what a thread's cache is made of: a bin for each class, where its blocks lie, how many it may hold.
 *
 * It does not know whose a cache is, nor when blocks are wanted: cache.h does, whose invariants (C1 to C9) say who may
 * change a bin, and how. It takes no lock; blocks that leave go to slab.h.
 *
 *      cache (64 KiB of address space, at a multiple of 64 KiB; two pages touched)
 *      | door | bin[1] | bin[2] | ... | owner's fields | first slots of all bins | remote blocks |
 *      | larger slot arrays, one per class up to 1 KiB, touched when a bin grows                 |
 *
 *      bin:  low ... top ... high, grows upwards; top[-1] is next
 *
 * Because a cache begins at a multiple of 64 KiB, the low 16 bits of a slot's address are its offset in the cache, and
 * "empty" and "full" are compares of 16 bits.
 *
 * A bin begins closed, without room, and opens when it misses often within a tick: until then, and again when a tick
 * passed without a miss, every free goes to the slab, where mistakes show at once (docs/decisions/0019).
 */
#ifndef SNUG_BINS_H
#define SNUG_BINS_H

#include "base.h"
#include "classes.h"
#include "slab.h"

enum {
  CACHE_BYTES = 64 * 1024,    /* address space of one; C2's compares need it */
  CACHE_TOUCHED_BYTES = 8192, /* of a cache whose bins have not grown */
  CACHE_TOUCHED_PAGES = CACHE_TOUCHED_BYTES / PAGE_BYTES,
};

struct bin {
  void **top;   /* C1; written whole, since thieves look at it for signs of life */
  uint16_t low; /* atomic, the same */
  uint16_t high;
  uint8_t misses; /* refills and flushes since the owner's last tick */
  uint8_t streak; /* whether the last miss was a refill or a flush */
  uint8_t busy;   /* atomic: the owner is in a fast path, of a handler or of what that interrupted (C8) */
};
_Static_assert(sizeof(struct bin) == CLASS_STRIDE_BYTES, "class_offset_small is in rows of bins");

/* What an owner and a thief agree by. It lies with the cache, which stays when its thread ends. */
struct door {
  struct cache *cache; /* atomic: the cache it belongs to, or &empty_cache while that is taken away */
  uint32_t busy;       /* atomic: the owner is in a slow path; what fast paths are in is busy by itself */
};

struct cache {
  struct door door;
  struct bin bin[CLASS_COUNT]; /* bin 0 is always full: a page without a block leads a free to the slow path */
  bool in_use;                 /* atomic, changed under the caches lock */
  bool is_victim;              /* caches lock: of the thief at work */
  bool shut_by_thief;          /* caches lock: that thief shut the door, and opens it again */
  bool is_abandoned;           /* it was left to a fast path that a handler interrupted and forked in (K4) */
  uint32_t thread_id;          /* of the owner; caches lock */
  uint32_t arena;              /* owner */
  uint32_t remote_count;       /* C1 */
  uint32_t remote_misses;      /* C1: blocks of other arenas since the owner's last tick */
  uint64_t remote_bytes;       /* C1; atomic: read by statistics */
  uint32_t tick;               /* owner: last tick seen */
  uint32_t contentions;        /* owner: locks found held, since slow_calls was a multiple of 64 */
  uint32_t quiet_ticks;        /* owner: ticks without contention */
  uint32_t slow_calls;         /* owner; read by thieves as a sign of life */
  uint64_t seen;               /* purge lock: sign of life when a thief looked last */
  uint32_t looked_at;          /* purge lock: at which of its ticks that was */
  uint32_t idle_ticks;         /* purge lock: for how many it had shown no sign of life then */
  uint64_t seen_active;        /* atomic: sign of life when survey_activity looked last */
  uint64_t counted_bytes;      /* atomic: its part of the counter cached_bytes */
  uint32_t changing;           /* C1: number of the bin that is being changed, CLASS_COUNT: the remote blocks (C7) */
  uint32_t change_given;       /* C1, C7 */
  uint32_t change_end;         /* the same */
  void **change_slots;         /* the same */
};

/* C5: the slot's contents come before top. */
static ALWAYS_INLINE void bin_set_top(struct bin *bin, void **top) {
  __atomic_store_n(&bin->top, top, __ATOMIC_RELEASE);
}

static ALWAYS_INLINE void **bin_start(const struct cache *cache, const struct bin *bin) {
  return (void **)((char *)cache + bin->low);
}

static ALWAYS_INLINE size_t bin_count(const struct cache *cache, const struct bin *bin) {
  return (size_t)(bin->top - bin_start(cache, bin));
}

static ALWAYS_INLINE size_t bin_capacity(const struct bin *bin) {
  return (size_t)(bin->high - bin->low) / sizeof(void *);
}

/* Decides where the slots of each class lie: the first slots of all, and, beyond what every cache touches, larger
 * arrays. */
HIDDEN void bins_init(void);

/* Slots of all bins. A block in each may be all that keeps a page. */
HIDDEN size_t cache_slots(void);

/* Bytes of blocks in one cache. */
HIDDEN size_t cache_bytes(const struct cache *cache);

/* Whether the owner is at work in any bin: another thread asks, or a handler of what it interrupted. */
HIDDEN bool bins_are_busy(const struct cache *cache);

/* For what follows C1 must hold for the caller. */

/* Fills an empty bin with up to `wanted` blocks. requested_bytes and *contended as in slab_take. */
HIDDEN void bin_fill(struct cache *cache, unsigned class_index, size_t wanted, size_t requested_bytes, bool *contended);

/* After a second miss within a tick: twice the capacity, within what all caches may hold. Returns how many slots were
 * won. */
HIDDEN size_t bin_grow(struct cache *cache, unsigned class_index);

/* Gives the oldest `count` blocks of the bin back. Whether a lock was found held. */
HIDDEN bool bin_give(struct cache *cache, struct bin *bin, size_t count);

/* A block of another arena: collected, so that a lock is taken for many. Big ones are worth a lock each, and so are the
 * first in a tick: mistakes with them show at once. Whether a big one's was found held. */
HIDDEN bool bins_put_remote(struct cache *cache, void *block, unsigned class_index);

/* Bins without a miss since the last tick give half their capacity up, and at last close. Blocks of other arenas go if
 * none were collected since. */
HIDDEN void bins_let_capacity_go(struct cache *cache);

/* Makes all bins empty and closed, whatever they hold, and counts that. What they held is lost. */
HIDDEN void bins_drop(struct cache *cache);

/* The same, where nothing is counted. */
HIDDEN void bins_reset(struct cache *cache);

/* In a forked child, of a thread that vanished: gives the blocks of the bin that it was changing back (C7). */
HIDDEN void bins_end_change(struct cache *cache);

/* Gives all blocks of one cache back; then its bins may be closed. */
HIDDEN void cache_give_all(struct cache *cache);
HIDDEN void cache_close_bins(struct cache *cache);

/* In a child that has closed all bins: the counts begin anew. */
HIDDEN void bins_after_fork(void);

#endif
