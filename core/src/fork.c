#include "fork.h"

#include "cache.h"
#include "control.h"
#include "counters.h"
#include "hooks.h"
#include "janitor.h"
#include "large.h"
#include "lock.h"
#include "maintain.h"
#include "map.h"
#include "pages.h"
#include "profile.h"
#include "purge.h"
#include "rights.h"
#include "slab.h"
#include "sys.h"

enum {
  PURGE_BEFORE_FORK_PAGES = 256, /* more free dirty pages than this would be copied or kept twice */
  UNSEAL_PARENT_SHIFT = 2,       /* a parent goes on for long: a quarter free and the slab serves again */
};

#define TRY_AGAIN_NS UINT64_C(1000000)

static bool seal_parent; /* atomic */

static __thread uint32_t depth FIXED_TLS;    /* forks that this thread is in: a handler may fork in prepare, */
static __thread uint32_t sits_out FIXED_TLS; /* and so may one that interrupts it: that takes no lock, and gives none */

/* Blocked from prepare on, so that none does. */
static __thread uint64_t signals_before FIXED_TLS;
static __thread bool signals_are_blocked FIXED_TLS;

void fork_seal_parent_next(void) { __atomic_store_n(&seal_parent, true, __ATOMIC_RELAXED); }

void fork_lock_all(void) {
  purge_lock_all();
  cache_lock_all();
  slab_lock_all();
  pages_lock_all();
  large_lock_all();
  map_lock_all();
  profile_table_lock_all();
  if (!lock_passes_over() && !lock_missed_in_fork()) __atomic_store_n(&lock_all_owner, lock_self(), __ATOMIC_RELAXED);
}

void fork_unlock_all(void) {
  if (!lock_passes_over() && lock_held_by_fork()) __atomic_store_n(&lock_all_owner, NULL, __ATOMIC_RELAXED);
  profile_table_unlock_all();
  map_unlock_all();
  large_unlock_all();
  pages_unlock_all();
  slab_unlock_all();
  cache_unlock_all();
  purge_unlock_all();
}

/* glibc's lock of the list of open files, which fork(2) takes after our handlers: taken after ours, a thread that holds
 * it, waits for a FILE, and so for one that allocates while it holds that FILE, would wait for us. It is recursive.
 * Each fork takes it here: one that left it to glibc would wait for it under glibc's lock of the handlers, for which
 * one that has it from here waits. */
__attribute__((weak)) void _IO_list_lock(void);
__attribute__((weak)) void _IO_list_unlock(void);
__attribute__((weak)) void _IO_list_resetlock(void);

static void lock_list_of_files(void) {
  if (_IO_list_lock != NULL) _IO_list_lock();
}

static void unlock_list_of_files(void) {
  if (_IO_list_unlock != NULL) _IO_list_unlock();
}

/* A sandbox may not have the call. */
static void block_signals(void) {
  signals_are_blocked = rights_have(RIGHT_THREAD);
  if (signals_are_blocked) signals_before = sys_block_signals();
}

static void restore_signals(void) {
  if (signals_are_blocked) sys_restore_signals(signals_before);
}

/* Not forever: who has one of our locks may be a signal handler that forks, too, and waits for the list of files. So
 * nothing is called here that waits for a lock of ours. */
static bool try_to_lock_all(void) {
  lock_list_of_files();
  lock_try_in_fork(true);
  janitor_stop();
  fork_lock_all();
  bool has_all = !lock_missed_in_fork();
  lock_try_in_fork(false);
  if (has_all) return true;
  fork_unlock_all();
  janitor_resume();
  unlock_list_of_files();
  return false;
}

static void prepare(void) {
  maintain_claim_copy();
  bool is_nested = depth++ != 0;
  if (!is_nested) block_signals();
  if (is_nested && lock_passes_over()) {
    sits_out++;
    lock_list_of_files();
    return;
  }
  lock_pass_over(cache_thread_is_inside() || lock_held_by_fork() || is_nested);
  if (lock_passes_over()) {
    lock_list_of_files(); /* who tries gives it back, whatever locks this thread has */
    janitor_stop();
    fork_lock_all();
  } else {
    if (pages_dirty() > PURGE_BEFORE_FORK_PAGES) purge_before_fork();
    janitor_await_fork(true);
    while (!try_to_lock_all()) sys_sleep(TRY_AGAIN_NS);
    janitor_await_fork(false);
  }
}

/* Since the last sealing, by a quarter at least: a program that trims regularly shall not strand its free slots again
 * and again. The fork holds all locks. */
static bool heap_has_grown(void) {
  static size_t sealed_at_pages;
  if (pages_used() < sealed_at_pages + sealed_at_pages / 4) return false;
  sealed_at_pages = pages_used();
  return true;
}

static void end_fork(void) {
  if (sits_out != 0) {
    sits_out--;
  } else {
    lock_pass_over(false);
  }
  if (--depth == 0) restore_signals();
}

static void parent(void) {
  bool seals = !lock_passes_over() && __atomic_exchange_n(&seal_parent, false, __ATOMIC_RELAXED);
  if (seals && heap_has_grown()) slab_seal(UNSEAL_PARENT_SHIFT);
  counter_bump(&snug_counters.forks, 1);
  if (sits_out == 0) {
    fork_unlock_all();
    janitor_resume();
  }
  if (!lock_passes_over()) janitor_start_again(UINT32_MAX);
  unlock_list_of_files();
  end_fork();
}

static void child(void) {
  __atomic_store_n(&lock_all_owner, NULL, __ATOMIC_RELAXED);
  lock_debug_reset();
  profile_table_reset_locks();
  map_reset_locks();
  large_reset_locks();
  pages_reset_locks();
  slab_reset_locks();
  cache_reset_locks();
  purge_reset_locks();
  janitor_forget();
  snug_counters.pid = rights_own_memory();
  control_after_fork();
  cache_after_fork();
  profile_after_fork(lock_passes_over());
  if (_IO_list_resetlock != NULL) _IO_list_resetlock();
  end_fork();
}

void fork_register_handlers(void) { hooks_at_fork(prepare, parent, child); }
