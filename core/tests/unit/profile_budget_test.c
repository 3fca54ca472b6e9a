/* profile_budget_test.c: how often samples are taken of a process that is made up: its clocks, what it allocates, and
 * what a sample costs it. */
#include "../../src/sys.c"

#include <stdint.h>

/* Of the made-up process. */
static struct {
  uint64_t now_ns, cpu_ns, ticks;
} clocks;

static uint64_t own_time(void) { return clocks.now_ns / 4000000 * 4000000; }
static uint64_t own_cpu_time(void) { return clocks.cpu_ns; }
static uint64_t own_ticks(void) { return clocks.ticks; }

#define sys_coarse_time_ns own_time
#define sys_process_cpu_ns own_cpu_time
#define sys_ticks own_ticks
#include "above_sys.h"
#include "unit.h"

enum { TICKS_PER_NS = 2 };

struct made_up {
  double busy;            /* share of a core that it uses */
  double bytes_per_cpu_s; /* what it allocates meanwhile */
  uint64_t sample_ns;
  uint64_t preempted_every; /* so many samples; 0: never */
};

struct outcome {
  double share;    /* of CPU time that samples took */
  double a_second; /* samples */
  double estimate; /* sum of weights over what was allocated */
};

static void pass(const struct made_up *process, uint64_t cpu_ns) {
  clocks.cpu_ns += cpu_ns;
  clocks.now_ns += (uint64_t)((double)cpu_ns / process->busy);
  clocks.ticks += (uint64_t)((double)cpu_ns / process->busy) * TICKS_PER_NS;
}

/* Blocks of 4,000 bytes for so many seconds of the clock. */
static struct outcome simulate(const struct made_up *process, double seconds) {
  enum { BLOCK = 4000 };
  static uint64_t random = 7, samples;
  double allocated = 0, weights = 0, spent_ns = 0, taken = 0;
  uint64_t begin_ns = clocks.now_ns, begin_cpu_ns = clocks.cpu_ns, mean = profile_budget_mean_bytes();
  uint64_t until = poisson_distance(mean, poisson_mix(random += POISSON_GAMMA));
  while ((double)(clocks.now_ns - begin_ns) < seconds * 1e9) {
    /* As many blocks as fit before the next sample, at once. */
    uint64_t blocks = until / BLOCK + 1;
    allocated += (double)(blocks * BLOCK);
    pass(process, (uint64_t)((double)(blocks * BLOCK) / process->bytes_per_cpu_s * 1e9));
    uint64_t ticks = profile_budget_ticks();
    clocks.cpu_ns += process->sample_ns;
    clocks.now_ns += process->sample_ns;
    clocks.ticks += process->sample_ns * TICKS_PER_NS;
    if (process->preempted_every != 0 && ++samples % process->preempted_every == 0) {
      clocks.now_ns += 8000000;
      clocks.ticks += 8000000 * TICKS_PER_NS;
    }
    profile_budget_spent(ticks);
    weights += BLOCK / poisson_share(BLOCK, mean);
    profile_budget_count(own_time());
    taken++;
    spent_ns += (double)process->sample_ns;
    mean = profile_budget_mean_bytes();
    until = poisson_distance(mean, poisson_mix(random += POISSON_GAMMA));
  }
  return (struct outcome){spent_ns / (double)(clocks.cpu_ns - begin_cpu_ns),
                          taken / ((double)(clocks.now_ns - begin_ns) / 1e9), weights / allocated};
}

static void begin_at(uint64_t mean_bytes) {
  clocks.now_ns += 1000000000;
  clocks.ticks += UINT64_C(1000000000) * TICKS_PER_NS;
  if (profile_head == NULL) {
    REQUIRE(profile_table_make(0));
    profile_budget_prepare();
  }
  profile_budget_begin(mean_bytes);
}

static double least_of(double one, double other) { return one < other ? one : other; }

/* Whatever the process does, samples take a two-hundredth of its CPU time or less, in the end; or they are few, and
 * take less than that of one CPU. And it takes as many as it may, whatever else has the CPU meanwhile. */
TEST(samples_cost_little_and_never_end) {
  static const struct made_up processes[] = {{1, 1e9, 17000, 0},     {1, 1e9, 17000, 200},    {1, 1e8, 5000, 0},
                                             {0.25, 1e9, 17000, 0},  {0.25, 1e8, 17000, 100}, {0.01, 1e9, 17000, 0},
                                             {4, 2e9, 17000, 0},     {0.001, 3e9, 60000, 0},  {1, 1e10, 100000, 0},
                                             {0.05, 5e8, 200000, 0}, {0.12, 1.7e9, 20000, 3}, {0.04, 5e9, 20000, 4},
                                             {0.06, 3e9, 50000, 10}, {0.02, 1e10, 900000, 0}};
  for (size_t i = 0; i < COUNT_OF(processes); i++) {
    const struct made_up *process = &processes[i];
    begin_at(512 * KIB);
    simulate(process, 300);
    struct outcome outcome = simulate(process, 1000);
    double may = process->busy * 1e9 / PROFILE_BUDGET_SHARE / (double)process->sample_ns;
    double least = least_of(PROFILE_BUDGET_LEAST, 1e9 / PROFILE_BUDGET_SHARE / (double)process->sample_ns);
    may = least_of(PROFILE_BUDGET, may > least ? may : least);
    CHECK_THAT(outcome.a_second < 1.2 * may, "process %d: %g samples a second of %g", (int)i, outcome.a_second, may);
    /* A sample amid which another thread ran counts as up to four. */
    double counts = process->preempted_every != 0 ? 1 + 3.0 / (double)process->preempted_every : 1;
    bool is_used = outcome.a_second > 0.7 * may / counts || profile_budget_mean_bytes() == 512 * KIB;
    CHECK_THAT(is_used, "process %d: share %g, %g a second", (int)i, outcome.share, outcome.a_second);
    CHECK_THAT(outcome.estimate > 0.95 && outcome.estimate < 1.05, "process %d: %g", (int)i, outcome.estimate);
  }
}

