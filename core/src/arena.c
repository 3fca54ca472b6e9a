#include "arena.h"

#include "counters.h"
#include "options.h"

_Static_assert((int)ARENA_MAX == SNUG_COUNTERS_ARENAS, "rows of the counters");

static struct {
  uint32_t users[ARENA_MAX]; /* atomic; changed under the caches lock */
  uint32_t count;            /* atomic, the same; the page of counters has a copy for readers */
  uint64_t reserved;         /* atomic; bit n: arena n */
  uint32_t cpus;             /* atomic */
} arenas;

static void set_count(uint32_t count) {
  __atomic_store_n(&arenas.count, count, __ATOMIC_RELAXED);
  __atomic_store_n(&snug_counters.arena_count, count, __ATOMIC_RELAXED);
}

void arena_init(void) { set_count(1); }

unsigned arena_count(void) { return __atomic_load_n(&arenas.count, __ATOMIC_RELAXED); }

uint32_t arena_users(unsigned arena) { return __atomic_load_n(&arenas.users[arena], __ATOMIC_RELAXED); }

void arena_join(unsigned arena) {
  ASSERT(arena < ARENA_MAX);
  __atomic_store_n(&arenas.users[arena], arena_users(arena) + 1, __ATOMIC_RELAXED);
  if (arena >= arena_count()) set_count(arena + 1);
}

void arena_leave(unsigned arena) {
  ASSERT(arena_users(arena) != 0); /* A1 */
  __atomic_store_n(&arenas.users[arena], arena_users(arena) - 1, __ATOMIC_RELAXED);
}

void arena_forget_users(void) {
  for (unsigned i = 0; i < arena_count(); i++)
    __atomic_store_n(&arenas.users[i], arena_is_reserved(i), __ATOMIC_RELAXED);
}

void arena_set_cpus(uint32_t count) { __atomic_store_n(&arenas.cpus, count, __ATOMIC_RELAXED); }

uint32_t arena_cpus(void) { return __atomic_load_n(&arenas.cpus, __ATOMIC_RELAXED); }

uint32_t arena_allowed(void) {
  uint32_t cpus = arena_cpus(), most = __atomic_load_n(&options.arenas_max, __ATOMIC_RELAXED);
  if (most == 0 || most > ARENA_MAX - ARENA_RESERVED_MAX) most = ARENA_MAX - ARENA_RESERVED_MAX;
  return cpus < most ? cpus : most;
}

unsigned arena_least_used(void) {
  unsigned best = 0, end = arena_allowed();
  for (unsigned i = 1; i < end && i < ARENA_MAX; i++) {
    if (arena_is_reserved(i)) {
      end++; /* one more takes its place */
    } else if (arena_users(i) < arena_users(best)) {
      best = i;
    }
  }
  return best;
}

unsigned arena_reserve(void) {
  unsigned arena = arena_count();
  if (arena == 0 || arena >= ARENA_MAX) return 0;
  arena_join(arena);
  __atomic_fetch_or(&arenas.reserved, UINT64_C(1) << arena, __ATOMIC_RELAXED);
  return arena;
}

bool arena_is_reserved(unsigned arena) { return __atomic_load_n(&arenas.reserved, __ATOMIC_RELAXED) >> arena & 1; }
