#include "janitor.h"

#include "control.h"
#include "counters.h"
#include "lock.h"
#include "options.h"
#include "purge.h"
#include "rights.h"
#include "sys.h"
#include "tick.h"

/* Builds for sanitizers, which know only threads of pthread_create, say -DSNUG_JANITOR=0. */
#ifndef SNUG_JANITOR
#define SNUG_JANITOR 1
#endif

#define LOOK_NS UINT64_C(100000000)
#define LEAVE_NAP_NS UINT64_C(1000000)
#define FORKS_FIRST_NAP_NS UINT64_C(100000)
#define OLD_NS UINT64_C(1000000000)
#define QUICK_NS UINT64_C(10000000)

enum {
  NOT_WORTH_LOOKS = 20, /* so many looks with nothing to give back: not needed */
  VAIN_PURGES = 2,      /* that gave back next to nothing, one after the other: there may be nothing that can go */
  STACK_BYTES = 32 * 1024,
  REFUSED_SKIPS = 1000,
  LEAVE_NAPS = 400,
  LEAVE_UNSEEN_NAPS = 5, /* where nobody may ask whether it has left */
  FORKS_FIRST_NAPS = 100,
  THREAD_BLOCK_WORDS = 2048, /* its middle is the thread pointer; debug builds count locks below or above it */
};

static bool is_wanted(void) { return __atomic_load_n(&options.background, __ATOMIC_RELAXED) != 0; }

enum janitor_state {
  WATCHES, /* it sees what the program does */
  LEAVES,  /* it looks for the last time, and may stay */
  AWAITED, /* another one waits to take its place */
};

static struct {
  struct lock lock;       /* rank JANITOR: held while one starts, and from janitor_stop to janitor_resume */
  uint32_t alive;         /* the thread's id; the kernel clears it and wakes when the thread is gone */
  uint32_t state;         /* atomic: enum janitor_state */
  uint32_t stop;          /* atomic, a futex; written under the lock */
  uint32_t last;          /* under the lock: the id of the one started last; 0: it has left for certain */
  bool must_end;          /* atomic: whoever asked could not wait for that (K4) */
  uint32_t refused;       /* atomic: starting failed; so many wishes more are ignored */
  bool interrupted;       /* atomic: janitor_stop ended the last one, or who had the lock kept one from starting */
  uint32_t forks;         /* atomic: those that wait for the lock, if only for an instant */
  uint64_t started_at_ns; /* atomic */
  uint32_t quick_starts;  /* atomic: in a row, each within QUICK_NS of the one before */
  uintptr_t thread_block[THREAD_BLOCK_WORDS]
      __attribute__((aligned(64))); /* in place of libc's: zeros, and its own address */
  char stack[STACK_BYTES] __attribute__((aligned(64)));
} janitor;

bool janitor_is_running(void) { return __atomic_load_n(&janitor.alive, __ATOMIC_ACQUIRE) != 0; }

/* The fence has its like in stays_after_all: either what was freed before is seen there, or LEAVES here. */
bool janitor_watches(void) {
  if (!janitor_is_running()) return false;
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
  return __atomic_load_n(&janitor.state, __ATOMIC_RELAXED) == WATCHES;
}

static bool is_told_to_end(void) {
  return __atomic_load_n(&janitor.stop, __ATOMIC_ACQUIRE) != 0 || __atomic_load_n(&janitor.must_end, __ATOMIC_RELAXED);
}

/* Whether it has a table of descriptors of its own from now on, where it takes none that the program is about to get.
 * The kernel closes copies of the program's for that, which some file systems take for more (docs/decisions/0024). */
static bool leave_files(void) { return tick_janitor_needs_files() && rights_have(RIGHT_OTHERS) && sys_leave_files(); }

/* Watches until the program idles, when it gives everything back, or until there is nothing to do. True: the program
 * did nothing while all was given back, and yet that was next to nothing. */
static bool watch_once(bool *own_files) {
  uint64_t activity = 0;
  uint32_t idle = 0;
  for (uint32_t useless = 0; idle < purge_idle_looks(); useless = purge_janitor_is_worth() ? 0 : useless + 1) {
    if (useless == NOT_WORTH_LOOKS) return false; /* the program works on: its own slow paths do what is to be done */
    sys_futex_wait(&janitor.stop, 0, LOOK_NS);
    if (is_told_to_end()) return false;
    control_look(NULL);
    if (!is_wanted()) return false;
    uint64_t now = purge_activity();
    idle = now == activity ? idle + 1 : 0;
    activity = now;
    if (!*own_files) *own_files = leave_files();
    if (idle == 0) tick_if_due(NULL, *own_files);
  }
  if (is_told_to_end()) return false;
  purge_idle();
  return purge_was_in_vain() && purge_activity() == activity;
}

