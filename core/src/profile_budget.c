#include "profile_budget.h"

#include "counters.h"
#include "profile_table.h"
#include "purge.h"
#include "rights.h"
#include "sys.h"

#define WINDOW_NS UINT64_C(1000000000)
#define CLOCK_LEAST_NS UINT64_C(200000000) /* fifty steps of the coarse clock */
#define NS_PER_MS UINT64_C(1000000)

enum {
  RAISE_MAX = 8, /* times, at once */
  LOWER_MAX = 4,
  TICKS_STEP = 16, /* the usual ones change by this part at each sample: so they become the median */
  TICKS_MAX = 4,   /* times the usual ones: in more, another thread ran */
};

static struct {
  uint64_t mean_bytes;            /* atomic, as all above `cpu_ns` */
  uint64_t least_bytes;           /* the mean that was asked for */
  uint64_t free_until_ns;         /* until then they may take a greater share */
  uint32_t used;                  /* samples in the window */
  uint32_t look_at;               /* so many of them are the next reason to look */
  uint64_t window_ns;             /* when the window began */
  uint64_t spent_ticks;           /* in it, by samples */
  uint64_t usual_ticks;           /* of one sample */
  uint64_t cpu_ns;                /* of the process when the window began; the purge lock, as all below */
  uint64_t clock_ns, clock_ticks; /* both clocks at one moment */
  uint64_t ticks_per_ms;          /* 0: unknown */
} allowance;

uint64_t profile_budget_stale_bytes = UINT64_MAX;

static void set_mean(uint64_t mean_bytes) {
  counter_set(&profile_budget_stale_bytes, mean_bytes * 2);
  counter_set(&allowance.mean_bytes, mean_bytes);
  counter_set(&profile_head->mean_bytes, mean_bytes);
}

static void begin_window(uint64_t now) {
  counter_set(&allowance.window_ns, now);
  counter_set(&allowance.spent_ticks, 0);
  __atomic_store_n(&allowance.look_at, PROFILE_BUDGET_LOOK, __ATOMIC_RELAXED);
  __atomic_store_n(&allowance.used, 0, __ATOMIC_RELAXED);
}

uint64_t profile_budget_mean_bytes(void) { return counter_get(&allowance.mean_bytes); }

void profile_budget_prepare(void) {
  allowance.clock_ns = sys_coarse_time_ns();
  allowance.clock_ticks = profile_budget_ticks();
}

void profile_budget_begin(uint64_t mean_bytes) {
  counter_set(&allowance.least_bytes, mean_bytes);
  set_mean(mean_bytes);
  uint64_t now = sys_coarse_time_ns();
  counter_set(&allowance.free_until_ns, now + PROFILE_BUDGET_FREE_S * WINDOW_NS);
  begin_window(now);
}

void profile_budget_after_fork(void) {
  allowance.cpu_ns = 0;
  counter_set(&allowance.free_until_ns, 0); /* else each of many short-lived children took its share */
  begin_window(sys_coarse_time_ns());
}

/* ---- what samples take ---- */

/* 0: not to be asked for, as in a sandbox that forbids the counter together with all calls. */
uint64_t profile_budget_ticks(void) { return rights_have(RIGHT_OTHERS) ? sys_ticks() : 0; }

/* The counter runs on while other threads have the CPU, so what is far above the median counts as a part of it. */
void profile_budget_spent(uint64_t ticks_before) {
  uint64_t ticks = profile_budget_ticks(), usual = counter_get(&allowance.usual_ticks);
  if (ticks_before == 0 || ticks <= ticks_before) return;
  ticks -= ticks_before;
  if (usual == 0) usual = ticks;
  uint64_t step = usual / TICKS_STEP;
  counter_set(&allowance.usual_ticks, ticks > usual ? usual + step + 1 : usual - step);
  __atomic_fetch_add(&allowance.spent_ticks, ticks < usual * TICKS_MAX ? ticks : usual * TICKS_MAX, __ATOMIC_RELAXED);
}

/* As after a restore on another machine: far earlier than another thread's moment may be. */
static bool is_long_before(uint64_t now, uint64_t then) { return now + WINDOW_NS < then; }

