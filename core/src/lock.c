#include "lock.h"

#include "sys.h"

enum {
  SPINS = 100,
  SOON_NAPS = 100,
  FORK_SHORT_NAPS = 20,
  FORK_NAPS = 50, /* under a lock others stay for microseconds (K2) */
};

#define SOON_NAP_NS UINT64_C(500000)
#define SHORT_NAP_NS UINT64_C(20000)
#define NAP_NS UINT64_C(1000000)

uint64_t lock_waits;

const void *lock_all_owner __attribute__((aligned(64))); /* read at every release: no neighbour that changes */

static __thread char self_marker[2] FIXED_TLS; /* only addresses are used; the second: a fork of K4 */
static __thread bool passes_over FIXED_TLS;
static __thread bool tries FIXED_TLS;
static __thread bool missed FIXED_TLS;     /* while it tries: a lock was not available */
static __thread uint32_t waited FIXED_TLS; /* in the fork that is going on */

const void *lock_self(void) {
  static const char janitor_marker; /* it has no thread-local variables (J2) */
  return sys_in_started_thread() ? &janitor_marker : &self_marker[0];
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
    __atomic_fetch_add(&lock_waits, 1, __ATOMIC_RELAXED);
    sys_futex_wait(&lock->state, 2, 0);
  }
  return true;
}

bool lock_take_soon(struct lock *lock, enum lock_rank rank) {
  for (int nap = 0; !lock_held_by_fork() && __atomic_exchange_n(&lock->state, 2, __ATOMIC_ACQUIRE) != 0; nap++) {
    if (nap == SOON_NAPS) return false;
    sys_futex_wait(&lock->state, 2, SOON_NAP_NS);
  }
  if (SNUG_DEBUG) lock_debug_note(rank);
  return true;
}

void lock_give_slow(struct lock *lock) { sys_futex_wake(&lock->state, 1); }

/* ---- fork ---- */

void lock_pass_over(bool on) {
  passes_over = on;
  waited = 0;
}

bool lock_passes_over(void) { return passes_over; }

void lock_try_in_fork(bool on) {
  tries = on;
  missed = false;
  waited = 0;
}

bool lock_missed_in_fork(void) { return missed; }

bool lock_is_tried_in_fork(void) { return tries; }

bool lock_wait_in_fork(void) {
  if (waited == FORK_SHORT_NAPS + FORK_NAPS) {
    missed = tries;
    return false;
  }
  sys_sleep(waited++ < FORK_SHORT_NAPS ? SHORT_NAP_NS : NAP_NS);
  return true;
}

/* A fork of K4 may have interrupted another one, and must not give what that one took. */
static const void *forker_self(void) { return &self_marker[passes_over]; }

static void note_forker(struct lock *lock) { __atomic_store_n(&lock->forker, forker_self(), __ATOMIC_RELAXED); }

bool lock_take_in_fork(struct lock *lock, enum lock_rank rank) {
  if (likely(!passes_over && !tries)) {
    lock_take(lock, rank);
    note_forker(lock);
    return true;
  }
  if (missed) return false; /* fork will begin again */
  /* Nobody is to be waited for: this thread has it all, or the process dies. */
  if (passes_over && lock_held_by_fork()) return false;
  while (!lock_try(lock, rank)) {
    if (!lock_wait_in_fork()) return false;
  }
  note_forker(lock);
  return true;
}

bool lock_had_in_fork(const struct lock *lock) {
  return __atomic_load_n(&lock->forker, __ATOMIC_RELAXED) == forker_self();
}

void lock_give_in_fork(struct lock *lock, enum lock_rank rank) {
  if (!lock_had_in_fork(lock)) return;
  if (!lock_held_by_fork()) __atomic_store_n(&lock->forker, NULL, __ATOMIC_RELAXED); /* else it is taken twice (K3) */
  lock_give(lock, rank);
}

/* ---- ranks ---- */

/* Debug builds: the ranks this thread holds, one bit each; class locks may nest (K1), so count those. */
#if SNUG_DEBUG
static __thread uint32_t held[RANK_PROFILE + 1] FIXED_TLS;
static __thread bool is_unknown FIXED_TLS; /* what a child of an interrupted thread holds (K4) */
#endif

void lock_debug_take(enum lock_rank rank) {
#if SNUG_DEBUG
  for (int higher = rank + (rank == RANK_CLASS); higher <= RANK_PROFILE; higher++) {
    ASSERT(held[higher] == 0 || is_unknown || __atomic_load_n(&lock_all_owner, __ATOMIC_RELAXED) != NULL);
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
  for (int rank = 0; rank <= RANK_PROFILE; rank++) held[rank] = 0;
  is_unknown |= passes_over;
#endif
}

void lock_debug_give(enum lock_rank rank) {
#if SNUG_DEBUG
  ASSERT(held[rank] > 0 || is_unknown);
  if (held[rank] > 0) held[rank]--;
#else
  (void)rank;
#endif
}