static bool turn_from(uint32_t from, uint32_t to) {
  return __atomic_compare_exchange_n(&janitor.state, &from, to, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

static bool is_needed(uint32_t vain) {
  return is_wanted() && !is_told_to_end() && vain < VAIN_PURGES && purge_janitor_is_worth();
}

/* Memory that the program frees from LEAVES on starts another one; what it freed before must be seen here. */
static bool stays_after_all(uint32_t vain) {
  __atomic_store_n(&janitor.state, LEAVES, __ATOMIC_RELAXED);
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
  return is_needed(vain) && turn_from(LEAVES, WATCHES);
}

/* Memory that the program frees while all is given back starts no other one, so it looks again. */
static void watch(void) {
  bool own_files = false;
  uint32_t vain = 0;
  do {
    vain = watch_once(&own_files) ? vain + 1 : 0;
  } while (is_needed(vain) || stays_after_all(vain));
}

static void run(void) {
  watch();
  sys_exit_thread();
}

/* K4: it may wait for a lock that this thread holds, or this thread may be starting it. */
static void let_it_end(void) {
  if (lock_passes_over()) __atomic_store_n(&janitor.must_end, true, __ATOMIC_RELAXED);
}

/* The lock is held, or it does not start. */
static void wait_until_it_ends(void) {
  uint32_t id;
  while ((id = __atomic_load_n(&janitor.alive, __ATOMIC_ACQUIRE)) != 0) {
    if (likely(!lock_passes_over() && !lock_is_tried_in_fork())) {
      sys_futex_wait_shared(&janitor.alive, id);
    } else if (!lock_wait_in_fork()) {
      return let_it_end(); /* or it waits for another one that forks */
    }
  }
}

/* The kernel clears its word a moment before the thread leaves the process. */
static void wait_until_it_has_left(void) {
  bool can_ask = rights_have(RIGHT_OTHERS);
  if (janitor.last == 0) return;
  for (int i = 0; i < (can_ask ? LEAVE_NAPS : LEAVE_UNSEEN_NAPS); i++) {
    if (can_ask && !sys_thread_exists(sys_process_id(), janitor.last)) break;
    sys_sleep(i == 0 ? LEAVE_NAP_NS / 16 : LEAVE_NAP_NS);
  }
  janitor.last = 0;
}

static bool wait_after_refusal(void) {
  uint32_t left = __atomic_load_n(&janitor.refused, __ATOMIC_RELAXED);
  if (left == 0) return false;
  __atomic_store_n(&janitor.refused, left - 1, __ATOMIC_RELAXED);
  return true;
}

static uint64_t age_ns(void) {
  return sys_coarse_time_ns() - __atomic_load_n(&janitor.started_at_ns, __ATOMIC_RELAXED);
}

/* The lock is held, and no other one runs on the stack. Whether the system let it start. The flag goes before: whoever
 * finds the lock taken from then on is heard when it is given. */
static bool start_thread(void) {
  /* The block of a janitor of the parent's that had to be left running (K4). */
  for (size_t i = 0; SNUG_DEBUG && i < THREAD_BLOCK_WORDS; i++) janitor.thread_block[i] = 0;
  uintptr_t *block = &janitor.thread_block[THREAD_BLOCK_WORDS / 2];
  block[0] = block[2] = (uintptr_t)block; /* where x86-64 looks for it */
  __atomic_store_n(&janitor.state, WATCHES, __ATOMIC_RELAXED);
  __atomic_store_n(&janitor.must_end, false, __ATOMIC_RELAXED);
  bool interrupted = __atomic_exchange_n(&janitor.interrupted, false, __ATOMIC_RELAXED);
  janitor.last = sys_start_thread(run, janitor.stack, sizeof janitor.stack, block, &janitor.alive);
  if (janitor.last == 0) {
    if (interrupted) __atomic_store_n(&janitor.interrupted, true, __ATOMIC_RELAXED);
    return false;
  }
  __atomic_store_n(&janitor.quick_starts, age_ns() > QUICK_NS ? 1 : janitor.quick_starts + 1, __ATOMIC_RELAXED);
  __atomic_store_n(&janitor.started_at_ns, sys_coarse_time_ns(), __ATOMIC_RELAXED);
  __atomic_store_n(&janitor.refused, 0, __ATOMIC_RELAXED);
  counter_bump(&snug_counters.janitor_starts, 1);
  return true;
}

/* It touches no thread-local variable (J2), but where a call finds them, the compiler may make that call early, and
 * libc knows nothing of its thread block. */
static bool finds_variables(void) { return !TLS_BY_CALL || sys_is_in_program(); }

static bool may_start(void) { return SNUG_JANITOR && finds_variables() && is_wanted() && rights_may_start_thread(); }

/* After vfork this memory is the parent's, and a thread of the child would end with it, or with its exec. The lock is
 * held, and rights may have ended since this thread last asked (S1). */
static bool is_ours_to_start(void) { return rights_identity() == IDENTITY_OWN && rights_may_start_thread(); }

/* If a thread gives the lock without having seen the flag, it is seen to have given it: that is what the fence is for,
 * here and where the lock is given. */
static bool take_turn(void) {
  if (lock_try(&janitor.lock, RANK_JANITOR)) return true;
  __atomic_store_n(&janitor.interrupted, true, __ATOMIC_RELAXED);
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
  return lock_try(&janitor.lock, RANK_JANITOR);
}

static bool was_interrupted(void) {
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
  return __atomic_load_n(&janitor.interrupted, __ATOMIC_RELAXED);
}

/* The lock is held. If the system refuses, it is not asked again for so many wishes. False: none can start now. */
static bool start_unless_one_runs(uint32_t skips) {
  if (!is_ours_to_start()) return false;
  if (janitor_is_running() && turn_from(LEAVES, AWAITED)) wait_until_it_ends();
  if (janitor_is_running() || start_thread()) return true;
  __atomic_store_n(&janitor.refused, skips, __ATOMIC_RELAXED);
  return false;
}

/* One that starts, finds nothing and leaves within our turn has not seen what others freed, who found the lock taken:
 * so we look again (core/tests/models/janitor.pml). */
static void start_if_there_is_none(uint32_t skips) {
  bool again = true;
  while (again && !janitor_watches() && take_turn()) {
    again = start_unless_one_runs(skips);
    lock_give(&janitor.lock, RANK_JANITOR);
    again = again && was_interrupted();
  }
}

void janitor_start(void) {
  if (may_start() && !wait_after_refusal()) start_if_there_is_none(REFUSED_SKIPS);
}

static void ask_to_end(bool end) {
  __atomic_store_n(&janitor.stop, end, __ATOMIC_RELEASE);
  purge_stop(end);
  if (end) sys_futex_wake(&janitor.stop, 1);
}

void janitor_replace_if_old(void) {
  if (!janitor_is_running() || age_ns() <= OLD_NS || !lock_try(&janitor.lock, RANK_JANITOR)) return;
  if (is_ours_to_start()) {
    ask_to_end(true);
    wait_until_it_ends();
    ask_to_end(false);
    if (is_wanted()) start_thread();
  }
  lock_give(&janitor.lock, RANK_JANITOR);
  janitor_start_again(UINT32_MAX);
}

/* In the child of a handler's fork that interrupted another one none waits any more when that other one goes on. */
void janitor_await_fork(bool on) {
  if (on) {
    __atomic_fetch_add(&janitor.forks, 1, __ATOMIC_RELAXED);
    return;
  }
  uint32_t waiting = __atomic_load_n(&janitor.forks, __ATOMIC_RELAXED);
  while (waiting != 0 && !__atomic_compare_exchange_n(&janitor.forks, &waiting, waiting - 1, false, __ATOMIC_RELAXED,
                                                      __ATOMIC_RELAXED)) {
  }
}

/* A fork, which only tries (fork.c), would hardly ever get the lock beside a thread that changes its ids in a loop. Not
 * for long: the fork may wait for something else. */
static void let_forks_go_first(void) {
  for (int i = 0; i < FORKS_FIRST_NAPS && __atomic_load_n(&janitor.forks, __ATOMIC_RELAXED) != 0; i++) {
    sys_sleep(FORKS_FIRST_NAP_NS);
  }
}

void janitor_stop(void) {
  if (!lock_is_tried_in_fork() && !lock_passes_over() && !lock_held_by_fork()) let_forks_go_first();
  if (!lock_take_in_fork(&janitor.lock, RANK_JANITOR)) return let_it_end(); /* or who has it sees to it */
  if (janitor_is_running()) __atomic_store_n(&janitor.interrupted, true, __ATOMIC_RELAXED);
  ask_to_end(true);
  wait_until_it_ends();
}

void janitor_stop_and_leave(void) {
  janitor_stop();
  if (lock_had_in_fork(&janitor.lock)) wait_until_it_has_left();
}

void janitor_resume(void) {
  if (lock_had_in_fork(&janitor.lock)) ask_to_end(false);
  lock_give_in_fork(&janitor.lock, RANK_JANITOR);
}

/* The flag stays until one has started: who comes first may find the lock taken by another one that stops it, and the
 * system may refuse for a while, as it does while a fork would go to another namespace of processes. */
void janitor_start_again(uint32_t most_quick_starts) {
  if (!was_interrupted() || !may_start()) return;
  if (__atomic_load_n(&janitor.quick_starts, __ATOMIC_RELAXED) >= most_quick_starts && age_ns() <= QUICK_NS) return;
  if (control_is_asked() || purge_janitor_is_worth()) start_if_there_is_none(0);
}

void janitor_forget(void) {
  ask_to_end(false);
  __atomic_store_n(&janitor.interrupted, false, __ATOMIC_RELAXED);
  __atomic_store_n(&janitor.must_end, false, __ATOMIC_RELAXED);
  __atomic_store_n(&janitor.refused, 0, __ATOMIC_RELAXED);
  __atomic_store_n(&janitor.alive, 0, __ATOMIC_RELAXED);
  __atomic_store_n(&janitor.forks, 0, __ATOMIC_RELAXED);
  janitor.last = 0;
  lock_reset(&janitor.lock);
}