/* The mean is chosen by what was before, so the weights are right while it changes all the time. */
TEST(estimates_are_unbiased_while_the_mean_changes) {
  static const struct made_up busy = {1, 4e9, 17000, 0}, quiet = {0.2, 4e8, 17000, 0};
  double sum = 0;
  enum { TURNS = 200 };
  uint64_t least = UINT64_MAX, most = 0;
  begin_at(64 * KIB);
  for (int i = 0; i < TURNS; i++) {
    sum += simulate(i % 2 == 0 ? &busy : &quiet, 20).estimate;
    uint64_t mean = profile_budget_mean_bytes();
    if (mean < least) least = mean;
    if (mean > most) most = mean;
  }
  CHECK_THAT(sum / TURNS > 0.99 && sum / TURNS < 1.01, "estimates over truth: %g", sum / TURNS);
  CHECK_THAT(most >= 4 * least, "the mean was %llu to %llu", (unsigned long long)least, (unsigned long long)most);
}

/* A look of some seconds gets as many samples as ever. */
TEST(the_first_seconds_are_free) {
  static const struct made_up process = {0.05, 1e9, 17000, 0};
  begin_at(512 * KIB);
  struct outcome first = simulate(&process, 3), later = (simulate(&process, 60), simulate(&process, 60));
  CHECK_THAT(first.a_second > 60 && later.a_second < 30, "%g, then %g", first.a_second, later.a_second);
}

/* As where a sandbox forbids to ask. */
TEST(without_a_right_the_number_a_second_counts) {
  static const struct made_up process = {0.05, 1e9, 17000, 0};
  uint32_t rights_before = rights_end();
  begin_at(512 * KIB);
  simulate(&process, 60);
  struct outcome outcome = simulate(&process, 60);
  rights_resume(rights_before);
  CHECK_THAT(outcome.a_second > 20 && outcome.a_second < 110, "%g a second", outcome.a_second);
}

/* A child's CPU time begins at 0, and so do its first samples to count. */
TEST(children_have_a_budget_of_their_own) {
  static const struct made_up process = {0.25, 1e9, 17000, 0};
  begin_at(512 * KIB);
  profile_budget_after_fork();
  clocks.cpu_ns = 0;
  struct outcome outcome = simulate(&process, 100);
  CHECK_THAT(outcome.a_second < 1.5 * 0.25 * 1e9 / PROFILE_BUDGET_SHARE / 17000, "%g a second", outcome.a_second);
}

/* As a worker between two jobs: it is not left with a distance of minutes. */
TEST(the_distance_falls_while_nothing_is_sampled) {
  static const struct made_up busy = {0.5, 4e9, 17000, 0};
  begin_at(64 * KIB);
  simulate(&busy, 60);
  uint64_t before = profile_budget_mean_bytes();
  for (int i = 0; i < 600; i++) {
    clocks.now_ns += 100000000;
    clocks.ticks += UINT64_C(100000000) * TICKS_PER_NS;
    profile_budget_tick();
  }
  CHECK_THAT(before > 4 * MIB && profile_budget_mean_bytes() == 64 * KIB && profile_budget_stale_bytes == 128 * KIB,
             "%zu before, %zu after", (size_t)before, (size_t)profile_budget_mean_bytes());
}

/* As after a restore on a machine that was started later. */
TEST(a_clock_that_goes_back_ends_no_budget) {
  static const struct made_up quiet = {0.05, 1e7, 17000, 0}, busy = {0.05, 1e10, 17000, 0};
  const uint64_t back_ns = UINT64_C(1000000000000);
  clocks.now_ns += back_ns;
  begin_at(512 * KIB);
  simulate(&quiet, 60);
  clocks.now_ns -= back_ns;
  simulate(&busy, 60);
  struct outcome outcome = simulate(&busy, 60);
  CHECK_THAT(outcome.a_second < 1.5 * PROFILE_BUDGET_LEAST, "%g a second", outcome.a_second);
}

/* A thread that lost the CPU amid a sample has an older time than the window that another one began. */
TEST(a_sample_from_before_the_window_changes_nothing) {
  begin_at(512 * KIB);
  set_mean(1 * MIB);
  uint64_t late = own_time() - 8000000, ticks_per_ms = allowance.ticks_per_ms = 7;
  profile_budget_count(late);
  CHECK_THAT(profile_budget_mean_bytes() == 1 * MIB, "%zu", (size_t)profile_budget_mean_bytes());
  allowance.clock_ns = own_time();
  allowance.window_ns = late; /* and than the clocks that it compared */
  allowance.look_at = 1;
  profile_budget_count(late);
  CHECK(profile_budget_mean_bytes() == 1 * MIB && allowance.ticks_per_ms == ticks_per_ms);
}
