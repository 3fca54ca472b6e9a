#include "steal.h"

#include "counters.h"
#include "rights.h"
#include "survey.h"
#include "sys.h"

enum {
  GONE_TICKS =
      16, /* whose cache is empty and showed no sign of life for so many is asked for, and then every so many */
  VICTIMS_MAX = 64, /* at a time: while their doors are shut their owners, and who attaches or ends, have to wait */
};

/* Purge lock. */
static struct {
  uint32_t next;  /* number of the cache to look at next */
  uint32_t ticks; /* calls that looked at a slice */
} thief;

struct victims {
  uint32_t count;
  struct cache *cache[VICTIMS_MAX];
};

/* Whether the owner was away for this many ticks and has left blocks, or may be gone. If there are many caches, each is
 * looked at every few ticks only, so ticks count and not looks. */
static bool is_worth_a_theft(struct cache *cache, uint32_t ticks) {
  uint64_t life = cache_sign_of_life(cache);
  uint32_t before = cache->idle_ticks;
  cache->idle_ticks = life == cache->seen ? before + (thief.ticks - cache->looked_at) : 0;
  cache->seen = life;
  cache->looked_at = thief.ticks;
  if (cache->idle_ticks < ticks) return false;
  return cache_bytes(cache) != 0 || cache->idle_ticks / GONE_TICKS != before / GONE_TICKS;
}

/* Looks at caches from number `first` up to `end`, without a lock that owners wait for, until there are enough victims.
 * Returns how far it came. */
static uint32_t choose(struct victims *victims, uint32_t first, uint32_t end, uint32_t ticks, const struct cache *own) {
  uint32_t number = first;
  victims->count = 0;
  for (; number < end && victims->count < VICTIMS_MAX && !is_purging_stopped(); number++) {
    struct cache *cache = cache_number(number);
    if (cache == own || !__atomic_load_n(&cache->in_use, __ATOMIC_RELAXED)) continue;
    if (ticks == 0 || is_worth_a_theft(cache, ticks)) victims->cache[victims->count++] = cache;
  }
  return number;
}

/* Takes the cache from its owner, who may be called in: then the door is shut already, and stays so for its sake.
 * False: there is nothing to take. The caches lock is held. */
static bool shut_door(struct cache *cache) {
  if (!cache->in_use) return false; /* any more */
  if (cache->thread_id != 0 && !sys_thread_exists(sys_process_id(), cache->thread_id)) {
    cache_release(cache); /* it ended without thread_ends */
    return false;
  }
  if (cache_bytes(cache) == 0) return false;
  cache->is_victim = true;
  cache->shut_by_thief = __atomic_load_n(&cache->door.cache, __ATOMIC_RELAXED) == cache;
  __atomic_store_n(&cache->door.cache, &empty_cache, __ATOMIC_RELAXED);
  return true;
}

static void reopen_door(struct cache *cache) {
  cache->is_victim = false;
  if (cache->shut_by_thief) __atomic_store_n(&cache->door.cache, cache, __ATOMIC_RELEASE);
}

/* The cache is the thief's. Returns the bytes it held. */
static size_t empty(struct cache *cache, bool closes_bins) {
  bool was_seen = survey_before_theft(cache);
  size_t bytes = cache_bytes(cache);
  cache_give_all(cache);
  if (closes_bins) cache_close_bins(cache);
  cache->seen = cache_sign_of_life(cache);
  survey_after_theft(cache, was_seen);
  counter_add(&snug_counters.steals, 1);
  return bytes;
}

static size_t steal_from(struct victims *victims, bool closes_bins) {
  size_t bytes = 0;
  uint32_t count = 0;
  if (victims->count == 0) return 0;
  cache_lock_owners();
  for (uint32_t i = 0; i < victims->count; i++) {
    if (shut_door(victims->cache[i])) victims->cache[count++] = victims->cache[i];
  }
  bool ordered = count != 0 && sys_barrier_all_threads();
  for (uint32_t i = 0; i < count; i++) {
    struct cache *cache = victims->cache[i];
    if (!cache->is_victim) continue; /* in a child that a handler forked meanwhile, and that has taken stock (K4) */
    if (ordered && !is_purging_stopped() && !cache_is_busy(cache)) bytes += empty(cache, closes_bins);
    reopen_door(cache);
  }
  cache_unlock_owners();
  return bytes;
}

bool steal_is_allowed(void) { return rights_have(RIGHT_OTHERS); } /* membarrier */

size_t steal_caches(uint32_t ticks, const struct cache *own) {
  size_t bytes = 0;
  if (cache_is_after_fork()) return 0; /* owners may be gone */
  /* After vfork(2) owners run on in the parent; in a copy that nobody has claimed nobody knows who is left. */
  bool may_steal = steal_is_allowed();
  if ((!may_steal && !cache_has_vanished()) || rights_identity() != IDENTITY_OWN) return 0;
  uint32_t count = cache_end_number(), left = ticks != 0 && survey_slice() < count ? survey_slice() : count;
  thief.ticks += ticks != 0;
  while (left != 0 && !is_purging_stopped()) {
    struct victims victims;
    uint32_t first = thief.next < count ? thief.next : 0;
    uint32_t end = left < count - first ? first + left : count;
    if (!cache_take_vanished_in(first, end)) break;
    thief.next = may_steal ? choose(&victims, first, end, ticks, own) : end;
    left -= thief.next - first;
    if (may_steal) bytes += steal_from(&victims, ticks == 0);
  }
  return bytes;
}
