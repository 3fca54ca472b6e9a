#include "steal.h"

#include "counters.h"
#include "rights.h"
#include "sys.h"

enum {
  GONE_LOOKS = 16, /* an empty cache is asked for its owner at every 16th look without a sign of life */
};

/* Whether a thief should look at this cache now: it has blocks, and its owner was away for `looks` looks. */
static bool worth_stealing(struct cache *cache, uint32_t looks, const struct cache *own) {
  if (!cache->in_use || cache == own) return false;
  uint64_t life = cache_sign_of_life(cache);
  cache->idle_looks = life == cache->seen ? cache->idle_looks + 1 : 0;
  cache->seen = life;
  if (cache->idle_looks < looks) return false;
  bool holds = cache_bytes(cache) != 0;
  if (!holds && cache->idle_looks % GONE_LOOKS != 0) return false;
  if (cache->thread_id != 0 && !sys_thread_exists(snug_counters.pid, cache->thread_id)) {
    cache_release(cache); /* it ended without thread_ends */
    return false;
  }
  return holds;
}

/* Takes the cache from its owner, who may be called in: then the door is shut already, and stays so for its sake. */
static void shut_door(struct cache *cache) {
  cache->is_victim = true;
  cache->shut_by_thief = __atomic_load_n(&cache->door.cache, __ATOMIC_RELAXED) == cache;
  __atomic_store_n(&cache->door.cache, &empty_cache, __ATOMIC_RELAXED);
}

static void reopen_door(struct cache *cache) {
  cache->is_victim = false;
  if (cache->shut_by_thief) __atomic_store_n(&cache->door.cache, cache, __ATOMIC_RELEASE);
}

size_t steal_caches(uint32_t looks, const struct cache *own) {
  size_t bytes = 0;
  uint32_t victims = 0;
  if (cache_is_after_fork()) return 0; /* owners may be gone */
  /* After vfork(2) owners run on in the parent; in a copy that nobody has claimed nobody knows who is left. */
  if (!rights_have(RIGHT_OTHERS) || rights_identity() != IDENTITY_OWN) return 0;
  cache_lock_owners();
  for (uint32_t i = 0; i < cache_end_number() && !is_purging_stopped(); i++) {
    struct cache *cache = cache_number(i);
    if (!worth_stealing(cache, looks, own)) continue;
    shut_door(cache);
    victims++;
  }
  bool ordered = victims != 0 && sys_barrier_all_threads();
  for (uint32_t i = 0; victims != 0 && i < cache_end_number(); i++) {
    struct cache *cache = cache_number(i);
    if (!cache->is_victim) continue;
    if (ordered && !is_purging_stopped() && __atomic_load_n(&cache->door.busy, __ATOMIC_ACQUIRE) == 0) {
      bytes += cache_bytes(cache);
      cache_give_all(cache);
      if (looks == 0) cache_close_bins(cache);
      cache->seen = cache_sign_of_life(cache);
      counter_add(&snug_counters.steals, 1);
    }
    reopen_door(cache);
  }
  cache_unlock_owners();
  return bytes;
}
