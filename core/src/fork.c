#include "fork.h"

#include <pthread.h>

#include "cache.h"
#include "control.h"
#include "counters.h"
#include "janitor.h"
#include "large.h"
#include "lock.h"
#include "map.h"
#include "pages.h"
#include "purge.h"
#include "slab.h"
#include "sys.h"

enum {
  PURGE_BEFORE_FORK_PAGES = 256, /* more free dirty pages than this would be copied or kept twice */
  UNSEAL_PARENT_SHIFT = 2,       /* a parent goes on for long: a quarter free and the slab serves again */
};

static bool seal_parent; /* atomic */

static __thread uint64_t signals_before FIXED_TLS; /* blocked from prepare on: a handler may fork, too */

void fork_seal_parent_next(void) { __atomic_store_n(&seal_parent, true, __ATOMIC_RELAXED); }

void fork_lock_all(void) {
  purge_lock_all();
  cache_lock_all();
  slab_lock_all();
  pages_lock_all();
  large_lock_all();
  map_lock_all();
  if (!lock_passes_over()) __atomic_store_n(&lock_all_owner, lock_self(), __ATOMIC_RELAXED);
}

void fork_unlock_all(void) {
  if (!lock_passes_over()) __atomic_store_n(&lock_all_owner, NULL, __ATOMIC_RELAXED);
  map_unlock_all();
  large_unlock_all();
  pages_unlock_all();
  slab_unlock_all();
  cache_unlock_all();
  purge_unlock_all();
}

static void prepare(void) {
  signals_before = sys_block_signals();
  lock_pass_over(cache_thread_is_inside() || lock_held_by_fork());
  janitor_stop();
  if (pages_dirty() > PURGE_BEFORE_FORK_PAGES && !lock_passes_over()) pages_purge(0, false);
  fork_lock_all();
}

/* Since the last sealing, by a quarter at least: a program that trims regularly shall not strand its free slots again
 * and again. The fork holds all locks. */
static bool heap_has_grown(void) {
  static size_t sealed_at_pages;
  if (pages_used() < sealed_at_pages + sealed_at_pages / 4) return false;
  sealed_at_pages = pages_used();
  return true;
}

static void parent(void) {
  bool seals = !lock_passes_over() && __atomic_exchange_n(&seal_parent, false, __ATOMIC_RELAXED);
  if (seals && heap_has_grown()) slab_seal(UNSEAL_PARENT_SHIFT);
  counter_bump(&snug_counters.forks, 1);
  fork_unlock_all();
  janitor_after_fork(false);
  lock_pass_over(false);
  sys_restore_signals(signals_before);
}

static void child(void) {
  __atomic_store_n(&lock_all_owner, NULL, __ATOMIC_RELAXED);
  lock_debug_reset();
  map_reset_locks();
  large_reset_locks();
  pages_reset_locks();
  slab_reset_locks();
  cache_reset_locks();
  purge_reset_locks();
  janitor_after_fork(true);
  snug_counters.pid = sys_process_id();
  control_after_fork();
  cache_after_fork();
  lock_pass_over(false);
  sys_restore_signals(signals_before);
}

void fork_register_handlers(void) { pthread_atfork(prepare, parent, child); }
