#include "janitor.h"

#include "control.h"
#include "counters.h"
#include "lock.h"
#include "options.h"
#include "purge.h"
#include "sys.h"

/* Builds for sanitizers, which know only threads of pthread_create, say -DSNUG_JANITOR=0. */
#ifndef SNUG_JANITOR
#define SNUG_JANITOR 1
#endif

#define LOOK_NS UINT64_C(100000000)
#define NAP_NS UINT64_C(1000000)

enum {
  IDLE_LOOKS = 3,       /* so many looks without activity: the program idles */
  NOT_WORTH_LOOKS = 20, /* so many looks with nothing to give back: not needed */
  STACK_BYTES = 32 * 1024,
  REFUSED_SKIPS = 1000,
  LEAVE_LOOKS = 400,
  ANOTHERS_NAPS = 200,
  LEAVE_YIELDS = 100,        /* after so many looks a nap between them */
  THREAD_BLOCK_WORDS = 2048, /* its middle is the thread pointer; debug builds count locks below or above it */
};

static bool is_wanted(void) { return __atomic_load_n(&options.background, __ATOMIC_RELAXED) != 0; }

static struct {
  struct lock lock; /* rank JANITOR: held while one starts, and from janitor_stop to janitor_after_fork */
  uint32_t alive;   /* the thread's id; the kernel clears it and wakes when the thread is gone */
  uint32_t stop;    /* atomic, a futex; written under the lock */
  uint32_t last;    /* atomic: the id of the one that runs, or ran last; 0: it has left for certain */
  uint32_t refused; /* atomic: starting failed; so many wishes more are ignored */
  uintptr_t thread_block[THREAD_BLOCK_WORDS]
      __attribute__((aligned(64))); /* in place of libc's: zeros, and its own address */
  char stack[STACK_BYTES] __attribute__((aligned(64)));
} janitor;

bool janitor_is_running(void) { return __atomic_load_n(&janitor.alive, __ATOMIC_ACQUIRE) != 0; }

/* Watches until the program idles, when it gives everything back, or until there is nothing to do. */
static void watch_once(bool own_files) {
  uint64_t activity = 0;
  for (uint32_t idle = 0, useless = 0; idle < IDLE_LOOKS && useless < NOT_WORTH_LOOKS;) {
    sys_futex_wait(&janitor.stop, 0, LOOK_NS);
    if (__atomic_load_n(&janitor.stop, __ATOMIC_ACQUIRE) != 0) return;
    control_look(NULL);
    if (!is_wanted()) return;
    uint64_t now = purge_activity();
    idle = now == activity ? idle + 1 : 0;
    activity = now;
    if (idle == 0) purge_tick_if_due(NULL, own_files);
    useless = purge_janitor_is_worth() ? 0 : useless + 1;
  }
  if (__atomic_load_n(&janitor.stop, __ATOMIC_ACQUIRE) != 0) return;
  purge_all(NULL);
  counter_bump(&snug_counters.idle_purges, 1);
}

/* What the program frees while all is given back starts no other one. */
static void watch(bool own_files) {
  do {
    watch_once(own_files);
  } while (is_wanted() && __atomic_load_n(&janitor.stop, __ATOMIC_ACQUIRE) == 0 && purge_janitor_is_worth());
}

static void run(void) {
  __atomic_store_n(&janitor.last, sys_thread_id(), __ATOMIC_RELAXED);
  sys_drop_capabilities();
  /* With a table of its own it takes no descriptor that the program is about to get. */
  watch(sys_leave_files());
  sys_exit_thread();
}

/* In a copy of a process that clone(2) made without our handlers, the word is that of a thread of the parent's, and
 * stays. After vfork(2), where it is soon cleared, the memory is the parent's. */
static void wait_for_anothers(void) {
  for (int i = 0; i < ANOTHERS_NAPS && janitor_is_running(); i++) sys_sleep(NAP_NS);
  __atomic_store_n(&janitor.alive, 0, __ATOMIC_RELAXED);
}

/* The kernel clears its word a moment before the thread leaves the process, and callers need it to have left. */
static void wait_until_gone(void) {
  uint32_t id;
  if (unlikely(janitor_is_running() && sys_process_id() != snug_counters.pid)) wait_for_anothers();
  while ((id = __atomic_load_n(&janitor.alive, __ATOMIC_ACQUIRE)) != 0) {
    if (likely(!lock_passes_over())) {
      sys_futex_wait_shared(&janitor.alive, id);
    } else if (!lock_wait_in_fork()) {
      return; /* it waits for a lock that this thread holds (K4) */
    }
  }
  id = __atomic_exchange_n(&janitor.last, 0, __ATOMIC_RELAXED);
  for (int i = 0; i < LEAVE_LOOKS && id != 0 && sys_thread_exists(sys_process_id(), id); i++) {
    if (i < LEAVE_YIELDS) {
      sys_yield();
    } else {
      sys_sleep(NAP_NS);
    }
  }
}

static bool wait_after_refusal(void) {
  uint32_t left = __atomic_load_n(&janitor.refused, __ATOMIC_RELAXED);
  if (left == 0) return false;
  __atomic_store_n(&janitor.refused, left - 1, __ATOMIC_RELAXED);
  return true;
}

/* The lock is held, and no other one runs on the stack. */
static void start_thread(void) {
  /* What one of the parent's that had to be left running held (K4). */
  for (size_t i = 0; SNUG_DEBUG && i < THREAD_BLOCK_WORDS; i++) janitor.thread_block[i] = 0;
  uintptr_t *block = &janitor.thread_block[THREAD_BLOCK_WORDS / 2];
  block[0] = block[2] = (uintptr_t)block; /* where x86-64 looks for it */
  if (sys_start_thread(run, janitor.stack, sizeof janitor.stack, block, &janitor.alive)) {
    counter_bump(&snug_counters.janitor_starts, 1);
  } else {
    __atomic_store_n(&janitor.refused, REFUSED_SKIPS, __ATOMIC_RELAXED);
  }
}

void janitor_start(void) {
  if (!SNUG_JANITOR || !is_wanted() || wait_after_refusal()) return;
  if (janitor_is_running() || !lock_try(&janitor.lock, RANK_JANITOR)) return;
  /* After vfork this memory is the parent's, and a thread of the child would end with it, or with its exec. */
  bool own_memory = sys_process_id() == snug_counters.pid;
  if (own_memory && !janitor_is_running()) start_thread();
  lock_give(&janitor.lock, RANK_JANITOR);
}

void janitor_stop(void) {
  if (!lock_take_in_fork(&janitor.lock, RANK_JANITOR)) return; /* who has it sees to the janitor (K4) */
  __atomic_store_n(&janitor.stop, 1, __ATOMIC_RELEASE);
  sys_futex_wake(&janitor.stop, 1);
  wait_until_gone();
}

void janitor_after_fork(bool in_child) {
  if (in_child || lock_had_in_fork(&janitor.lock)) __atomic_store_n(&janitor.stop, 0, __ATOMIC_RELAXED);
  if (in_child) {
    __atomic_store_n(&janitor.alive, 0, __ATOMIC_RELAXED);
    lock_reset(&janitor.lock);
  } else {
    lock_give_in_fork(&janitor.lock, RANK_JANITOR);
  }
}
