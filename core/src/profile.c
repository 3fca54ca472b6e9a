#include "profile.h"

#include "counters.h"
#include "fence.h"
#include "gauges.h"
#include "lock.h"
#include "maintain.h"
#include "poisson.h"
#include "python.h"
#include "ruby.h"
#include "sys.h"
#include "unwind.h"

enum {
  NATIVE_ABOVE_LANGUAGE = 24, /* frames of the interpreter itself say little */
  BLOCKS_UNIT = 1024,
};

enum { STATE_NONE, STATE_PREPARING, STATE_READY, STATE_REFUSED };

uint32_t profile_arena;

static struct {
  uint32_t state;        /* atomic */
  uint32_t setting;      /* atomic: the one that the mean is for */
  uint64_t random;       /* atomic: counts up by POISSON_GAMMA */
  uint32_t ruby, python; /* as in the table's head */
} profile;

/* ---- switching on ---- */

static void seed(void) {
  uint64_t number = sys_coarse_time_ns() + (uintptr_t)&number + snug_counters.pid * POISSON_GAMMA;
  counter_set(&profile.random, poisson_mix(number));
}

uint64_t profile_wanted_mean(uint32_t setting) { return setting > 1 ? setting : PROFILE_MEAN_BYTES; }

static void prepare_languages(void) {
  profile.ruby = ruby_prepare();
  profile.python = python_prepare();
}

static void after_tick(void) {
  if (__atomic_load_n(&options.profile, __ATOMIC_RELAXED) != 0) profile_budget_tick();
}

/* Once. False: it can't be, or is being done by another thread just now. */
static bool prepare_once(void) {
  uint32_t none = STATE_NONE;
  if (!__atomic_compare_exchange_n(&profile.state, &none, STATE_PREPARING, false, __ATOMIC_ACQUIRE, __ATOMIC_ACQUIRE))
    return none == STATE_READY;
  cache_lock_owners();
  unsigned arena = arena_reserve();
  cache_unlock_owners();
  bool ready = arena != 0 && profile_table_make(0);
  if (ready) {
    seed();
    profile_budget_prepare();
    if (sys_is_glibc()) prepare_languages();
    profile_head->ruby = profile.ruby;
    profile_head->python = profile.python;
    __atomic_store_n(&maintain_after_tick, after_tick, __ATOMIC_RELAXED);
    __atomic_store_n(&profile_arena, arena, __ATOMIC_RELAXED);
    counter_set(&snug_counters.profile_address, (uintptr_t)profile_head);
  }
  __atomic_store_n(&profile.state, ready ? STATE_READY : STATE_REFUSED, __ATOMIC_RELEASE);
  return ready;
}

/* The first thread to see another setting begins with its mean. */
static void take_setting(uint32_t setting) {
  if (__atomic_exchange_n(&profile.setting, setting, __ATOMIC_RELAXED) == setting || setting == 0) return;
  profile_budget_begin(profile_wanted_mean(setting));
}

static void draw(struct thread *thread) {
  thread->mean_bytes = profile_budget_mean_bytes();
  uint64_t random = poisson_mix(__atomic_add_fetch(&profile.random, POISSON_GAMMA, __ATOMIC_RELAXED));
  thread->until_sample = (int64_t)poisson_distance(thread->mean_bytes, random);
}

/* Whether samples are taken at all by this setting; else the thread counts down from far away (D1). */
static bool follow_setting(struct thread *thread, uint32_t setting) {
  bool on = false;
  if (setting != 0) {
    on = prepare_once();
    if (!on && __atomic_load_n(&profile.state, __ATOMIC_RELAXED) == STATE_PREPARING) return false; /* asks again */
  }
  if (__atomic_load_n(&profile.state, __ATOMIC_ACQUIRE) == STATE_READY) take_setting(setting);
  thread->profile = setting;
  if (on) {
    draw(thread);
  } else {
    thread->until_sample = INT64_MAX;
    thread->mean_bytes = 0; /* never stale */
  }
  return on;
}

bool profile_begin(size_t size_bytes) {
  struct thread *thread = &this_thread;
  if (thread->takes_sample) return false; /* D3 */
  uint32_t setting = __atomic_load_n(&options.profile, __ATOMIC_RELAXED);
  if (thread->profile != setting || setting == 0) {
    thread->takes_sample = 1; /* what the loader allocates, if anything */
    bool on = follow_setting(thread, setting);
    thread->takes_sample = 0;
    /* Whatever was counted before, the distance to the next sample is distributed as it was at first. */
    if (!on || cache_counts(size_bytes <= PTRDIFF_MAX >> 8 ? size_bytes : 0)) return false;
  } else if (thread->until_sample >= 0) {
    draw(thread);
    return false;
  }
  if (__atomic_load_n(&profile.state, __ATOMIC_ACQUIRE) != STATE_READY) return false;
  thread->takes_sample = 1;
  return true;
}

