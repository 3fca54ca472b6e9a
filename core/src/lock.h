/* lock.h: a mutex of one word on a futex, with ranks.
 *
 * It does not know what it guards. States: 0 free, 1 held, 2 held and somebody may sleep.
 *
 *  K1  A thread takes locks in rising rank only (checked with SNUG_DEBUG); equal ranks by rising address, as fork does.
 *  K2  Nothing that can fault on the program's memory, and no system call that takes longer the more memory there is,
 *      happens under a lock; the purge lock, which slow paths only try, is the exception. Short ones do, as what they
 *      change must be seen whole: mprotect when the zone or a table grows (records, caches, pages, map), a new mapping
 *      or munmap where the zone shrinks, of 64 MiB at a time without memory (pages, map), mmap and
 *      munmap of the table of large blocks (large), one membarrier for all victims at a time (caches). So do two that
 *      grow with memory, which few programs make: a slab of an arena of mallctl is cleared (slab), and a profile's
 *      stacks are copied for a dump or zeroed by a reset (profile_table).
 *  K3  While a thread is inside fork() it holds every lock (fork.c) and may still come here, from other libraries' fork
 *      handlers: lock_all_owner lets it pass. Not so in a fork of K4.
 *  K4  A signal handler that forks may have interrupted its own thread under a lock, which it would wait for forever.
 *      So there fork waits a while, skips what it can't have, and does not become the owner.
 *  K5  What else such a handler calls takes no lock: it allocates and frees beside the heap (aside.h), or does nothing.
 */
#ifndef SNUG_LOCK_H
#define SNUG_LOCK_H

#include "base.h"

enum lock_rank {
  RANK_JANITOR = 1,
  RANK_PURGE,
  RANK_CACHES,
  RANK_CLASS,
  RANK_RECORDS,
  RANK_PAGES,
  RANK_LARGE,
  RANK_MAP,
  RANK_PROFILE
};

struct lock {
  uint32_t state;
  const void *forker; /* under the lock: who took it by lock_take_in_fork, and in which of its ways */
};

HIDDEN extern uint64_t lock_waits;        /* atomic: times any thread had to sleep for a lock */
HIDDEN extern const void *lock_all_owner; /* atomic: lock_self() of the thread inside fork(), else NULL */

/* What tells threads apart here: an address of each thread's own, which, unlike its id, is the same in a forked child.
 */
HIDDEN const void *lock_self(void);

HIDDEN bool lock_take_slow(struct lock *lock);
HIDDEN void lock_give_slow(struct lock *lock);
HIDDEN bool lock_held_by_fork(void);
HIDDEN void lock_debug_take(enum lock_rank rank);
HIDDEN void lock_debug_note(enum lock_rank rank);
HIDDEN void lock_debug_give(enum lock_rank rank);
HIDDEN void lock_debug_reset(void); /* in a forked child, with lock_reset */

/* Takes the lock. Returns true when another thread held it: the measure of contention. */
static ALWAYS_INLINE bool lock_take(struct lock *lock, enum lock_rank rank) {
  if (SNUG_DEBUG) lock_debug_take(rank);
  uint32_t free_state = 0;
  if (likely(__atomic_compare_exchange_n(&lock->state, &free_state, 1, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))) {
    return false;
  }
  return lock_take_slow(lock);
}

/* Takes the lock if that needs no wait. */
static ALWAYS_INLINE bool lock_try(struct lock *lock, enum lock_rank rank) {
  uint32_t free_state = 0;
  if (!__atomic_compare_exchange_n(&lock->state, &free_state, 1, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
    return false;
  if (SNUG_DEBUG) lock_debug_note(rank);
  return true;
}

static ALWAYS_INLINE void lock_give(struct lock *lock, enum lock_rank rank) {
  if (SNUG_DEBUG) lock_debug_give(rank);
  if (unlikely(__atomic_load_n(&lock_all_owner, __ATOMIC_RELAXED) != NULL) && lock_held_by_fork()) return;
  if (unlikely(__atomic_exchange_n(&lock->state, 0, __ATOMIC_RELEASE) == 2)) lock_give_slow(lock);
}

/* For who may itself hold the lock (K5): takes it if that is possible within 50 ms. */
HIDDEN bool lock_take_soon(struct lock *lock, enum lock_rank rank);

/* How fork takes and gives all locks. False: skipped, or missed. */
HIDDEN bool lock_take_in_fork(struct lock *lock, enum lock_rank rank);
HIDDEN bool lock_had_in_fork(const struct lock *lock);
HIDDEN void lock_give_in_fork(struct lock *lock, enum lock_rank rank);

/* Fork tries: it waits for each lock for a while only. Whether it got all is asked afterwards. Ends with on = false. */
HIDDEN void lock_try_in_fork(bool on);
HIDDEN bool lock_is_tried_in_fork(void);
HIDDEN bool lock_missed_in_fork(void);

/* K4: whether this thread, which is about to fork or has forked, may itself hold locks. */
HIDDEN void lock_pass_over(bool on);
HIDDEN bool lock_passes_over(void);

/* A fork that tries, or may be in its own way, naps. False: it has napped enough. */
HIDDEN bool lock_wait_in_fork(void);

/* In a forked child, where no other thread exists. What this thread holds since before the fork it will give, which
 * does no harm. */
static inline void lock_reset(struct lock *lock) {
  lock->forker = NULL;
  __atomic_store_n(&lock->state, 0, __ATOMIC_RELEASE);
}

#endif
