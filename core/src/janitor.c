#include "janitor.h"

#include "counters.h"
#include "options.h"
#include "purge.h"
#include "sys.h"

/* Builds for sanitizers, which know only threads of pthread_create, say -DSNUG_JANITOR=0. */
#ifndef SNUG_JANITOR
#define SNUG_JANITOR 1
#endif

#define LOOK_NS UINT64_C(100000000)

enum {
  IDLE_LOOKS = 3,       /* so many looks without activity: the program idles */
  NOT_WORTH_LOOKS = 20, /* so many looks with nothing to give back: not needed */
  STACK_BYTES = 32 * 1024,
  REFUSED_SKIPS = 1000,
  LEAVE_YIELDS = 1000,
  THREAD_BLOCK_WORDS = 2048, /* its middle is the thread pointer; debug builds count locks below or above it */
  STATE_NONE = 0,
  STATE_RUNNING = 1,
  STATE_BLOCKED = 2, /* by a fork in progress */
};

static struct {
  uint32_t state;   /* atomic */
  uint32_t alive;   /* the thread's id; the kernel clears it and wakes when the thread is gone */
  uint32_t stop;    /* atomic, a futex */
  uint32_t refused; /* atomic: starting failed; so many wishes more are ignored */
  uintptr_t thread_block[THREAD_BLOCK_WORDS]
      __attribute__((aligned(64))); /* in place of libc's: zeros, and its own address */
  char stack[STACK_BYTES] __attribute__((aligned(64)));
} janitor;

bool janitor_is_running(void) { return __atomic_load_n(&janitor.state, __ATOMIC_RELAXED) != STATE_NONE; }

/* Watches until the program idles or there is nothing to do. */
static void watch(bool own_files) {
  uint64_t activity = 0;
  for (uint32_t idle = 0, useless = 0; idle < IDLE_LOOKS && useless < NOT_WORTH_LOOKS;) {
    sys_futex_wait(&janitor.stop, 0, LOOK_NS);
    if (__atomic_load_n(&janitor.stop, __ATOMIC_ACQUIRE) != 0) return;
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

static void run(void) {
  sys_drop_capabilities();
  /* With a table of its own it takes no descriptor that the program is about to get. */
  watch(sys_leave_files());
  uint32_t running = STATE_RUNNING;
  __atomic_compare_exchange_n(&janitor.state, &running, STATE_NONE, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED);
  sys_exit_thread();
}

static void wait_until_gone(void) {
  uint32_t id;
  uint32_t last = 0;
  while ((id = __atomic_load_n(&janitor.alive, __ATOMIC_ACQUIRE)) != 0) {
    last = id;
    sys_futex_wait_shared(&janitor.alive, id);
  }
  /* The word is cleared a moment before the thread leaves the process. */
  for (int i = 0; i < LEAVE_YIELDS && last != 0 && sys_thread_exists(last); i++) sys_yield();
}

static bool wait_after_refusal(void) {
  uint32_t left = __atomic_load_n(&janitor.refused, __ATOMIC_RELAXED);
  if (left == 0) return false;
  __atomic_store_n(&janitor.refused, left - 1, __ATOMIC_RELAXED);
  return true;
}

void janitor_start(void) {
  if (!SNUG_JANITOR || !options.background || wait_after_refusal()) return;
  if (__atomic_load_n(&janitor.alive, __ATOMIC_ACQUIRE) != 0) return; /* the last one is still on its way out */
  uint32_t none = STATE_NONE;
  if (!__atomic_compare_exchange_n(&janitor.state, &none, STATE_RUNNING, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
    return;
  uintptr_t *block = &janitor.thread_block[THREAD_BLOCK_WORDS / 2];
  block[0] = block[2] = (uintptr_t)block;                       /* where x86-64 looks for it */
  if (__atomic_load_n(&janitor.alive, __ATOMIC_ACQUIRE) != 0) { /* somebody else's, just started and ended */
    __atomic_store_n(&janitor.state, STATE_NONE, __ATOMIC_RELEASE);
    return;
  }
  if (sys_start_thread(run, janitor.stack, sizeof janitor.stack, block, &janitor.alive)) {
    counter_bump(&snug_counters.janitor_starts, 1);
    return;
  }
  __atomic_store_n(&janitor.refused, REFUSED_SKIPS, __ATOMIC_RELAXED);
  __atomic_store_n(&janitor.state, STATE_NONE, __ATOMIC_RELEASE);
}

void janitor_stop(void) {
  __atomic_store_n(&janitor.stop, 1, __ATOMIC_RELEASE);
  while (__atomic_exchange_n(&janitor.state, STATE_BLOCKED, __ATOMIC_ACQ_REL) == STATE_BLOCKED) sys_yield();
  sys_futex_wake(&janitor.stop, 1);
  wait_until_gone();
}

void janitor_after_fork(bool in_child) {
  if (in_child) __atomic_store_n(&janitor.alive, 0, __ATOMIC_RELAXED);
  __atomic_store_n(&janitor.stop, 0, __ATOMIC_RELAXED);
  __atomic_store_n(&janitor.state, STATE_NONE, __ATOMIC_RELEASE);
}