void profile_start(bool may_begin) {
  if (!sys_is_glibc()) { /* D4: later musl's loader can't be asked */
    unwind_prepare();
    prepare_languages();
  }
  uint32_t setting = __atomic_load_n(&options.profile, __ATOMIC_RELAXED);
  if (setting == 0 && !may_begin) return;
  cache_slow_path_begins();
  this_thread.takes_sample = 1;
  if (setting != 0) {
    cache_call_in();
    follow_setting(&this_thread, setting);
  } else {
    prepare_once();
  }
  this_thread.takes_sample = 0;
  cache_slow_path_ends();
}

uint64_t profile_mean_bytes(uint32_t setting) {
  uint32_t now = __atomic_load_n(&options.profile, __ATOMIC_RELAXED);
  bool is_followed = now != 0 && __atomic_load_n(&profile.setting, __ATOMIC_RELAXED) == now;
  return is_followed ? profile_budget_mean_bytes() : profile_wanted_mean(now != 0 ? now : setting);
}

/* ---- samples ---- */

static void walk(struct profile_frames *frames) {
  frames->tags = 0;
  frames->tell = NULL;
  frames->language_count = 0;
  struct unwind_range languages[] = {ruby_code(), python_code()};
  frames->native_count = unwind_here(frames->native, PROFILE_NATIVE_MAX, languages, &frames->native_end);
  ruby_add_frames(frames);
  if (frames->language_count == 0) python_add_frames(frames);
  if (frames->language_count != 0) {
    if (frames->native_count >= NATIVE_ABOVE_LANGUAGE) frames->native_end = UNWIND_ENOUGH;
    if (frames->native_count > NATIVE_ABOVE_LANGUAGE) frames->native_count = NATIVE_ABOVE_LANGUAGE;
  } else if (frames->native_end == UNWIND_ENOUGH && frames->native_count < PROFILE_NATIVE_MAX) {
    frames->native_count = unwind_here(frames->native, PROFILE_NATIVE_MAX, NULL, &frames->native_end);
  }
  if (frames->native_end == UNWIND_CUT) frames->tags |= SNUG_PROFILE_CUT;
  if (frames->native_count == PROFILE_NATIVE_MAX) frames->tags |= SNUG_PROFILE_DEEP;
}

NEVER_INLINE void profile_note(const void *block, size_t size_bytes) {
  struct thread *thread = &this_thread;
  uint64_t ticks = profile_budget_ticks();
  double share = poisson_share(size_bytes, thread->mean_bytes);
  struct snug_profile_sample sample = {.address = (uintptr_t)block, .size_bytes = size_bytes};
  sample.weight_bytes = (uint64_t)((double)size_bytes / share + 0.5);
  sample.blocks = (uint64_t)(BLOCKS_UNIT / share + 0.5);
  sample.time_ns = sys_coarse_time_ns();
  sample.thread = (uint32_t)((uintptr_t)lock_self() >> 4);
  if (block != NULL) {
    struct profile_frames frames;
    walk(&frames);
    profile_table_add(&sample, &frames);
    if (fence_holds(block)) fence_note(block, sample.stack);
    counter_set(&gauges_profile_bytes, profile_table_bytes() + fence_bytes());
    profile_budget_spent(ticks);
    profile_budget_count(sample.time_ns);
  } else {
    profile_table_dropped(sample.weight_bytes);
  }
  draw(thread);
  thread->takes_sample = 0;
}

NEVER_INLINE uint32_t profile_stack_here(void) {
  struct thread *thread = &this_thread;
  if (thread->takes_sample || __atomic_load_n(&profile.state, __ATOMIC_ACQUIRE) != STATE_READY) return 0;
  struct profile_frames frames;
  uint64_t ticks = profile_budget_ticks();
  thread->takes_sample = 1;
  walk(&frames);
  uint32_t stack = profile_table_stack(&frames);
  profile_budget_spent(ticks);
  thread->takes_sample = 0;
  return stack;
}

/* ---- fork ---- */

void profile_after_fork(bool passes_over) {
  this_thread.takes_sample = 0;
  if (__atomic_load_n(&profile.state, __ATOMIC_RELAXED) == STATE_PREPARING) {
    __atomic_store_n(&profile.state, STATE_NONE, __ATOMIC_RELAXED);
  }
  if (profile_head == NULL) return;
  seed();
  profile_budget_after_fork();
  profile_table_inherit();
  if (!passes_over) return fence_after_fork();
  __atomic_store_n(&profile.state, STATE_REFUSED, __ATOMIC_RELAXED);
  profile_table_abandon();
}