static void compare_clocks(uint64_t now) {
  if (is_long_before(now, allowance.clock_ns)) profile_budget_prepare();
  if (now < allowance.clock_ns + CLOCK_LEAST_NS) return;
  uint64_t ticks = profile_budget_ticks(), passed_ns = now - allowance.clock_ns;
  bool rose = allowance.clock_ticks != 0 && ticks > allowance.clock_ticks;
  allowance.ticks_per_ms = rose ? (ticks - allowance.clock_ticks) / (passed_ns / NS_PER_MS) : 0;
  allowance.clock_ns = now;
  allowance.clock_ticks = ticks;
}

/* How many samples like those of the window it may have, by what they took; UINT64_MAX: that is unknown, or does not
 * matter. */
static uint64_t affordable(uint64_t passed_ns, uint32_t used, uint64_t cpu_ns, bool is_free) {
  if (is_free || cpu_ns < allowance.cpu_ns || cpu_ns == 0 || allowance.ticks_per_ms == 0) return UINT64_MAX;
  uint64_t spent_ns = counter_get(&allowance.spent_ticks) * NS_PER_MS / allowance.ticks_per_ms;
  if (spent_ns == 0) return UINT64_MAX;
  uint64_t for_cpu = used * ((cpu_ns - allowance.cpu_ns) / PROFILE_BUDGET_SHARE) / spent_ns;
  uint64_t least = used * (passed_ns / PROFILE_BUDGET_SHARE) / spent_ns;
  uint64_t least_count = passed_ns * PROFILE_BUDGET_LEAST / WINDOW_NS;
  if (least > least_count) least = least_count;
  return for_cpu > least ? for_cpu : least;
}

/* ---- the mean ---- */

/* So that there are `most` samples where there were `used`. */
static void change_mean(uint64_t used, uint64_t most) {
  uint64_t mean = counter_get(&allowance.mean_bytes), least = counter_get(&allowance.least_bytes);
  if (used > most * RAISE_MAX) used = most * RAISE_MAX;
  if (used < most / LOWER_MAX) used = most / LOWER_MAX;
  mean = most != 0 ? (uint64_t)((double)mean * (double)used / (double)most) : mean * RAISE_MAX;
  if (mean < least) mean = least;
  set_mean(mean < PROFILE_MEAN_MAX_BYTES ? mean : PROFILE_MEAN_MAX_BYTES);
}

/* The purge lock is held. */
static void look(uint64_t now, uint32_t used) {
  compare_clocks(now);
  uint64_t cpu_ns = rights_have(RIGHT_OTHERS) ? sys_process_cpu_ns() : 0;
  uint64_t passed_ns = now - counter_get(&allowance.window_ns);
  bool is_over = passed_ns >= WINDOW_NS, is_free = now < counter_get(&allowance.free_until_ns);
  uint64_t most = passed_ns * PROFILE_BUDGET / WINDOW_NS;
  uint64_t can_pay = affordable(passed_ns, used, cpu_ns, is_free);
  if (can_pay < most) most = can_pay;
  bool is_burst = used >= PROFILE_BUDGET || (used >= PROFILE_BUDGET_LOOK && used / 2 > can_pay);
  /* Few samples say little but that they are far too few. */
  if (is_burst || (is_over && (used >= PROFILE_BUDGET_LOOK || most >= 2 * PROFILE_BUDGET_LOOK + used))) {
    change_mean(used, most);
    allowance.cpu_ns = cpu_ns;
    begin_window(now);
  } else {
    __atomic_store_n(&allowance.look_at, used + PROFILE_BUDGET_LOOK, __ATOMIC_RELAXED);
  }
}

static void adjust_if_due(uint64_t now, uint32_t used) {
  bool is_due = used >= __atomic_load_n(&allowance.look_at, __ATOMIC_RELAXED);
  uint64_t window_ns = counter_get(&allowance.window_ns);
  if (!is_due && now < window_ns + WINDOW_NS && !is_long_before(now, window_ns)) return;
  if (!purge_try_lock()) return; /* the next sample will look */
  if (is_long_before(now, counter_get(&allowance.window_ns))) {
    counter_set(&allowance.free_until_ns, 0);
    begin_window(now);
  }
  /* Another thread may have begun a window since this sample was. */
  if (now >= counter_get(&allowance.window_ns)) look(now, used);
  purge_unlock();
}

void profile_budget_count(uint64_t now) {
  adjust_if_due(now, __atomic_add_fetch(&allowance.used, 1, __ATOMIC_RELAXED));
}

void profile_budget_tick(void) {
  adjust_if_due(sys_coarse_time_ns(), __atomic_load_n(&allowance.used, __ATOMIC_RELAXED));
}
