#include "lock.h"

#include "sys.h"

enum { SPINS = 100 };

const void *lock_all_owner __attribute__((aligned(64))); /* read at every release: no neighbour that changes */

static __thread char self_marker FIXED_TLS; /* only its address is used */

const void *lock_self(void) {
  static const char janitor_marker; /* it has no thread-local variables (J2) */
  return sys_in_started_thread() ? &janitor_marker : &self_marker;
}

bool lock_held_by_fork(void) { return __atomic_load_n(&lock_all_owner, __ATOMIC_RELAXED) == lock_self(); }

bool lock_take_slow(struct lock *lock) {
  if (unlikely(__atomic_load_n(&lock_all_owner, __ATOMIC_RELAXED) != NULL) && lock_held_by_fork())
    return false; /* K3 */
  for (int spin = 0; spin < SPINS; spin++) {
    uint32_t free_state = 0;
    if (__atomic_load_n(&lock->state, __ATOMIC_RELAXED) == 0 &&
        __atomic_compare_exchange_n(&lock->state, &free_state, 1, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
      return true;
    }
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    sys_cpu_relax();
  }
  while (__atomic_exchange_n(&lock->state, 2, __ATOMIC_ACQUIRE) != 0) {
    __atomic_fetch_add(&lock->waits, 1, __ATOMIC_RELAXED);
    sys_futex_wait(&lock->state, 2, 0);
  }
  return true;
}

void lock_give_slow(struct lock *lock) { sys_futex_wake(&lock->state, 1); }

/* Debug builds: the ranks this thread holds, one bit each; class locks may nest (K1), so count those. */
#if SNUG_DEBUG
static __thread uint32_t held[RANK_MAP + 1] FIXED_TLS;
#endif

void lock_debug_take(enum lock_rank rank) {
#if SNUG_DEBUG
  for (int higher = rank + (rank == RANK_CLASS); higher <= RANK_MAP; higher++) {
    ASSERT(held[higher] == 0 || __atomic_load_n(&lock_all_owner, __ATOMIC_RELAXED) != NULL);
  }
  lock_debug_note(rank);
#else
  (void)rank;
#endif
}

void lock_debug_note(enum lock_rank rank) {
#if SNUG_DEBUG
  held[rank]++;
#else
  (void)rank;
#endif
}

void lock_debug_reset(void) {
#if SNUG_DEBUG
  for (int rank = 0; rank <= RANK_MAP; rank++) held[rank] = 0;
#endif
}

void lock_debug_give(enum lock_rank rank) {
#if SNUG_DEBUG
  ASSERT(held[rank] > 0);
  held[rank]--;
#else
  (void)rank;
#endif
}
